"""A lane lets its connection go, whatever becomes of those who wait for that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.store.redis_durability import AS_CONFIGURED
from idemproxy.store.redis_endpoint import Endpoint
from idemproxy.store.redis_lane import Lane
from idemproxy.store.redis_url import read_url
from tests.servers import RedisServer, redis_server


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for all."""
    with redis_server() as running:
        yield running


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
