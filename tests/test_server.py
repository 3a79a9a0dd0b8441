"""The connection that both listeners use: what it answers on its own, and what it tells of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from idemproxy.core.problem import Problem
from idemproxy.server.connection import Server

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def serving(handler: Handler, noted: list[tuple[str, int, int]]) -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
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


async def faulty(_request: web.BaseRequest) -> web.StreamResponse:
    """Fail before anything is said."""
    raise LookupError("a fault for the test")


async def faulty_in_the_middle(request: web.BaseRequest) -> web.StreamResponse:
    """Fail when the answer has begun."""
    await request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
    raise LookupError("a fault for the test")


async def late(_request: web.BaseRequest) -> web.StreamResponse:
    """Fail as what takes too long does."""
    raise TimeoutError


@pytest.mark.parametrize(("handler", "fault"), [(faulty, LookupError), (late, TimeoutError)])
async def test_a_fault_is_noted_and_marked(caplog: pytest.LogCaptureFixture, handler: Handler, fault: type[Exception]) -> None:
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
