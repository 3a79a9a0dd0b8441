"""The connection that both listeners use: what it answers on its own, and what it tells of that."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from idemproxy.core.problem import Problem
from idemproxy.server.connection import Server, ServerConnection, Serving, unmarked
from idemproxy.server.incoming import Incoming

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def serving(handler: Serving, noted: list[tuple[str, int, int]]) -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """What is said to some bytes on a connection of their own, up to its end; `noted` gets slug, status and length."""

    def note(found: Problem, length: int) -> bytes:
        noted.append((found.slug.value, found.status, length))
        return b"X-Noted: yes\r\n"

    server = Server(handler, note, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)

    async def say(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(data)
        told = await reader.read()
        writer.close()
        return told

    yield say
    listening.close()
    await server.shutdown()


async def faulty(_http: Incoming) -> bool:
    """Fail before anything is said."""
    raise LookupError("a fault for the test")


async def faulty_in_the_middle(http: Incoming) -> bool:
    """Fail when the answer has begun."""
    http.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
    raise LookupError("a fault for the test")


async def late(_http: Incoming) -> bool:
    """Fail as what takes too long does."""
    raise TimeoutError


@pytest.mark.parametrize(("handler", "fault"), [(faulty, LookupError), (late, TimeoutError)])
async def test_a_fault_is_noted_and_marked(caplog: pytest.LogCaptureFixture, handler: Serving, fault: type[Exception]) -> None:
    """A fault is one problem document, whose lines the listener adds to, one note of it, and one traceback in the log."""
    noted: list[tuple[str, int, int]] = []
    async with serving(handler, noted) as say:
        told = await say(GET)

    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"\r\nX-Noted: yes\r\nContent-Length: %d\r\nConnection: close" % len(body) in head
    assert [("outcome-unknown", 500, len(body))] == noted
    assert [("a fault of this proxy", fault)] == [
        (record.message, record.exc_info and record.exc_info[0]) for record in caplog.records
    ]


async def test_what_cannot_be_read_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    """A bad line is one note, and is not logged."""
    noted: list[tuple[str, int, int]] = []
    async with serving(faulty, noted) as say:
        told = await say(b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n")

    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nX-Noted: yes\r\n" in head
    assert [("bad-request", 400, len(body))] == noted
    assert [] == caplog.messages


async def test_an_answer_that_has_begun_is_not_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    """A fault within an answer breaks it off: what came is not mended, and nothing is put behind it."""
    noted: list[tuple[str, int, int]] = []
    async with serving(faulty_in_the_middle, noted) as say:
        told = await say(GET)

    assert b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe" == told
    assert [] == noted
    assert ["a fault of this proxy"] == caplog.messages


@asynccontextmanager
async def connected(handler: Serving) -> AsyncIterator[tuple[Server, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A server and a connection to it."""
    server = Server(handler, unmarked, handler_cancellation=True, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    yield server, reader, writer
    writer.close()
    listening.close()
    await server.shutdown()


async def test_a_client_is_stopped_while_what_it_sends_cannot_be_read() -> None:
    """Behind what may become a tunnel nothing is read, nor taken without end; when it becomes none, all is served in turn."""
    behind = 8000
    served = 0
    decided = asyncio.Event()

    async def count(http: Incoming) -> bool:
        nonlocal served
        await decided.wait()
        http.write(b"%d\n" % served)
        served += 1
        return True

    async with connected(count) as (server, reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + behind * GET)
        while not any(one.transport and not one.transport.is_reading() for one in server.connections):  # noqa: ASYNC110
            await asyncio.sleep(0)
        decided.set()

        assert [b"%d\n" % number for number in range(behind + 1)] == [await reader.readline() for _ in range(behind + 1)]


async def test_what_nobody_asked_for_of_a_body_is_passed_over() -> None:
    """A body that was not read is no part of the next request."""

    async def answer(http: Incoming) -> bool:
        http.write(http.method.encode())
        return True

    async with connected(answer) as (_, reader, writer):
        writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 600000\r\n\r\n")
        put = await reader.readexactly(3)
        writer.write(bytes(600_000) + GET)

        assert [b"PUT", b"GET"] == [put, await reader.readexactly(3)]


async def test_what_is_behind_an_upgrade_goes_into_its_tunnel() -> None:
    """Also where another request is in front of it in the same packet: none of the other protocol's bytes is taken for HTTP."""
    early: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(http: Incoming) -> bool:
        await asyncio.sleep(0)
        if http.raw_path == "/":
            http.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return True
        early.set_result(await http.connection.divert().readany())
        return False

    async with connected(serve) as (_, _, writer):
        writer.write(GET + b"GET /tunnel HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly")
        async with asyncio.timeout(5):
            assert b"early" == await early


async def test_a_client_that_does_not_wait_does_not_keep_others_waiting() -> None:
    """What is answered in here waits for nothing; but after each of it everybody else has a turn."""
    requests, since, most = 2_000, 0, 0
    loop = asyncio.get_running_loop()
    all_served = loop.create_future()

    async def refuse(http: Incoming) -> bool:
        nonlocal requests, since, most
        requests, since = requests - 1, since + 1
        most = max(most, since)
        http.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        if not requests:
            all_served.set_result(None)
        return True

    def turn() -> None:
        nonlocal since
        since = 0
        if not all_served.done():
            loop.call_soon(turn)

    async with connected(refuse) as (_, _, writer):
        turn()
        writer.write(requests * GET)
        await all_served

    assert most <= 2


@pytest.mark.parametrize(
    "sent",
    [
        GET[:-2] + b"X: " + bytes(30_000).replace(b"\0", b"a"),
        GET + b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" + bytes(400_000),
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" + bytes(300_000),
    ],
    ids=["part of a head", "a request that waits", "part of a body"],
)
async def test_a_client_that_has_left_leaves_nothing(sent: bytes) -> None:
    """What it sent, perhaps megabytes, is freed with its connection, and does not wait for a search for cycles, which is rare."""

    async def serve(_http: Incoming) -> bool:
        await asyncio.get_running_loop().create_future()
        return False

    async with connected(serve) as (_, _, writer):
        writer.write(sent)
        await writer.drain()
        while not (here := _connections()):  # noqa: ASYNC110 - what is looked for is told by nothing else
            await asyncio.sleep(0)
        gc.collect()
        gc.disable()
        try:
            writer.transport.abort()
            async with asyncio.timeout(5):
                while any(one() is not None for one in here):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0)
        finally:
            gc.enable()


def _connections() -> list[weakref.ref[object]]:
    """All connections of clients."""
    return [weakref.ref(each) for each in gc.get_objects() if type(each) is ServerConnection]


async def test_a_body_that_breaks_leaves_nothing() -> None:
    """What was read of it is freed with its connection: the fault of which its reader was told does not keep that."""
    is_read = asyncio.Event()

    async def serve(http: Incoming) -> bool:
        pieces = []
        while True:
            pieces.append(await http.content.readany())
            is_read.set()

    async with connected(serve) as (_, reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n")
        await is_read.wait()
        here = _connections()
        gc.collect()
        gc.disable()
        try:
            writer.write(b"broken\r\n")
            told = await reader.readline()
            writer.transport.abort()
            async with asyncio.timeout(5):
                while any(one() is not None for one in here):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0)
        finally:
            gc.enable()

    assert b"HTTP/1.1 400 Bad Request\r\n" == told
