"""Redis over TLS: who is believed, who we are to the server, and what is said where the two do not fit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from idemproxy.config.load import load
from idemproxy.core.transition import Settled
from idemproxy.store.base import Store
from idemproxy.store.choice import open_store
from tests.store.redis_steps import COMPLETION, NARROW, identity, plain, refusal
from tests.store.steps import ask, granted
from tests.store.tls_server import TlsServer, other_authority

USER: Final = "agent"
PASSWORD: Final = "open/sesame: ä@#"


@pytest.fixture
def settings(tls: TlsServer) -> dict[str, Any]:
    """What a configuration says of this server, complete."""
    files = {"ca_file": tls.ca_file, "certificate_file": tls.certificate_file, "key_file": tls.key_file}
    return {"url": tls.url, "prefix": "tls-test:", "tls": {name: str(path) for name, path in files.items()}}


@asynccontextmanager
async def configured(settings: dict[str, Any], directory: Path) -> AsyncIterator[Store]:
    """The store of a configuration file, as a run opens it."""
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump({"store": settings, "upstreams": {"api": {"url": "http://127.0.0.1"}}}))
    store = open_store(load({"config": [str(file)]}, {}).settings.store)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def test_a_certificate_of_our_own(settings: dict[str, Any], tmp_path: Path) -> None:
    """With the server's authority and our certificate, a server that asks for one keeps records."""
    async with configured(settings, tmp_path) as store:
        hold = await granted(store, identity(1))

        assert Settled.WRITTEN is await store.complete(identity(1), hold, COMPLETION)


async def test_an_authority_that_is_not_the_servers(settings: dict[str, Any], tmp_path: Path) -> None:
    """A server whose certificate is another authority's is not spoken to, and the setting is named."""
    settings["tls"]["ca_file"] = str(other_authority(tmp_path))
    async with configured(settings, tmp_path) as store:
        said = [await refusal(store.claim(identity(2), ask())), await refusal(store.inspect())]

    assert [True, True] == ["CERTIFICATE_VERIFY_FAILED" in text for text in said]
    assert [True, True] == ["see store.tls.ca_file" in text for text in said]


async def test_a_name_that_is_not_in_the_certificate(settings: dict[str, Any], tls: TlsServer, tmp_path: Path) -> None:
    """A server that is reached by a name for which its certificate is not made is not spoken to."""
    settings["url"] = tls.url.replace("127.0.0.1", "localhost")
    async with configured(settings, tmp_path) as store:
        said = await refusal(store.claim(identity(3), ask()))

    assert "Hostname mismatch" in said
    assert "must name the host of store.url" in said


async def test_a_server_that_asks_for_a_certificate(settings: dict[str, Any], tmp_path: Path) -> None:
    """Without one of our own the server ends the connection, and the settings that it takes are named."""
    settings["tls"] = {"ca_file": settings["tls"]["ca_file"]}
    async with configured(settings, tmp_path) as store:
        said = await refusal(store.claim(identity(4), ask()))

    assert "store.tls.certificate_file" in said


async def test_plain_words_to_a_port_of_tls(settings: dict[str, Any], tmp_path: Path) -> None:
    """A URL without TLS is refused by a port with it, and nothing hangs."""
    settings["url"] = settings["url"].replace("rediss://", "redis://")
    del settings["tls"]
    async with configured(settings, tmp_path) as store:
        said = await refusal(store.claim(identity(5), ask()))

    assert "rediss://" in said


async def test_a_password_from_a_file(settings: dict[str, Any], tls: TlsServer, tmp_path: Path) -> None:
    """A user of the server with a password out of a file may do what the store needs, and no more; a wrong one is refused."""
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    async with plain(tls.plain_url) as client:
        await client.execute_command(  # type: ignore[no-untyped-call]
            "ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", "~tls-test:*", "&tls-test:*", *NARROW
        )
    settings |= {"url": settings["url"].replace("rediss://", f"rediss://{USER}@"), "password_file": str(secret)}
    async with configured(settings, tmp_path) as store:
        hold = await granted(store, identity(6))
        settled = await store.complete(identity(6), hold, COMPLETION)
    secret.write_text("open barley\n")
    async with configured(settings, tmp_path) as store:
        said = await refusal(store.claim(identity(7), ask()))

    assert Settled.WRITTEN is settled
    assert "WRONGPASS" in said
    assert "barley" not in said
