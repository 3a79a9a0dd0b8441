"""Who gets to see records: the one with the token, or, without a token, the one at this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import ClientSession, UnixConnector
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, AppRunner, Request, UnixSite
from pytest_aiohttp.plugin import AiohttpClient

from idemproxy.admin.access import Access, is_loopback
from tests.admin.desk import Desk

TOKEN = "0123456789abcdef-0123456789abcdef"

Client = TestClient[Request, Application]


@pytest.fixture(name="local")
async def fixture_local(aiohttp_client: AiohttpClient) -> Client:
    """A client of a listener without a token, on loopback."""
    return await aiohttp_client(Desk().app())


@pytest.fixture(name="guarded")
async def fixture_guarded(aiohttp_client: AiohttpClient) -> Client:
    """A client of a listener with a token."""
    return await aiohttp_client(Desk(token=TOKEN.encode()).app())


async def status(client: Client, *fields: tuple[str, str], path: str = "/records") -> int:
    """The status of one GET with these fields."""
    async with client.get(path, headers=list(fields)) as response:
        return response.status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LocalHost:8081", "[::1]", "[::1]:8081"])
async def test_loopback_is_served_without_a_token(local: Client, host: str) -> None:
    """Under any name of loopback, with any port, records are served to this machine."""
    assert 200 == await status(local, ("Host", host))


@pytest.mark.parametrize(
    "host",
    ["proxy.test", "localhost.evil.test", "127.0.0.1.evil.test:8081", "127.0.0.2", "evil.test#localhost", "localhost:", ""],
)
async def test_another_name_is_refused_without_a_token(local: Client, host: str) -> None:
    """A page whose name was re-bound to this machine is refused: its browser sends that name."""
    assert 403 == await status(local, ("Host", host))


@pytest.mark.parametrize("origin", ["https://evil.test", "http://localhost:3000", "https://localhost:8081", "null", ""])
async def test_another_origin_is_refused_without_a_token(local: Client, origin: str) -> None:
    """A page of another origin, another port or another scheme among them, is refused."""
    assert 403 == await status(local, ("Host", "localhost:8081"), ("Origin", origin))


async def test_the_own_origin_is_served(local: Client) -> None:
    """A page that the listener itself has served may ask it."""
    assert 200 == await status(local, ("Host", "localhost:8081"), ("Origin", "http://localhost:8081"))


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.7", False),
        ("::ffff:192.0.2.7", False),
        ("fe80::1%eth0", False),
        ("::", False),
        ("0.0.0.0", False),  # noqa: S104 - an address like others here
        ("", False),
    ],
)
def test_only_loopback_addresses_are_this_machine(peer: str, expected: bool) -> None:  # noqa: FBT001 - a column of the table
    """A peer is local by its address alone, also where IPv4 arrives on an IPv6 socket."""
    assert expected is is_loopback(peer)


@pytest.mark.parametrize(("token", "expected"), [(None, 403), (TOKEN.encode(), 200)])
async def test_a_peer_without_an_address_needs_the_token(tmp_path: Path, token: bytes | None, expected: int) -> None:
    """Whoever is not known to be on loopback is refused, whatever it calls the listener; with the token it is served."""
    runner = AppRunner(Desk(token=token).app())
    await runner.setup()
    path = str(tmp_path / "admin")
    try:
        await UnixSite(runner, path).start()
        async with (
            ClientSession(connector=UnixConnector(path)) as session,
            session.get("http://localhost/records", headers={"Authorization": f"Bearer {TOKEN}"}) as response,
        ):
            assert expected == response.status
    finally:
        await runner.cleanup()


async def test_refusals_say_what_to_do(local: Client) -> None:
    """Without a token, a refusal is a problem document that names the way in, and nothing is cached."""
    async with local.get("/records", headers={"Host": "proxy.test"}) as response:
        document = await response.json(content_type="application/problem+json")
        cached = response.headers["Cache-Control"]

    document.pop("instance")
    assert "no-store" == cached
    assert {
        "type": "forbidden",
        "title": "Records are not shown to this caller",
        "status": 403,
        "detail": "Without a token, records are served only under the names localhost, 127.0.0.1 and ::1: "
        "ask under one of these, or configure admin.token_file.",
        "executed": "no",
        "retry": "never",
    } == document


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER  "])
async def test_the_token_opens_from_anywhere(guarded: Client, scheme: str) -> None:
    """With the token, neither the name nor the origin matters: no page can send it unasked."""
    away = (("Host", "proxy.test"), ("Origin", "https://console.test"))

    assert 200 == await status(guarded, ("Authorization", f"{scheme} {TOKEN}"), *away)


@pytest.mark.parametrize(
    ("fields", "challenge"),
    [
        ([], 'Bearer realm="idemproxy"'),
        ([("Authorization", f"Basic {TOKEN}")], 'Bearer realm="idemproxy"'),
        ([("Authorization", TOKEN)], 'Bearer realm="idemproxy"'),
        ([("Authorization", "Bearer ")], 'Bearer realm="idemproxy"'),
        ([("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")], 'Bearer realm="idemproxy"'),
        ([("Authorization", f"Bearer {TOKEN}x")], 'Bearer realm="idemproxy", error="invalid_token"'),
        ([("Authorization", f"Bearer {TOKEN[:-1]}")], 'Bearer realm="idemproxy", error="invalid_token"'),
        ([("Authorization", f"Bearer {TOKEN.upper()}")], 'Bearer realm="idemproxy", error="invalid_token"'),
    ],
)
async def test_without_the_token_nothing_opens(guarded: Client, fields: list[tuple[str, str]], challenge: str) -> None:
    """A missing, doubled or wrong token gets 401 with a challenge (RFC 6750, section 3), also on loopback."""
    async with guarded.get("/records", headers=fields) as response:
        answered = response.status, response.headers["WWW-Authenticate"], response.headers["Cache-Control"]
        document = await response.json(content_type="application/problem+json")

    assert (401, challenge, "no-store") == answered
    assert ("unauthorized", False) == (document["type"], TOKEN in str(document))


@pytest.mark.parametrize("path", ["/records", "/records/shared/payments/k", "/records/shared/payments/k/resolve"])
async def test_every_page_of_the_records_is_guarded(guarded: Client, path: str) -> None:
    """List, record and acts all ask for the token before anything else."""
    method = "POST" if path.endswith("resolve") else "GET"
    async with guarded.request(method, path) as response:
        assert 401 == response.status


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz?verbose", "/startupz"])
async def test_health_and_metrics_stay_open(guarded: Client, path: str) -> None:
    """Probes and Prometheus ask by whatever name they know, and have no token."""
    assert 401 != await status(guarded, ("Host", "10.0.0.7:8081"), path=path)


def test_a_token_is_not_shown_by_its_holder() -> None:
    """What is logged of the rule does not hold the token."""
    assert "Access()" == repr(Access(TOKEN.encode()))
