"""What a connection answers by itself: a problem document, whole, and the end of the connection."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeAlias
from uuid import uuid4

import orjson

from idemproxy.core.problem import Problem

Note: TypeAlias = Callable[[Problem, int], bytes]
"""Is told of each problem document that is written here, with the length of its body; gives field lines of its own to add."""

_ALLOW: Final = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""Not all methods that go through, but those that RFC 9110 and RFC 5789 have, less the one that was refused, and TRACE."""


def refusal(found: Problem, note: Note, *, to_head: bool) -> bytes:
    """The whole answer. aiohttp would speak HTTP/1.0 to what it could not read, and name itself and its version."""
    body = orjson.dumps(found.document(uuid4().urn))
    written = b"" if to_head else body
    lines = (
        b"HTTP/1.1 %d %b" % (found.status, HTTPStatus(found.status).phrase.encode("ascii")),
        b"Content-Type: application/problem+json",
        b"Cache-Control: no-store",
        *([_ALLOW] if found.status == HTTPStatus.METHOD_NOT_ALLOWED else []),
        b"Proxy-Status: %b" % found.proxy_status(),
        b"%bContent-Length: %d" % (note(found, len(written)), len(body)),
        b"Connection: close\r\n\r\n",
    )
    return b"\r\n".join(lines) + written
