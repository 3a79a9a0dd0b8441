"""What is not covered: reads, and writes that name no operation. Streamed both ways, kept nowhere, sent exactly once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from idemproxy.core.forward import request_head
from idemproxy.core.message import field_values
from idemproxy.core.outcome import Unsure
from idemproxy.core.replay import passed_on, status_lines
from idemproxy.observe.observation import Outcome
from idemproxy.proxy.answers import not_sent, outcome_unknown
from idemproxy.proxy.body import Intake, SlowError, answer_expectation
from idemproxy.proxy.pool import NotSentError
from idemproxy.proxy.receiving import UnsureError
from idemproxy.proxy.reply import BrokenOffError, Reply
from idemproxy.proxy.tunnel import Tunnel
from idemproxy.proxy.upstream import start_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from idemproxy.proxy.answer_reader import AnswerHead
    from idemproxy.proxy.connection import Connection
    from idemproxy.proxy.inbound import Passing
    from idemproxy.proxy.pool import Pool
    from idemproxy.server.incoming import Incoming

Used = TypeVar("Used")


class Download:
    """An upstream's body, taken straight from its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def take(self) -> bytes:
        """The next piece; b"" at the end. Raises BrokenOffError."""
        try:
            return await self._connection.read()
        except UnsureError as exc:
            raise BrokenOffError from exc

    def leave(self) -> None:
        """The connection is dropped by its owner when the body is not read to its end."""


async def pass_through(http: Incoming, passing: Passing, pool: Pool, use: Callable[[Reply | Tunnel], Awaitable[Used]]) -> Used:
    """Forward the request as it comes, and `use` what comes of it. A client that leaves ends it at once."""
    framing = _framing(http)
    head = request_head(passing.request, passing.route, pool.upstream, framing, upgrade=passing.upgrade)
    try:
        connection = await start_on(pool, passing.request, head)
    except NotSentError as exc:
        return await use(not_sent(exc.outcome))
    upload: asyncio.Task[bool] | None = None
    try:
        connection.relay()
        connection.expect(offered=passing.upgrade, interim=partial(_pass_on, http) if http.version.minor else None)
        if http.body_exists:
            connection.upload(under_way=True)
            patience = pool.upstream.timeouts.idle
            upload = asyncio.create_task(_upload(http, passing, connection, patience, chunked=framing == _CHUNKED))
        reply = await _reply(passing, connection)
        if connection.switched:
            return await use(Tunnel(http, connection, reply))
        whole = upload is None or (upload.done() and upload.result())
        return await use(reply if whole else replace(reply, close=True))
    finally:
        if upload is not None:
            if not upload.done():
                connection.abort()  # kept, it would give the next request to the upstream as the rest of this body
            upload.cancel()
            with suppress(asyncio.CancelledError):
                await upload
        pool.give_back(connection)


async def _reply(passing: Passing, connection: Connection) -> Reply:
    """The answer's head with its body to come, or with it when it is here already; of a 101, the head alone."""
    try:
        head = await connection.head()
        body = await connection.read() if connection.finished else Download(connection)
    except UnsureError as exc:
        return outcome_unknown(exc.outcome)
    lines = b"" if passing.outcome is Outcome.READ else status_lines(passing.outcome.value)
    if connection.switched:
        chosen = [b"Upgrade: %b\r\n" % value for value in field_values(head.fields, b"upgrade")]
        lines = b"".join((lines, b"Connection: Upgrade\r\n", *chosen))
    length = len(body) if isinstance(body, bytes) and passing.request.method != "HEAD" else head.length
    return Reply(head.status, passed_on(head.reason, head.fields) + lines, passing.outcome, body, length)


def _pass_on(http: Incoming, head: AnswerHead) -> None:
    """An interim answer, to a client that can tell it from the final one, as those of HTTP/1.1 can (RFC 9110, section 15.2)."""
    transport = http.connection.transport
    if transport is not None and not transport.is_closing():
        transport.write(b"HTTP/1.1 %d %b\r\n" % (head.status, passed_on(head.reason, head.fields)))


_CHUNKED = b"Transfer-Encoding: chunked"


def _framing(http: Incoming) -> bytes | None:
    if http.message.chunked:
        return _CHUNKED
    return None if http.content_length is None else b"Content-Length: %d" % http.content_length


async def _upload(http: Incoming, passing: Passing, connection: Connection, patience: float, *, chunked: bool) -> bool:
    """Pass the client's body on at the upstream's pace; whether it was whole. One that breaks off breaks the attempt off too."""
    try:
        await answer_expectation(http, passing.request)
        intake = Intake(http, patience)
        while piece := await intake.take():
            await connection.drain()
            connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            connection.write(b"0\r\n\r\n")
    except Exception as exc:  # noqa: BLE001 - whatever ends the client's body early, the upstream must not take it for whole
        connection.fail(Unsure("the client did not send the whole of its body", "http_request_error", _status_of(exc)))
        return False
    connection.upload(under_way=False)
    return True


def _status_of(fault: Exception) -> int:
    """What a client is told that did not send the whole of its body; a fault of ours is none of its own."""
    match fault:
        case SlowError():
            return 408
        case web.RequestPayloadError():
            return 400
        case _:
            return 502
