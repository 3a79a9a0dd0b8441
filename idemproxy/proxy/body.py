"""The client's body, taken as it comes, and the patience with which it is waited for."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

from aiohttp import web

from idemproxy.core.message import Request, field_values
from idemproxy.core.problem import Problem, Slug, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from idemproxy.server.incoming import Incoming

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class SlowError(Exception):
    """The client sent nothing for too long, or too little; the message says which."""


class TooLongError(Exception):
    """The body is longer than it may be."""


class Intake:
    """A body on its way in. Only the time in which a piece was waited for counts against the client, not that of its way on."""

    def __init__(self, http: Incoming, patience: float, clock: Callable[[], float] = monotonic) -> None:
        self._content = http.content
        self._patience = patience
        self._rate = http.connection.limits.min_rate
        self._clock = clock
        self._waited = 0.0
        self._size = 0

    async def take(self) -> bytes:
        """The next piece, b"" at the end. Raises SlowError, and RequestPayloadError when the body is broken.

        No silence may last for `patience` seconds; and all of them together may not last longer than that, and than what has
        come would take at the least rate.
        """
        if self._content.is_eof():
            return self._content.read_nowait()  # it was all here, as is usual: no need for a timer
        left = self._patience + self._size / self._rate - self._waited
        began = self._clock()
        try:
            async with asyncio.timeout(min(self._patience, left)):
                piece = await self._content.readany()
        except TimeoutError as exc:
            if left < self._patience:
                raise SlowError(f"The request body came at less than {self._rate} bytes/s") from exc
            raise SlowError(f"Nothing of the request body came for {self._patience:g} s") from exc
        if (fault := self._content.exception()) is not None:
            raise fault  # aiohttp, woken at the end of a chunk, takes a body that broke in that moment for one that ended
        self._waited += self._clock() - began
        self._size += len(piece)
        return piece


def body_at_hand(http: Incoming, request: Request, limit: int) -> bytes | None:
    """The body where all of it is here, as is usual; None where it has to be waited for. Raises TooLongError."""
    if not http.content.is_eof() or field_values(request.fields, b"expect"):
        return None
    body = http.content.read_nowait()
    if len(body) > limit:
        raise TooLongError
    return body


async def whole_body(http: Incoming, request: Request, limit: int, patience: float) -> bytes:
    """The body, of at most `limit` bytes. Raises TooLongError, as soon as that is known, SlowError and RequestPayloadError.

    `patience`: how many seconds may pass without any of it.
    """
    if (http.content_length or 0) > limit:
        raise TooLongError
    await answer_expectation(http, request)
    intake = Intake(http, patience)
    pieces = []
    size = 0
    while piece := await intake.take():
        size += len(piece)
        if size > limit:
            raise TooLongError
        pieces.append(piece)
    return b"".join(pieces)


def unread(fault: TooLongError | SlowError | web.RequestPayloadError, limit: int) -> Problem:
    """What a client is told whose body could not be read; nothing is stored by then."""
    match fault:
        case TooLongError():
            return problem(Slug.BODY_TOO_LARGE, f"The request body exceeds {limit} bytes, so nothing was sent.")
        case SlowError():
            return problem(Slug.BAD_REQUEST, f"{fault}, so nothing was sent.", status=408)
        case web.RequestPayloadError():
            return problem(Slug.BAD_REQUEST, "The request body is broken off or wrongly framed, so nothing was sent.")


async def answer_expectation(http: Incoming, request: Request) -> None:
    """Tell a client that waits for it to send its body (RFC 9110, section 10.1.1); the decision to take it has been made."""
    expected = [value.lower() for value in field_values(request.fields, b"expect")]
    if b"100-continue" in expected and http.version.minor:  # an HTTP/1.0 client would take it for the answer
        http.write(_CONTINUE)
