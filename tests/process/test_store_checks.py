"""A store that may forget operations: it keeps a proxy from starting, unless that was accepted, and later it is told aloud."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from tests.process.asking import ask, configuration, counted, eventually, page
from tests.process.test_disk import small_disk
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy
from tests.servers import redis_server
from tests.store.redis_steps import NARROW

PATIENCE: Final = 20.0


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that notes what arrives."""
    with upstream() as server:
        yield server


def settings(api: Upstream, store: dict[str, Any]) -> dict[str, Any]:
    """A configuration with one upstream and a store."""
    return {"upstreams": {"api": {"url": api.url}}, "store": store}


def refused(*arguments: str, spool: Path) -> tuple[int, str]:
    """Exit code and standard error of a run that must not start."""
    words = ["run", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--spool", str(spool), *arguments]
    ended = subprocess.run(
        [sys.executable, "-m", "idemproxy", *words], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    return ended.returncode, ended.stderr


def findings(running: Program) -> dict[str, float]:
    """How many findings there are of each level, by the metrics."""
    levels = ("error", "warning", "unverified", "accepted")
    return {level: counted(running.admin, "idemproxy_store_findings", result=level) for level in levels}


def warnings(running: Program, word: str) -> list[str]:
    """The lines on standard error that are more than information and hold a word."""
    return [line for line in running.told if word in line and not line.startswith("INFO")]


def test_eviction_refuses_the_start(api: Upstream, tmp_path: Path) -> None:
    """A server that may evict records keeps the proxy from starting, which says why, and what to do, and exits with 1."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        code, told = refused("--upstream", api.url, "--store", server.url, spool=tmp_path / "spool")

    assert 1 == code
    assert "ERROR not started, since records may go: maxmemory-policy: allkeys-lru" in told
    assert "set maxmemory-policy to noeviction, or accept it with `store.accept_risk: [eviction]`" in told
    assert "listening" not in told


def test_an_accepted_eviction_starts_and_is_logged(api: Upstream, key: str, tmp_path: Path) -> None:
    """With `accept_risk: [eviction]` the same server is used, and the log and the metrics say that this was accepted."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        run = configuration(tmp_path, settings(api, {"url": server.url, "accept_risk": ["eviction"]}))
        with proxy(*run) as running:
            answer = ask(running.url, key)
            found = findings(running)
    told = warnings(running, "maxmemory-policy")

    assert (201, "executed") == (answer.status, answer.told)
    assert {"error": 0, "warning": 0, "unverified": 0, "accepted": 1} == found
    assert [True] == [line.startswith("WARNING store: maxmemory-policy: accepted: allkeys-lru") for line in told]


def test_what_a_provider_hides_is_not_verified(api: Upstream, key: str) -> None:
    """Without CONFIG and INFO the proxy starts, and says what it could not see and what that means."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        with Redis(port=server.port, protocol=2) as client:
            client.execute_command("ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", *NARROW)
        url = server.url.replace("redis://", "redis://narrow:pass@")
        with proxy("--upstream", api.url, "--store", url) as running:
            answer = ask(running.url, key)
            found = findings(running)
    told = warnings(running, "store: ")

    assert (201, "executed") == (answer.status, answer.told)
    assert {"error": 0, "warning": 0, "unverified": 4, "accepted": 0} == found
    assert ["version", "maxmemory-policy", "persistence", "replication"] == [line.split(": ")[1] for line in told]
    assert [] == [line for line in told if ": not verified: " not in line]


def test_a_server_that_comes_back_with_another_policy(api: Upstream, key: str) -> None:
    """It is looked at anew: the log, the metrics and the readiness page say what is wrong, once, and traffic goes on."""
    with redis_server(appendonly=True) as server, proxy("--upstream", api.url, "--store", server.url) as running:
        before = findings(running)
        server.kill()
        eventually(lambda: page(f"{running.admin}/readyz")[0] == 503)
        server.settings = {**server.settings, "maxmemory-policy": "allkeys-lru"}
        server.start()
        eventually(lambda: page(f"{running.admin}/readyz") == (200, "ok\n"))
        eventually(lambda: findings(running)["error"] == 1)
        eventually(lambda: "[+] store: maxmemory-policy: allkeys-lru" in page(f"{running.admin}/readyz?verbose")[1])
        answer = ask(running.url, key)
    told = warnings(running, "maxmemory-policy")

    assert 0 == before["error"]
    assert (201, "executed") == (answer.status, answer.told)
    assert [True] == [line.startswith("ERROR store: maxmemory-policy: allkeys-lru") for line in told]


def test_a_server_that_is_away_at_the_start_is_looked_at_when_it_comes(api: Upstream) -> None:
    """The proxy starts without it, and tells what it finds as soon as it can."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        server.stop()
        with proxy("--upstream", api.url, "--store", server.url) as running:
            before = findings(running)
            server.start()
            eventually(lambda: page(f"{running.admin}/readyz")[0] == 200)
            eventually(lambda: findings(running)["error"] == 1)

    assert 0 == before["error"]


def test_a_disk_without_space_does_not_keep_it_from_starting(api: Upstream, tmp_path: Path) -> None:
    """What may be mended under a running proxy is an error that is told, and refuses nothing."""
    with small_disk(tmp_path), proxy("--upstream", api.url, "--store", f"sqlite:///{tmp_path}/records.db") as running:
        found = findings(running)
    told = warnings(running, "free space")

    assert 1 == found["error"]
    assert [True] == [line.startswith("ERROR store: free space: less than 8 MiB") for line in told]
