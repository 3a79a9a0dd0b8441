"""A reply, written once to the client's connection: what was stored is what is written, and the framing is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from idemproxy.proxy.reply import BrokenOffError

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from idemproxy.proxy.reply import Reply

_BODILESS: Final = frozenset({204, 304})


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


async def send(http: web.BaseRequest, reply: Reply) -> tuple[bool, int]:
    """Write the reply; whether the connection may stay open, and how many bytes of body were written.

    Raises ConnectionError when the client has gone, and BrokenOffError, with the connection cut, when the body was not whole.
    """
    bodiless = reply.status in _BODILESS or http.method == "HEAD"
    keep_alive = http.keep_alive and not reply.close
    framing = b""
    chunked = False
    if reply.length is not None:
        framing = b"" if reply.status in _BODILESS else b"Content-Length: %d\r\n" % reply.length
    elif not bodiless and http.version.minor:
        framing = b"Transfer-Encoding: chunked\r\n"
        chunked = True
    elif not bodiless:
        keep_alive = False  # an HTTP/1.0 client knows the end of this body by the end of the connection
    if not keep_alive:
        framing += b"Connection: close\r\n"
    elif not http.version.minor:
        framing += b"Connection: keep-alive\r\n"
    head = b"HTTP/1.1 %d %b%b\r\n" % (reply.status, reply.head, framing)
    body = reply.body
    if isinstance(body, bytes):
        if bodiless:
            body = b""
        await http.writer.write(head + body)
        return keep_alive, len(body)
    written = 0
    try:
        await http.writer.write(head)
        while piece := await body.take():
            if not bodiless:
                written += len(piece)
                await _write_through(http, b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            await http.writer.write(b"0\r\n\r\n")
    except BrokenOffError:
        if http.transport is not None:
            http.transport.abort()  # the only way to say that this body is not whole
        raise
    finally:
        body.leave()
    return keep_alive, written


async def _write_through(http: web.BaseRequest, data: bytes) -> None:
    """Write, and wait until the client takes it: the pace of the slower side is the pace of both."""
    await http.writer.write(data)
    await http.writer.drain()
