"""What goes back to the client: either whole, or a head with a body that is still arriving."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import field
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

import orjson

from idemproxy.core.replay import status_lines
from idemproxy.observe.observation import Outcome

if TYPE_CHECKING:
    from dataclasses import dataclass

    from idemproxy.core.problem import Problem, Slug
    from idemproxy.observe.observation import Result
else:
    from idemproxy.core.value import dataclass

_REASONS: Final = {
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    412: b"Precondition Failed",
    413: b"Content Too Large",
    422: b"Unprocessable Content",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}


class BrokenOffError(Exception):
    """A body that was being passed on has ended before it was whole."""


class Source(Protocol):
    """A body that is still arriving."""

    async def take(self) -> bytes:
        """The next piece; b"" at the end. Raises BrokenOffError, and ConnectionAbortedError when its client was given up."""

    def leave(self) -> None:
        """The client is gone: take no more."""


class Relay:
    """A body on its way from an attempt to a client, piece by piece, at the client's pace.

    The attempt `put`s, and the client's side `take`s. That has its own patience; but one that has let the attempt wait for ten
    times as long altogether has left, too: it must not hold up what has to be settled.
    """

    def __init__(self, patience: float) -> None:
        self._budget = 10 * patience
        self._pieces: deque[bytes] = deque()
        self._put = asyncio.Event()
        self._taken = asyncio.Event()
        self._left = False
        self._ended = False
        self._broken = False

    async def put(self, piece: bytes) -> None:
        """Hand over a piece and wait until it is taken, or nobody is there to take it."""
        if self._left:
            return
        self._pieces.append(piece)
        self._taken.clear()
        self._put.set()
        waiting_since = monotonic()
        try:
            async with asyncio.timeout(self._budget):
                await self._taken.wait()
        except TimeoutError:
            self.leave()
        self._budget -= monotonic() - waiting_since

    def end(self, *, broken: bool) -> None:
        """No more pieces; `broken` when the body is not whole."""
        self._ended = True
        self._broken = broken
        self._put.set()

    async def take(self) -> bytes:
        """The next piece; b"" at the end. Raises BrokenOffError, and ConnectionAbortedError when its client was given up."""
        while not self._pieces:
            if self._left:
                raise ConnectionAbortedError("the client takes too little for too long")
            if self._broken:
                raise BrokenOffError
            if self._ended:
                return b""
            self._put.clear()
            await self._put.wait()
        piece = self._pieces.popleft()
        self._taken.set()
        return piece

    def leave(self) -> None:
        """The client is gone; what still comes is for the store alone."""
        self._left = True
        self._pieces.clear()
        self._taken.set()
        self._put.set()


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What is told of one forwarding: what it proved, and how many seconds it took."""

    result: Result
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer for one client, with what is to be told about it.

    `head` is the reason phrase, CRLF, and all field lines but the framing. `length` is the length of the body, None where
    it is not known before its end. `close`: the connection to the client must end, since its request was not read whole.
    """

    status: int
    head: bytes
    outcome: Outcome
    body: bytes | Source = field(default=b"", repr=False)
    length: int | None = None
    slug: Slug | None = None
    fence: int | None = None
    unrecorded: bool = False
    forwarded: Forwarded | None = None
    close: bool = False


def refusal(
    problem: Problem,
    outcome: Outcome,
    *,
    key_hash: str | None = None,
    fence: int | None = None,
    unrecorded: bool = False,
    forwarded: Forwarded | None = None,
    close: bool = False,
) -> Reply:
    """A problem document as a reply."""
    is_of_operation = outcome is not Outcome.OWN
    head = b"".join(
        (
            _REASONS[problem.status],
            b"\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\n",
            b"" if problem.retry_after is None else b"Retry-After: %d\r\n" % problem.retry_after,
            b"Proxy-Status: %b\r\n" % problem.proxy_status(),
            status_lines(outcome.value, key_hash=key_hash, fence=fence, unrecorded=unrecorded) if is_of_operation else b"",
        )
    )
    body = orjson.dumps(problem.document(uuid4().urn))
    return Reply(problem.status, head, outcome, body, len(body), problem.slug, fence, unrecorded, forwarded, close)
