"""One attempt at an upstream: the request as it goes out, exactly once, and what comes of it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from idemproxy.core.forward import request_head, whole_body_framing
from idemproxy.core.message import Answer, field_values
from idemproxy.core.outcome import Answered, AttemptResult, NeverSent, Unsure
from idemproxy.core.policy import KIB
from idemproxy.core.replay import passed_on
from idemproxy.proxy.pool import NotSentError
from idemproxy.proxy.receiving import UnsureError
from idemproxy.proxy.reply import Relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

    from idemproxy.core.message import Request
    from idemproxy.core.policy import Route
    from idemproxy.proxy.answer_reader import AnswerHead
    from idemproxy.proxy.connection import Connection
    from idemproxy.proxy.lease import Lease
    from idemproxy.proxy.pool import Pool
else:
    from idemproxy.core.value import dataclass

PIECE: Final = 64 * KIB
"""How much of a request is given to the operating system at a time: what is given cannot be taken back."""

_EVENTS: Final = re.compile(rb"text/event-stream", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Attempted:
    """What one attempt came to.

    `answer` is there when the result is `answered`, and `head` is its head as it is passed on (core.replay). `relay` is there
    when the answer was passed on as it came: it waits for its end, and the answer's body is then what was read until it was
    longer than can be kept.
    """

    result: AttemptResult
    answer: Answer | None = None
    head: bytes = b""
    relay: Relay | None = None


async def attempt(
    pool: Pool,
    request: Request,
    key: str,
    route: Route,
    lease: Lease,
    begin_relay: Callable[[AnswerHead, Relay], None],
) -> Attempted:
    """Write the request once, if the lease lives when the first byte is due, and take the answer.

    An answer that streams, or is longer than can be stored, is given to `begin_relay` and read to its end, whoever listens. Never
    raises for what an upstream or a network can do.
    """
    relay: Relay | None = None
    first, rest = request_head(request, route, pool.upstream, whole_body_framing(request), key) + request.body[:PIECE], None
    if len(request.body) > PIECE:
        rest = memoryview(request.body)[PIECE:]
    try:
        connection = await start_on(pool, request, first, lease)
    except NotSentError as exc:
        return Attempted(exc.outcome)
    sending = None if rest is None else asyncio.create_task(_send_rest(connection, rest, lease))
    try:
        head = await connection.head()
        limit = route.policy.max_stored_body
        body = None if _streams(head, limit) else await connection.read_whole(limit)
        if body is None:
            relay = Relay(pool.upstream.timeouts.idle)
            begin_relay(head, relay)
            body = await _relay(connection, relay, limit)
    except UnsureError as exc:
        return Attempted(exc.outcome, relay=relay)
    finally:
        if sending is not None and not sending.done():
            sending.cancel()
            connection.abort()  # kept, it would give the next request to the upstream as the rest of this body
        pool.give_back(connection)
    answer = Answer(head.status, head.reason, head.fields, body)
    return Attempted(judged(head), answer, passed_on(head.reason, head.fields), relay)


def judged(head: AnswerHead) -> Answered:
    """What an answer with this head proves, once it is whole."""
    return Answered(head.status, has_retry_after=b"retry-after" in head.fields.shape.places)


async def _send_rest(connection: Connection, rest: memoryview, lease: Lease) -> None:
    """Write the rest of a large body as the upstream takes it, for as long as the lease lives.

    A process that was stopped in the middle, and wakes when another may have taken its place, must not complete a request: what
    is cut short is not carried out.
    """
    for at in range(0, len(rest), PIECE):
        await connection.drain()
        if lease.is_over():
            connection.fail(Unsure("the claim's lease was over before the whole of the request was sent", "proxy_internal_error"))
            return
        connection.write(bytes(rest[at : at + PIECE]))


async def start_on(pool: Pool, request: Request, data: bytes, lease: Lease | None = None) -> Connection:
    """Take a connection and write the first bytes of a request, if the lease lives when they are due. Raises NotSentError.

    A kept connection may turn out to be dead at the very write. Then no byte has left, and the request goes out on another one:
    that is still its first and only time. Between the look at the lease and the first byte nothing else can run.
    """
    while True:
        connection = pool.take_idle() or await pool.acquire()
        connection.begin(request)
        if lease is not None and lease.is_over():
            pool.give_back(connection)
            raise NotSentError(NeverSent("the claim's lease was over before the first byte was due", "proxy_internal_error", 503))
        try:
            connection.write_first(data)
        except BrokenPipeError as exc:
            fresh = connection.fresh
            pool.give_back(connection)
            if fresh:
                raise NotSentError(NeverSent(str(exc), "connection_terminated", 502)) from exc
        else:
            return connection


async def _relay(connection: Connection, relay: Relay, limit: int) -> bytes:
    """Pass the body on piece by piece; what was read of it, up to the piece that made it longer than `limit`."""
    connection.relay()
    kept = bytearray()
    while piece := await connection.read():
        if len(kept) <= limit:
            kept += piece
        await relay.put(piece)
    return bytes(kept)


def _streams(head: AnswerHead, limit: int) -> bool:
    """Whether an answer is to be passed on as it comes: an event stream, or one that is too long to be stored."""
    return (head.length or 0) > limit or any(map(_EVENTS.match, field_values(head.fields, b"content-type")))
