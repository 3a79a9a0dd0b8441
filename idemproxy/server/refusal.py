"""What a connection answers by itself: a problem document, whole, and the end of the connection."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

import orjson
from aiohttp import web

from idemproxy.core.problem import Problem

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

Note: TypeAlias = Callable[[Problem, int], bytes]
"""Is told of each problem document that is written here, with the length of its body; gives field lines of its own to add."""

_ALLOW: Final = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""Not all methods that go through, but those that RFC 9110 and RFC 5789 have, less the one that was refused, and TRACE."""


class Refusal(web.StreamResponse):
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
            *([_ALLOW] if self._found.status == HTTPStatus.METHOD_NOT_ALLOWED else []),
            b"Proxy-Status: %b" % self._found.proxy_status(),
            b"%bContent-Length: %d" % (self._note(self._found, len(written)), len(body)),
            b"Connection: close\r\n\r\n",
        )
        await request.writer.write(b"\r\n".join(lines) + written)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""
