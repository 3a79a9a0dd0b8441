"""A lane gives each caller its own reply, and lets its connection go, whatever becomes of those who wait for that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from idemproxy.store.redis_durability import AS_CONFIGURED
from idemproxy.store.redis_endpoint import Endpoint, ServerConnection
from idemproxy.store.redis_fault import LostReplyError
from idemproxy.store.redis_lane import Lane
from idemproxy.store.redis_script import packed
from idemproxy.store.redis_url import read_url
from tests.servers import RedisServer, redis_server

PATIENCE: Final = 10.0
PING: Final = packed("PING")
Plays: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for all."""
    with redis_server() as running:
        yield running


@asynccontextmanager
async def _connected(plays: Plays) -> AsyncIterator[ServerConnection]:
    """A connection to a server that does what `plays` does, and then closes it."""
    has_ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await plays(reader, writer)
        writer.close()
        has_ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield await Endpoint(read_url(f"redis://127.0.0.1:{port}/0"), PATIENCE).connect([])
        await has_ended.wait()


def _until() -> float:
    return asyncio.get_running_loop().time() + PATIENCE


def _descriptors() -> int:
    """How many this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("turns", range(6))
async def test_a_closer_that_is_cancelled_leaves_no_connection_behind(server: RedisServer, turns: int) -> None:
    """At whatever turn of the loop that is, once the lane has fallen."""
    connection = await Endpoint(read_url(server.url), 2.0).connect([])
    lane = Lane(connection, "it", AS_CONFIGURED)
    await asyncio.sleep(0)
    lane._fall("it hung")  # noqa: SLF001 -- as when a reply is late
    closing = asyncio.create_task(lane.close(asyncio.get_running_loop().time()))
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait((closing,))
    for _ in range(20):
        await asyncio.sleep(0)
    is_connected = connection.is_connected
    if is_connected:
        await connection.disconnect()

    assert not is_connected


async def test_a_server_that_reads_nothing_keeps_no_connection_open() -> None:
    """Not even when more was to be written than the sockets hold: a connection that is given up goes at once."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        endpoint = Endpoint(read_url(f"redis://127.0.0.1:{listening.getsockname()[1]}/0"), 0.2)
        before = _descriptors()
        with pytest.raises(TimeoutError):
            await endpoint.connect([b"x" * (16 << 20)])
        await asyncio.sleep(0.01)
        after = _descriptors()

    assert before == after


@pytest.mark.parametrize(
    ("sent", "heard"),
    [(b"nonsense\r\n", ["lost", "lost"]), (b"+PONG\r\n" * 3, [b"PONG", b"PONG"]), (b"+PONG\r\n+PO", [b"PONG", "lost"])],
    ids=["nonsense", "a reply that nobody asked for", "half of a reply"],
)
async def test_what_is_no_reply_ends_the_lane(sent: bytes, heard: list[object]) -> None:
    """Whoever has no reply by then is told that it is lost, and nobody gets what was not meant for them."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2 * len(PING))
        writer.write(sent)
        if not sent.endswith(b"PO"):
            await reader.read()

    async with _connected(play) as connection:
        lane = Lane(connection, "it", AS_CONFIGURED)
        replies = await asyncio.gather(*(lane.submit(PING, _until()) for _ in range(2)), return_exceptions=True)
        is_open = lane.open
        await lane.close(_until())

    assert heard == ["lost" if isinstance(reply, LostReplyError) else reply for reply in replies]
    assert not is_open


async def test_a_connection_that_ends_before_the_lane_has_it() -> None:
    """Its end was told to redis-py already: the lane knows of it all the same, and nobody waits for a deadline."""

    async def play(*_: object) -> None:
        pass

    async with _connected(play) as connection:
        reader = connection._reader  # noqa: SLF001 -- redis-py's, which sees the end
        assert reader is not None
        await asyncio.wait_for(reader.read(), PATIENCE)
        lane = Lane(connection, "it", AS_CONFIGURED)
        with pytest.raises(LostReplyError, match="ended"):
            await lane.submit(PING, _until())
        await lane.close(_until())

    assert not connection.is_connected


async def test_what_a_slow_server_does_not_take_yet_leaves_later() -> None:
    """More than the sockets hold is sent when there is room again, in order, and each caller has its own reply."""
    commands = [packed("ECHO", b"%d" % number, b"x" * (4 << 20)) for number in range(4)]
    reads = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        for command in commands:
            writer.write(b"+%b\r\n" % (await reader.readexactly(len(command))).split(b"\r\n")[4])
        await reader.readexactly(len(PING))  # the lane's own, before it closes
        writer.write(b"+PONG\r\n")

    async with _connected(play) as connection:
        lane = Lane(connection, "it", AS_CONFIGURED)
        asked = []
        for command in commands:
            asked.append(lane.submit(command, _until()))
            await asyncio.sleep(0.01)  # in a write of its own, where it is written
        reads.set()
        replies = await asyncio.gather(*asked)
        await lane.close(_until())

    assert [b"0", b"1", b"2", b"3"] == replies
