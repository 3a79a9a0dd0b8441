"""A reply on its way out: how long a client is waited for that takes it slowly, and what of it is in memory meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp.base_protocol import BaseProtocol

from idemproxy.proxy.outlet import Outlet
from idemproxy.server.framing import ClientLimits

PATIENCE = 0.02
LOOK = PATIENCE / 8
"""How much time passes at each look, on the outlet's clock."""
RATE = 1000
LEAST = 100_000


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    """A socket in which nothing waits: what the transport does not hold has been taken."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


class _Transport(asyncio.Transport):
    """Of a client that takes what it is told to, and of which more than LEAST bytes are more than the buffer should hold."""

    def __init__(self, protocol: BaseProtocol, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self._protocol = protocol
        self.held = self.most = 0

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.held

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.held += len(data)
        self.most = max(self.most, self.held)
        if self.held > LEAST and not self._protocol.writing_paused:
            self._protocol.pause_writing()

    def take(self, count: int) -> None:
        self.held -= min(count, self.held)
        if not self.held and self._protocol.writing_paused:
            self._protocol.resume_writing()


class _Connection(BaseProtocol):
    """With the limits of a connection to a client."""

    limits = ClientLimits(min_rate=RATE)

    async def drain(self) -> None:
        if self.writing_paused:
            await self._drain_helper()


class _Http:
    """As much of a request as an outlet sees."""

    def __init__(self, sock: socket.socket) -> None:
        self.connection = _Connection(asyncio.get_running_loop())
        self.transport = self.connection.transport = _Transport(self.connection, sock)
        self.write = self.transport.write


async def _given(http: Any, size: int, every: int, count: int) -> tuple[str, float]:  # noqa: ANN401 - stands for a request
    """Give so many bytes to a client that takes `count` of them at every so many looks; how it ended, and how long it took."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if not looks % every:
            http.transport.take(count)
        return looks * LOOK

    try:
        await Outlet(http, PATIENCE, clock).give(bytes(size))
    except ConnectionAbortedError as exc:
        return str(exc), looks * LOOK
    return "whole", looks * LOOK


async def test_a_steady_reader_may_take_its_time(sock: socket.socket) -> None:
    """Above the least rate there is no limit on the whole: this one takes many times the patience that silence has."""
    how, seconds = await _given(_Http(sock), 400_000, 4, 5_000)

    assert "whole" == how
    assert seconds > 20 * PATIENCE


async def test_silence_ends_it(sock: socket.socket) -> None:
    """A client that takes nothing for as long as the patience is has stopped reading."""
    how, seconds = await _given(_Http(sock), 1_000_000, 1, 0)

    assert "the client has stopped reading" == how
    assert PATIENCE <= seconds <= 2 * PATIENCE


async def test_a_reader_below_the_least_rate_is_given_up(sock: socket.socket) -> None:
    """At half of the least rate, a client has until it has been waited for twice as long as the patience is."""
    how, seconds = await _given(_Http(sock), 1_000_000, 4, round(RATE * 4 * LOOK / 2))

    assert "the client reads too little for too long" == how
    assert 1.5 * PATIENCE <= seconds <= 2.5 * PATIENCE


async def test_no_more_is_in_memory_twice_than_the_buffer_should_hold(sock: socket.socket) -> None:
    """A large body goes out in pieces: beyond what its transport is ready to hold there is one of them at most."""
    http = _Http(sock)
    await _given(http, 1_000_000, 1, 1_000_000)

    assert LEAST < http.transport.most <= LEAST + 64 * 1024


async def test_small_replies_wait_too_when_there_are_many(sock: socket.socket) -> None:
    """Each is small, and yet the client is waited for when their sum is not."""
    http: Any = _Http(sock)
    patience = 60.0
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(100):
            await Outlet(http, patience).give(bytes(10_000))
            written += 1

    writing = asyncio.create_task(write())
    for _ in range(300):
        await asyncio.sleep(0)
    before = written
    while not writing.done():
        http.transport.take(LEAST * 2)
        await asyncio.sleep(0)

    assert (LEAST // 10_000, 100) == (before, written)
    assert http.transport.most <= LEAST + 10_000
