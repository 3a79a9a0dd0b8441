"""An upstream's connection that has ended."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest

from idemproxy.core.message import Request
from idemproxy.core.policy import Upstream
from idemproxy.proxy.answer_reader import AnswerReader
from idemproxy.proxy.pool import Pool
from idemproxy.proxy.receiving import UnsureError
from idemproxy.proxy.upstream import start_on


@pytest.mark.parametrize("length", [b"100000", b"50000"], ids=["broken off", "whole"])
async def test_an_upstream_that_hangs_up_leaves_nothing(length: bytes) -> None:
    """What it answered is freed with its connection, and does not wait for a search for cycles, which is rare."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n%b" % (length, bytes(50_000)))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    upstream = Upstream("api", "http", "127.0.0.1", server.sockets[0].getsockname()[1])
    pool = Pool(upstream, asyncio.get_running_loop())
    gc.collect()
    gc.disable()
    try:
        connection = await start_on(pool, Request("GET", b"/", ()), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(UnsureError):
            await connection.read_whole(1_000_000)
        pool.give_back(connection)
        pool.close()
        del connection
        async with asyncio.timeout(5):
            while any(type(each) is AnswerReader for each in gc.get_objects()):  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
        server.close()
