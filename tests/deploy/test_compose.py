"""What the compose file promises before it is run; `make deploy-check` runs it."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from idemproxy.config.load import load
from idemproxy.config.units import seconds
from idemproxy.workers import PATIENCE
from tests.deploy.files import COMPOSE, documents, variables

TEXT: Final = (COMPOSE / "compose.yaml").read_text("utf-8")
[FILE] = documents(COMPOSE / "compose.yaml")
SERVICES: Final[dict[str, Any]] = FILE["services"]
CONFIGURATION: Final = COMPOSE / "idemproxy.yaml"


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_confined(name: str) -> None:
    """Nothing may be written but volumes, no capability is left, none is gained, and the image has a version."""
    service = SERVICES[name]

    assert (True, ["ALL"], ["no-new-privileges:true"]) == (service["read_only"], service["cap_drop"], service["security_opt"])
    assert re.search(r":v?\d[\w.-]*\}?$", service["image"])


def test_ports_are_the_hosts_own() -> None:
    """What is published is reached from this host alone, since everyone who reaches it shares keys."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]

    assert ["127.0.0.1"] * 3 == [port.partition(":")[0] for port in ports]


def test_drain_ends_before_the_kill() -> None:
    """The proxy has longer than its `drain`, and than its workers have beyond that, until it is killed."""
    drain = load({"config": [str(CONFIGURATION)]}, {}).settings.drain

    assert seconds(SERVICES["proxy"]["stop_grace_period"]) > drain + PATIENCE


def test_redis_keeps_what_it_acknowledged() -> None:
    """The server writes each change to its disk before it answers, never evicts, and has room for a fork beside its data."""
    words = SERVICES["redis"]["command"].split()
    flags = dict(zip(words[1::2], words[2::2], strict=True))

    assert ("yes", "always", "noeviction") == (flags["--appendonly"], flags["--appendfsync"], flags["--maxmemory-policy"])
    assert 2 * 256 == 2 * int(variables(flags["--maxmemory"])["REDIS_MAXMEMORY"].removesuffix("mb"))
    assert "512m" == SERVICES["redis"]["mem_limit"]


def test_redis_is_reached_by_the_proxy_alone() -> None:
    """The server, which has no password, is in one network only, which leads nowhere and holds just the proxy beside it."""
    assert {"proxy", "redis"} == {name for name, service in SERVICES.items() if "records" in service["networks"]}
    assert (["records"], True) == (SERVICES["redis"]["networks"], FILE["networks"]["records"]["internal"])


def test_every_mounted_file_exists() -> None:
    """What is mounted from beside the compose file is there."""
    files = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ()) if volume[0] == "."]

    assert ([], 3) == ([file for file in files if not (COMPOSE / file).is_file()], len(files))


def test_every_variable_is_in_the_example() -> None:
    """.env.example names each variable of the compose file, with the value that holds without it, and no other."""
    lines = (COMPOSE / ".env.example").read_text("utf-8").splitlines()
    example = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    assert variables(TEXT) == example
