"""What both listeners hand to the event loop: aiohttp's connection, but for what it cannot read and for what goes wrong in here.

aiohttp would log the line that it could not read, which may be the one with the key or with credentials, and echo it.
Here either is answered with a problem document and the end of the connection, and only faults of ours are logged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

import orjson
from aiohttp import web
from aiohttp.http import HttpProcessingError, RawRequestMessage

from idemproxy.core.problem import Problem, Slug, problem

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter

_log = logging.getLogger("idemproxy")

Note: TypeAlias = Callable[[Problem, int], bytes]
"""Is told of each problem document that is written here, with the length of its body; gives field lines of its own to add."""

_CLIENTS_FAULTS: Final = (HttpProcessingError, web.RequestPayloadError)

_UNREADABLE: Final = problem(
    Slug.BAD_REQUEST, "The request is not valid HTTP/1.1, or a line of it is too long, so nothing was done with it."
)
_BODY_UNREADABLE: Final = problem(
    Slug.BAD_REQUEST, "The request body is broken off or wrongly framed, so nothing was done with it."
)
_UNEXPECTED: Final = problem(
    Slug.BAD_REQUEST, "The field Expect knows 100-continue alone: send the request without it.", status=417
)
_FAULT: Final = problem(
    Slug.OUTCOME_UNKNOWN,
    "This proxy failed while it served the request: find out whether it was carried out before you send it again.",
    status=500,
    error="proxy_internal_error",
)


def unmarked(_problem: Problem, _length: int) -> bytes:
    """Nothing is noted, and nothing added."""
    return b""


class Server(web.Server):
    """Makes such a connection for each client."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any], note: Note, **options: Any) -> None:  # noqa: ANN401 - aiohttp's
        super().__init__(handler, **options)
        self._note = note

    def __call__(self) -> ServerConnection:
        """As web.Server, with our protocol."""
        return ServerConnection(self, self._note, loop=self._loop, **self._kwargs)


class ServerConnection(web.RequestHandler):
    """The protocol of one connection; `options` are those of web.RequestHandler."""

    _body: StreamReader | None = None
    """Of the request that arrived last; perhaps not all of it is here."""

    def __init__(self, manager: web.Server, note: Note = unmarked, **options: Any) -> None:  # noqa: ANN401 - aiohttp's
        super().__init__(manager, **options)
        self._note = note

    def data_received(self, data: bytes) -> None:
        """Parse what came; a body that turns out to be unreadable ends there.

        aiohttp's fast parser tells the connection, but not whoever is reading that body: they would wait for ever.
        """
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001 - the parser's own, for some absolute targets; the event loop would log it, and not answer
            super().data_received(b"")  # the parser stays broken, and now says so as aiohttp expects
        if not self._messages:
            return
        message, body = self._messages[-1]
        if isinstance(message, RawRequestMessage):
            self._body = body
        elif self._body is not None and not self._body.is_eof():
            self._body.set_exception(web.RequestPayloadError("the body is wrongly framed"))
            self._body.feed_eof()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - holds what could not be read
    ) -> web.StreamResponse:
        """The response to what cannot be read, or to what went wrong in here; the connection ends with it."""
        exc = exc or sys.exception()
        has_left = self.transport is None and isinstance(exc, OSError)
        if status < 500:
            found = _UNREADABLE
        elif isinstance(exc, web.RequestPayloadError):
            found = _BODY_UNREADABLE
        else:
            found = _FAULT
            if not has_left:
                _log.error("a fault of this proxy", exc_info=exc)
        if has_left or request.writer.output_size:
            raise ConnectionResetError("nobody is there to answer, or the answer has begun already")
        return _Refusal(found, self._note)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a response. The one of its own in which aiohttp echoes a field is replaced."""
        if isinstance(resp, web.HTTPExpectationFailed):
            resp = _Refusal(_UNEXPECTED, self._note)
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - aiohttp's signature
        """Log what aiohttp has to say of a fault; a body that breaks when nobody reads it any more is none."""
        if not isinstance(options.get("exc_info"), _CLIENTS_FAULTS):
            super().log_exception(*args, **options)


class _Refusal(web.StreamResponse):
    """A problem document, whole, and the end of the connection.

    aiohttp would speak HTTP/1.0 to what it could not read, and name itself and its version.
    """

    def __init__(self, found: Problem, note: Note) -> None:
        super().__init__()
        self._found = found
        self._note = note

    @property
    def keep_alive(self) -> bool:
        """No request follows on this connection."""
        return False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write it."""
        body = orjson.dumps(self._found.document(uuid4().urn))
        written = b"" if request.method == "HEAD" else body
        lines = (
            b"HTTP/1.1 %d %b" % (self._found.status, HTTPStatus(self._found.status).phrase.encode("ascii")),
            b"Content-Type: application/problem+json",
            b"Cache-Control: no-store",
            b"Proxy-Status: %b" % self._found.proxy_status(),
            b"%bContent-Length: %d" % (self._note(self._found, len(written)), len(body)),
            b"Connection: close\r\n\r\n",
        )
        await request.writer.write(b"\r\n".join(lines) + written)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""
