"""A reply, written once to the client's connection: what was stored is what is written, and the framing is ours."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from idemproxy.core.policy import KIB
from idemproxy.proxy.outlet import PIECE, Outlet
from idemproxy.proxy.reply import BrokenOffError

if TYPE_CHECKING:
    from typing import Protocol

    from idemproxy.proxy.reply import Reply, Source
    from idemproxy.server.incoming import Incoming

    class Counted(Protocol):
        """Whoever is told how many bytes of a body have been written so far; it stays right when the rest is never written."""

        written: int


_BODILESS: Final = frozenset({204, 304})
_SMALL: Final = 32 * KIB
_NOTHING_LINGERS: Final = struct.pack("ii", 1, 0)
"""As SO_LINGER: what is closed is reset."""


async def send(http: Incoming, reply: Reply, patience: float, visit: Counted) -> bool:
    """Write the reply, and count the bytes of its body; whether the connection may stay open.

    Raises ConnectionError when the client has gone, or has taken nothing for `patience` seconds or too little for long (see
    Outlet), and BrokenOffError when the body was not whole; the connection is cut then.
    """
    body, length = reply.body, reply.length
    bodiless = reply.status in _BODILESS or http.method == "HEAD"
    lines, chunked, keep_alive = _framing(http, reply, bodiless=bodiless)
    head = b"HTTP/1.1 %d %b%b\r\n" % (reply.status, reply.head, lines)
    try:
        if isinstance(body, bytes):
            body = b"" if bodiless else body
            if len(body) < _SMALL:
                http.write(head + body)  # in one packet, where it fits in one
                if http.connection.writing_paused:
                    await Outlet(http, patience).wait()
                visit.written = len(body)
            else:
                await _give_large(Outlet(http, patience), head, body, visit)
        else:
            await _pass_on(Outlet(http, patience), head, body, visit, chunked=chunked, bodiless=bodiless)
    except BrokenOffError:
        cut(http, reset=length is None and not chunked)
        raise
    except ConnectionAbortedError:
        cut(http, reset=True)
        raise
    finally:
        if not isinstance(body, bytes):
            body.leave()
    return keep_alive


def _framing(http: Incoming, reply: Reply, *, bodiless: bool) -> tuple[bytes, bool, bool]:
    """How the end of a body is told (RFC 9112, section 6.3): our field lines, whether in chunks, whether the connection stays."""
    length = reply.length
    keep_alive = http.keep_alive and not reply.close
    if http.version.minor:
        chunked = length is None and not bodiless
        lines = b"" if keep_alive else b"Connection: close\r\n"
    else:
        chunked = False
        # An HTTP/1.0 client knows the end of a body of unknown length by the end of the connection.
        keep_alive = keep_alive and (length is not None or bodiless)
        lines = b"Connection: keep-alive\r\n" if keep_alive else b"Connection: close\r\n"
    if chunked:
        return b"Transfer-Encoding: chunked\r\n" + lines, chunked, keep_alive
    if length is not None and reply.status not in _BODILESS:
        return b"Content-Length: %d\r\n%b" % (length, lines), chunked, keep_alive
    return lines, chunked, keep_alive


async def _give_large(outlet: Outlet, head: bytes, body: bytes, visit: Counted) -> None:
    """Write a reply that is all here, but may not be taken whole."""
    await outlet.give(head)
    for at in range(0, len(body), PIECE):
        await outlet.give(piece := body[at : at + PIECE])
        visit.written += len(piece)


async def _pass_on(outlet: Outlet, head: bytes, body: Source, visit: Counted, *, chunked: bool, bodiless: bool) -> None:
    """Write a body as it arrives, at the pace of the slower side."""
    await outlet.give(head)
    while piece := await body.take():
        if not bodiless:
            await outlet.give(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            visit.written += len(piece)
    if chunked:
        await outlet.give(b"0\r\n\r\n")


def cut(http: Incoming, *, reset: bool) -> None:
    """End the connection, which is the only way to say that a body is not whole; where its end is the body's, with a reset."""
    transport = http.connection.transport
    if transport is None:
        return
    if reset:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOTHING_LINGERS)
    transport.abort()
