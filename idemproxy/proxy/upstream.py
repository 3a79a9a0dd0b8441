"""One attempt at an upstream: the request as it goes out, exactly once, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from idemproxy.core.hop import FRAMING, dropped_names, end_to_end
from idemproxy.core.message import Answer, field_values
from idemproxy.core.outcome import Answered, AttemptResult, NeverSent
from idemproxy.core.policy import ForwardKey
from idemproxy.proxy.answer_reader import AnswerHead
from idemproxy.proxy.connection import UnsureError
from idemproxy.proxy.pool import NotSentError
from idemproxy.proxy.reply import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from idemproxy.core.message import Request
    from idemproxy.core.policy import Route, Upstream
    from idemproxy.proxy.connection import Connection
    from idemproxy.proxy.lease import Lease
    from idemproxy.proxy.pool import Pool


@dataclass(frozen=True, slots=True)
class Attempted:
    """What one attempt came to.

    `answer` is there when the result is `answered`. `relay` is there when the answer was passed on as it came: it waits for its
    end, and the answer's body is then what was read until it was longer than can be kept.
    """

    result: AttemptResult
    answer: Answer | None = None
    relay: Relay | None = None


async def attempt(
    pool: Pool,
    request: Request,
    route: Route,
    lease: Lease,
    begin_relay: Callable[[AnswerHead, Relay], None],
) -> Attempted:
    """Write the request once, if the lease lives when the first byte is due, and take the answer.

    An answer that streams, or is longer than can be stored, is given to `begin_relay` and read to its end, whoever listens. Never
    raises for what an upstream or a network can do.
    """
    relay: Relay | None = None
    try:
        connection = await _send_once(pool, request, route, lease)
    except NotSentError as exc:
        return Attempted(exc.outcome)
    try:
        head = await connection.head()
        limit = route.policy.max_stored_body
        body = None if _streams(head, limit) else await connection.read_whole(limit)
        if body is None:
            relay = Relay()
            begin_relay(head, relay)
            body = await _relay(connection, relay, limit, pool.upstream.timeouts.idle)
    except UnsureError as exc:
        return Attempted(exc.outcome, relay=relay)
    finally:
        pool.give_back(connection)
    return Attempted(judged(head), Answer(head.status, head.reason, end_to_end(head.fields), body), relay)


def judged(head: AnswerHead) -> Answered:
    """What an answer with this head proves, once it is whole."""
    return Answered(head.status, has_retry_after=bool(field_values(head.fields, b"retry-after")))


async def _send_once(pool: Pool, request: Request, route: Route, lease: Lease) -> Connection:
    """Write the whole request. Raises NotSentError; what fails after this has returned may have been executed."""
    head = request_head(request, route, pool.upstream, _whole_body_framing(request))
    return await start_on(pool, request, head + request.body, lease)


async def start_on(pool: Pool, request: Request, data: bytes, lease: Lease | None = None) -> Connection:
    """Take a connection and write the first bytes of a request, if the lease lives when they are due. Raises NotSentError.

    A kept connection may turn out to be dead at the very write. Then no byte has left, and the request goes out on another one:
    that is still its first and only time. Between the look at the lease and the first byte nothing else can run.
    """
    while True:
        connection = await pool.acquire()
        connection.begin(request, pool.upstream.timeouts)
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


async def _relay(connection: Connection, relay: Relay, limit: int, patience: float) -> bytes:
    """Pass the body on piece by piece; what was read of it, up to the piece that made it longer than `limit`."""
    connection.relay()
    kept = bytearray()
    while piece := await connection.read():
        if len(kept) <= limit:
            kept += piece
        await relay.put(piece, patience)
    return bytes(kept)


def _streams(head: AnswerHead, limit: int) -> bool:
    """Whether an answer is to be passed on as it comes: an event stream, or one that is too long to be stored."""
    types = field_values(head.fields, b"content-type")
    return (head.length or 0) > limit or any(value.lower().startswith(b"text/event-stream") for value in types)


def _whole_body_framing(request: Request) -> bytes | None:
    """The framing of a request whose body is known: its length, unless the client announced no body and sent none."""
    announced = any(name.lower() in FRAMING for name, _ in request.fields)
    return b"Content-Length: %d" % len(request.body) if request.body or announced else None


def request_head(request: Request, route: Route, upstream: Upstream, framing: bytes | None) -> bytes:
    """The request line and fields as the upstream gets them, with the empty line.

    Order, case and repeats are the client's. What changes: `Host` is the upstream's, hop-by-hop fields and the key go (or the
    key is forwarded as the route says), and the framing, one field line without CRLF or None, stands where the client's stood.
    """
    key_name = route.policy.key.header
    forward_key = route.policy.forward_key
    dropped = dropped_names(request.fields)
    target = request.target.removeprefix(route.strip_prefix) if route.strip_prefix else request.target
    if not target.startswith(b"/"):
        target = b"/" + target  # the stripped prefix took the slash with it
    lines = [b"%b %b%b HTTP/1.1" % (request.method.encode("ascii"), upstream.base_path, target)]
    # An HTTP/1.0 client may leave Host out; what goes out is HTTP/1.1, which may not (RFC 9112, section 3.2).
    fields = request.fields if field_values(request.fields, b"host") else ((b"Host", b""), *request.fields)
    for name, value in fields:
        lowered = name.lower()
        if lowered in FRAMING:
            if framing is not None:
                lines.append(framing)
                framing = None
        elif lowered == b"host":
            lines.append(b"%b: %b" % (name, upstream.authority))
        elif lowered == key_name and forward_key is not ForwardKey.SAME:
            if isinstance(forward_key, bytes):
                lines.append(b"%b: %b" % (forward_key, value))
        elif lowered not in dropped and lowered != b"expect":  # the expectation has been answered by us
            lines.append(b"%b: %b" % (name, value))
    if framing is not None:
        lines.append(framing)
    lines.append(b"\r\n")
    return b"\r\n".join(lines)
