"""A reply, written once to the client's connection: what was stored is what is written, and the framing is ours."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from aiohttp import web

from idemproxy.core.policy import KIB
from idemproxy.proxy.outlet import Outlet
from idemproxy.proxy.reply import BrokenOffError

if TYPE_CHECKING:
    from dataclasses import dataclass

    from aiohttp.abc import AbstractStreamWriter

    from idemproxy.proxy.reply import Reply, Source
else:
    from idemproxy.core.value import dataclass

_BODILESS: Final = frozenset({204, 304})
_SMALL: Final = 32 * KIB
_NOTHING_LINGERS: Final = struct.pack("ii", 1, 0)
"""As SO_LINGER: what is closed is reset."""


class Written(web.StreamResponse):
    """Tells aiohttp's server that the reply is written already, and whether the connection may carry another request."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keeps = keep_alive

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._keeps

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002 - aiohttp's signature
        """Nothing is left to write."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How the end of a body is told (RFC 9112, section 6.3).

    `lines` are our field lines; `chunked` says that pieces are chunks, `bodiless` that there is no body at all.
    """

    lines: bytes
    chunked: bool
    keep_alive: bool
    bodiless: bool


def frame(http: web.BaseRequest, reply: Reply) -> Framing:
    """The framing of a reply to this request."""
    bodiless = reply.status in _BODILESS or http.method == "HEAD"
    is_http_1_0 = not http.version.minor
    chunked = reply.length is None and not bodiless and not is_http_1_0
    # An HTTP/1.0 client knows the end of a body of unknown length by the end of the connection.
    keep_alive = http.keep_alive and not reply.close and not (reply.length is None and not bodiless and is_http_1_0)
    lines = b""
    if chunked:
        lines = b"Transfer-Encoding: chunked\r\n"
    elif reply.length is not None and reply.status not in _BODILESS:
        lines = b"Content-Length: %d\r\n" % reply.length
    if not keep_alive:
        lines += b"Connection: close\r\n"
    elif is_http_1_0:
        lines += b"Connection: keep-alive\r\n"
    return Framing(lines, chunked, keep_alive, bodiless)


async def send(http: web.BaseRequest, reply: Reply, patience: float) -> tuple[bool, int]:
    """Write the reply; whether the connection may stay open, and how many bytes of body were written.

    Raises ConnectionError when the client has gone, or has taken nothing for `patience` seconds or too little for long (see
    Outlet), and BrokenOffError when the body was not whole; the connection is cut then.
    """
    framing = frame(http, reply)
    head = b"HTTP/1.1 %d %b%b\r\n" % (reply.status, reply.head, framing.lines)
    body = reply.body
    outlet = Outlet(http, patience)
    try:
        if isinstance(body, bytes):
            body = b"" if framing.bodiless else body
            await _give_whole(outlet, head, body)
            return framing.keep_alive, len(body)
        await outlet.give(head)
        return framing.keep_alive, await _pass_on(outlet, body, framing)
    except BrokenOffError:
        cut(http, reset=reply.length is None and not framing.chunked)
        raise
    except ConnectionAbortedError:
        cut(http, reset=True)
        raise
    finally:
        if not isinstance(body, bytes):
            body.leave()


async def _give_whole(outlet: Outlet, head: bytes, body: bytes) -> None:
    """Write a reply that is all here."""
    if len(body) < _SMALL:
        await outlet.give(head + body)  # in one packet, where it fits in one
    else:
        await outlet.give(head)
        await outlet.give(body)


async def _pass_on(outlet: Outlet, body: Source, framing: Framing) -> int:
    """Write a body as it arrives, at the pace of the slower side; how many bytes it had."""
    written = 0
    while piece := await body.take():
        if not framing.bodiless:
            written += len(piece)
            await outlet.give(b"%x\r\n%b\r\n" % (len(piece), piece) if framing.chunked else piece)
    if framing.chunked:
        await outlet.give(b"0\r\n\r\n")
    return written


def cut(http: web.BaseRequest, *, reset: bool) -> None:
    """End the connection, which is the only way to say that a body is not whole; where its end is the body's, with a reset."""
    if http.transport is None:
        return
    if reset:
        http.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOTHING_LINGERS)
    http.transport.abort()
