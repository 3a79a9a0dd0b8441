"""A holder that was stopped past its lease sends nothing: the look at the lease and the first byte are one step."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable

import pytest

from idemproxy.core.message import Request
from idemproxy.core.policy import Upstream as UpstreamSettings
from idemproxy.proxy.lease import Lease, elapsed
from idemproxy.proxy.pool import NotSentError, Pool
from idemproxy.proxy.receiving import UnsureError
from idemproxy.proxy.upstream import start_on
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.combination import client_context, current
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers, nothing

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = Request("POST", b"/charges", ())
DATA = b"POST /charges HTTP/1.1\r\nHost: x\r\n\r\n"
LEASE = 3.0


def _pool(upstream: Upstream, max_connections: int = 10) -> Pool:
    settings = UpstreamSettings("upstream", current().scheme, "127.0.0.1", upstream.port, max_connections=max_connections)
    return Pool(settings, asyncio.get_running_loop(), client_context() if current().upstream_tls else None)


def _over() -> Lease:
    return Lease(elapsed() - LEASE, LEASE)


def _lost() -> Lease:
    lease = Lease(elapsed(), LEASE)
    lease.lost = True
    return lease


@pytest.mark.parametrize("lease", [_over, _lost], ids=["over", "lost"])
async def test_a_lease_that_is_over_sends_nothing(upstream: Upstream, lease: Callable[[], Lease]) -> None:
    """With a fresh connection in hand the holder looks at its lease, and hangs up without a byte."""
    upstream.plays(nothing)
    pool = _pool(upstream)

    with pytest.raises(NotSentError) as raised:
        await start_on(pool, REQUEST, DATA, lease())

    (line,) = await asyncio.to_thread(upstream.wait_for_lines, 1)
    await asyncio.to_thread(upstream.wait_for_end_of, line)
    assert (503, "proxy_internal_error") == (raised.value.outcome.status, raised.value.outcome.error)
    assert b"" == bytes(line.raw)


async def test_a_lease_that_ends_in_the_queue_sends_nothing(upstream: Upstream) -> None:
    """The look comes after the connection is there: who waited for one past its lease leaves it untouched."""
    upstream.plays(answers(OK))
    pool = _pool(upstream, max_connections=1)
    connection = await start_on(pool, REQUEST, DATA, Lease(elapsed(), LEASE))
    lease = Lease(elapsed(), LEASE)
    waiting = asyncio.create_task(start_on(pool, REQUEST, DATA, lease))
    await asyncio.sleep(0)
    await connection.read()

    lease.until = elapsed()
    pool.give_back(connection)
    with pytest.raises(NotSentError):
        await waiting

    await asyncio.to_thread(upstream.wait_for_end_of, upstream.lines[0])
    assert [DATA] == [bytes(line.raw) for line in upstream.lines]


async def test_a_live_lease_sends_the_request(upstream: Upstream) -> None:
    """The same steps, with a lease that lives, bring the bytes over: these tests would notice it."""
    upstream.plays(answers(OK))
    pool = _pool(upstream)

    connection = await start_on(pool, REQUEST, DATA, Lease(elapsed(), LEASE))
    head = await connection.head()
    body = await connection.read()
    pool.give_back(connection)
    pool.close()

    assert (200, b"ok") == (head.status, body)
    assert DATA == bytes(upstream.lines[0].raw)


async def test_the_first_bytes_leave_within_the_call(upstream: Upstream) -> None:
    """When `start_on` has looked at the lease, the bytes are with the kernel before anything else can run.

    But for one combination: uvloop gives what TLS has enciphered to the kernel when its round is at an end.
    """
    upstream.plays(answers(OK))
    pool = _pool(upstream)
    connection = await pool.acquire()
    connection.begin(REQUEST)

    connection.write_first(DATA)
    if current().upstream_tls and current().loop == "uvloop":
        await asyncio.sleep(0)
    arrived = upstream.wait_for_requests(1)  # while this thread, and with it the event loop, stands still

    connection.abort()
    assert [DATA] == [one.raw for one in arrived]


async def test_a_first_write_on_a_reset_connection_is_known_not_to_have_left(upstream: Upstream) -> None:
    """The kernel refuses it, though the event loop has not heard of the reset: that is certain, and said.

    Over TLS it is the event loop that writes, and hears of the refusal; we only hear that the connection has ended: unknown.
    """
    connected, reset = threading.Event(), threading.Event()

    def resets(line: Line) -> None:
        connected.wait(10)
        line.reset()
        reset.set()

    upstream.plays(resets)
    pool = _pool(upstream)
    connection = await pool.acquire()
    connection.begin(REQUEST)
    await asyncio.sleep(0)  # so that the upstream has all of the handshake, where there is one
    connected.set()
    assert reset.wait(10)  # while the event loop stands still

    if current().upstream_tls:
        connection.write_first(DATA)
        with pytest.raises(UnsureError):
            await connection.head()
    else:
        with pytest.raises(BrokenPipeError):
            connection.write_first(DATA)

    assert b"" == bytes(upstream.lines[0].raw)
    pool.give_back(connection)


async def test_a_first_write_on_a_closed_connection_is_known_not_to_have_left(upstream: Upstream) -> None:
    """Once the event loop has heard of the end, nothing is written."""
    upstream.plays(lambda line: line.close())
    pool = _pool(upstream)
    connection = await pool.acquire()
    connection.begin(REQUEST)
    with pytest.raises(UnsureError):
        await connection.head()
    others = [socket.socketpair() for _ in range(32)]  # one of them has the number of the descriptor that was closed

    with pytest.raises(BrokenPipeError):
        connection.write_first(DATA)

    heard, _, _ = select.select([one for pair in others for one in pair], [], [], 0)
    for one in (one for pair in others for one in pair):
        one.close()
    assert [] == heard
    assert b"" == bytes(upstream.lines[0].raw)
    pool.give_back(connection)


@pytest.mark.parametrize("end", [Line.close, Line.reset], ids=["FIN", "RST"])
async def test_a_kept_connection_that_has_just_ended_is_not_taken(upstream: Upstream, end: Callable[[Line], None]) -> None:
    """The pool looks at the socket itself: an end that the event loop has not heard of yet costs no attempt."""
    kept, ended = threading.Event(), threading.Event()

    def answers_and_ends(line: Line) -> None:
        line.request()
        line.send(OK)
        kept.wait(10)
        end(line)
        ended.set()

    upstream.plays(answers_and_ends)
    pool = _pool(upstream)
    first = await start_on(pool, REQUEST, DATA)
    await first.head()
    await first.read()
    pool.give_back(first)
    was_kept = first.reusable
    kept.set()
    assert ended.wait(10)  # while the event loop stands still

    second = await pool.acquire()

    second.abort()
    pool.close()
    assert was_kept
    assert second is not first
    assert second.fresh


def test_a_claim_that_is_granted_after_its_lease_sends_nothing(upstream: Upstream, port: int, records: Records) -> None:
    """A store that grants a claim later than the lease it asked for leaves nothing to send with: 503, and the key is free."""
    upstream.plays(answers(OK))
    key = new_key()
    asked = request("POST", "/charges", "Host: brief", body=b"amount=1", key=key)
    with Client(port) as client:
        lock = records.lock()
        began = elapsed()
        client.send(asked)
        threading.Event().wait(LEASE + 0.2)
        lock.close()
        late = client.message()
        assert elapsed() - began < 5, "the store gives up before"
    sent = b"".join(bytes(line.raw) for line in upstream.lines)
    retry = ask(port, asked)

    assert (503, "not-sent", "no", "same_key") == problem(late)
    assert b"" == sent
    assert (200, "executed") == (status(retry), outcome(retry))
    assert 1 == len(upstream.requests)
