"""aiohttp's low-level server, but for a request that it cannot read: a problem document, no log, nobody who waits for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http import RawRequestMessage

from idemproxy.core.problem import Slug, problem
from idemproxy.observe.observation import Outcome
from idemproxy.proxy.outbound import Written, send
from idemproxy.proxy.reply import refusal

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter


class Server(web.Server):
    """Makes a protocol for each connection."""

    def __call__(self) -> web.RequestHandler:
        """As web.Server, with our protocol."""
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Protocol(web.RequestHandler):
    _body: StreamReader | None = None
    """Of the request that arrived last; perhaps not all of it is here."""

    def data_received(self, data: bytes) -> None:
        """Parse what came; a body that turns out to be unreadable ends there.

        aiohttp's fast parser tells the connection, but not whoever is reading that body: they would wait for ever.
        """
        super().data_received(data)
        if not self._messages:
            return
        message, body = self._messages[-1]
        if isinstance(message, RawRequestMessage):
            self._body = body
        elif self._body is not None and not self._body.is_eof():
            self._body.set_exception(web.RequestPayloadError("the body is wrongly framed"))
            self._body.feed_eof()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The response to what cannot be read, or to what went wrong in here; the connection ends with it.

        aiohttp would log the line that it could not read and send it back: it may be the one with the key, or with credentials.
        """
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        return _Unreadable()


class _Unreadable(Written):
    def __init__(self) -> None:
        super().__init__(keep_alive=False)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the refusal."""
        detail = "The request is not valid HTTP/1.1, or a line of it is too long, so nothing was sent."
        await send(request, refusal(problem(Slug.BAD_REQUEST, detail), Outcome.REFUSED, close=True), 10.0)
        return None
