"""Which Sentinels are asked for the primary, for how long, and what is said when none of them names one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from idemproxy.store import redis_endpoint
from idemproxy.store.base import StoreError
from idemproxy.store.redis_url import read_url
from tests.servers import RedisServer, free_port, redis_server
from tests.store.redis_steps import granted, opened, refusal
from tests.topologies import SERVICE, Watched

HUNG = 8
DEADLINE = 2.0


@pytest.fixture
def hung() -> Iterator[list[int]]:
    """Ports on which connections are taken, and nothing is ever read or answered."""
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(HUNG)]
        yield [each.getsockname()[1] for each in listening]


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a password, which is no Sentinel."""
    with redis_server(requirepass="secret") as server:
        yield server


def _url(*ports: int, options: str = "") -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/{SERVICE}/0{options}"


async def test_a_living_sentinel_answers_behind_many_that_hang(hung: list[int], sentinels: Watched) -> None:
    """All are asked side by side: however many hang before it in the URL, the one that lives is heard within the deadline."""
    async with opened(_url(*hung, sentinels.sentinels[0]), prefix="hung:", deadline=DEADLINE) as store:
        hold = await granted(store)

    assert "owner" == hold.owner


@asynccontextmanager
async def scripted(primary: int, epoch: int, seconds: float) -> AsyncIterator[int]:
    """The port of a Sentinel that takes `seconds` to name a primary, as of a failover of this number."""

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = [b"ip", b"127.0.0.1", b"port", b"%d" % primary, b"flags", b"master", b"config-epoch", b"%d" % epoch]
        while b"MASTER" not in await reader.readuntil(b"\r\n"):
            pass
        await asyncio.sleep(seconds)
        writer.write(b"*8\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in told))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(tell, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_sentinel_that_missed_the_failover_is_not_believed(sentinels: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers first, and names the server before: the others are heard, too, and one of them knows of a later failover."""
    monkeypatch.setattr(redis_endpoint, "_SOON", 0.5)
    async with (
        scripted(free_port(), 9, 0) as first,
        scripted(sentinels.primary().port, 10, 0.02) as second,
        opened(_url(first, second), prefix="missed:", deadline=DEADLINE) as store,
    ):
        hold = await granted(store)

    assert "owner" == hold.owner


async def test_what_each_sentinel_did_is_told(hung: list[int], guarded: RedisServer, sentinels: Watched) -> None:
    """The error names each address that was asked, in the order of the URL, with why it named no primary, in plain words."""
    closed = free_port()
    url = _url(closed, hung[0], guarded.port, sentinels.sentinels[0]).replace(SERVICE, "other")
    async with opened(url, deadline=DEADLINE) as store:
        said = await refusal(store.check())

    addresses = [f"127.0.0.1:{port}" for port in (closed, hung[0], guarded.port, sentinels.sentinels[0])]
    advice = "see that the server runs, and that store.url names it"
    at_the_server = (
        "it asks for a password: add ?sentinel_auth=yes to store.url, where that is the server's",
        "it is no Sentinel",  # as Redis 7.0 tells, before it asks for a password
    )
    expected = set()
    for reason in at_the_server:
        reasons = ["Connection refused", "no answer within 1 s", reason, "No such master with that name"]
        told = "; ".join(f"{address}: {each}" for address, each in zip(addresses, reasons, strict=True))
        expected.add(f"redis at other of {','.join(addresses)}: no Sentinel names a primary for 'other': {told}; {advice}")
    assert {said} <= expected


async def test_credentials_go_to_the_sentinels_when_that_is_asked_for(guarded: RedisServer) -> None:
    """With `sentinel_auth=yes` they are told the password; a server that has it, and is no Sentinel, is told as such."""
    url = _url(guarded.port, options="?sentinel_auth=yes").replace("://", "://:secret@")
    async with opened(url, deadline=DEADLINE) as store:
        said = await refusal(store.check())

    assert f"127.0.0.1:{guarded.port}: it is no Sentinel;" in said
    assert "secret" not in said


@pytest.mark.parametrize("value", ["", "true", "Yes", "1"])
def test_sentinel_auth_is_yes_or_no(value: str) -> None:
    """Any other value is told, with the two that there are."""
    with pytest.raises(StoreError) as raised:
        read_url(_url(26379, options=f"?sentinel_auth={value}"))

    assert f"store.url says sentinel_auth={value}; it must be yes or no" == str(raised.value)


@pytest.mark.parametrize(("options", "told"), [("", False), ("?sentinel_auth=no", False), ("?sentinel_auth=yes", True)])
def test_sentinels_are_told_our_credentials_on_demand_only(options: str, *, told: bool) -> None:
    """Without the option, as with `no`, they are kept for the server."""
    assert told == read_url(_url(26379, options=options)).sentinel_auth
