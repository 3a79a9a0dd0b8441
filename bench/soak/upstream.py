"""The upstream of the long runs: does what the path asks for, behind its first part. `python -m bench.soak.upstream PORT`.

/bytes/N      N bytes with their length, /chunks/N in chunks       /fault/reset    a reset in the place of an answer
/events/N     N events, 50 ms apart                                /fault/close    the connection is closed
/slow/N       the usual answer, after N ms                         /fault/cut      half of an answer, then it is closed
/tunnel       an echo after an upgrade, until its client says bye  /fault/garbage  no HTTP
anything else the usual answer, when the whole request is here     /fault/silent   nothing comes
                                                                   /fault/N        the status N
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from bench.loop import loop_factory
from bench.wire import ANSWER, ANSWER_BODY

PIECE: Final = bytes(64 * 1024)
_RESET: Final = struct.pack("ii", 1, 0)
_ON_ITS_WAY: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def reset(writer: StreamWriter) -> None:
    """End a connection with a RST."""
    with suppress(OSError):  # it may have been reset by the other side
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def body_of(head: bytes, reader: StreamReader) -> None:
    """Read the body that follows a head to its end, and forget it."""
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    if fields.get(b"transfer-encoding") == b"chunked":
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    left = int(fields.get(b"content-length", 0))
    while left:
        left -= len(await reader.readexactly(min(left, len(PIECE))))


async def _pieces(writer: StreamWriter, size: int, chunk: bytes = b"%b") -> None:
    for at in range(0, size, len(PIECE)):
        piece = PIECE[: size - at]
        writer.write(chunk % piece if chunk == b"%b" else chunk % (len(piece), piece))
        await writer.drain()


async def _bytes(_: StreamReader, writer: StreamWriter, size: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % size)
    await _pieces(writer, int(size))


async def _chunks(_: StreamReader, writer: StreamWriter, size: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await _pieces(writer, int(size), b"%x\r\n%b\r\n")
    writer.write(b"0\r\n\r\n")


async def _events(_: StreamReader, writer: StreamWriter, count: bytes) -> None:
    writer.write(_ON_ITS_WAY)
    for number in range(int(count)):
        event = b"data: event %d\n\n" % number
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(0.05)
    writer.write(b"0\r\n\r\n")


async def _slow(_: StreamReader, writer: StreamWriter, milliseconds: bytes) -> None:
    await asyncio.sleep(int(milliseconds) / 1000)
    writer.write(ANSWER)


async def _tunnel(reader: StreamReader, writer: StreamWriter, _: bytes) -> None:
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    while (piece := await reader.read(65_536)) and b"bye" not in piece:
        writer.write(piece)
        await writer.drain()
    writer.close()


async def _fault(reader: StreamReader, writer: StreamWriter, fault: bytes) -> None:
    match fault:
        case b"reset":
            reset(writer)
        case b"close":
            writer.close()
        case b"cut":
            writer.write(ANSWER[:-50])
            writer.close()
        case b"garbage":
            writer.write(b"this is no HTTP\r\n\r\n")
            writer.close()
        case b"silent":
            await reader.read(1)
            writer.close()
        case status:
            writer.write(b"HTTP/1.1 %b Status\r\nContent-Length: %d\r\n\r\n%b" % (status, len(ANSWER_BODY), ANSWER_BODY))


async def _usual(_: StreamReader, writer: StreamWriter, __: bytes) -> None:
    writer.write(ANSWER)


_DONE: Final[dict[bytes, Callable[[StreamReader, StreamWriter, bytes], Awaitable[None]]]] = {
    b"bytes": _bytes,
    b"chunks": _chunks,
    b"events": _events,
    b"slow": _slow,
    b"tunnel": _tunnel,
    b"fault": _fault,
}


async def serve(reader: StreamReader, writer: StreamWriter) -> None:
    """Serve one connection until either side ends it."""
    with suppress(IncompleteReadError, OSError):
        while not writer.is_closing():
            head = await reader.readuntil(b"\r\n\r\n")
            await body_of(head, reader)
            _, _, kind, what, *_ = [*head.split(b" ", 2)[1].split(b"/"), b"", b""]
            await _DONE.get(kind, _usual)(reader, writer, what)
    writer.close()


async def _listen(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_listen(int(sys.argv[1])))
