"""A client that sends slowly, or nothing, is waited for, but not for ever; and its connection is all that it costs.

The limits of the product are half a minute and more. So the heads are tried on the connection that both listeners use, with short
limits, in a thread of the tests; and the bodies on a proxy with an upstream whose patience is short.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol

from idemproxy.proxy.body import Intake, SlowError
from idemproxy.server.connection import Server, unmarked
from idemproxy.server.framing import ClientLimits
from idemproxy.server.incoming import Incoming
from tests.wire.bytestream import Message
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Upstream, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BRIEF = 0.3
LONG = 30.0
LIMITS = ClientLimits(head_seconds=LONG, idle_seconds=LONG, linger_seconds=LONG)
LATE = (408, "bad-request", "no", "new_key")
IMPATIENCE = 0.3
"""The silence that upstream `impatient` allows."""


@contextmanager
def serving(limits: ClientLimits, seconds: float = 0.0) -> Iterator[int]:
    """The port of a server that answers each request after so many seconds, when its body is whole, with the length of that."""

    async def answer(http: Incoming) -> bool:
        await asyncio.sleep(seconds)
        body = b"%d" % len(await http.content.read())
        http.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        return http.keep_alive

    async def serve() -> None:
        server = Server(answer, unmarked, limits, handler_cancellation=True, access_log=None)
        listening = await asyncio.get_running_loop().create_server(server, sock=sock)
        started.set()
        await ended.wait()
        listening.close()
        await server.shutdown()

    sock = socket.create_server(("127.0.0.1", 0))
    started = threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait()
    try:
        yield sock.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def _raw(port: int) -> Client:
    return Client(port, tls=False)


class _Drip:
    """Sends a byte again and again from a thread, until it is stopped or the other side has hung up."""

    def __init__(self, client: Client, piece: bytes = b"x", every: float = 0.03) -> None:
        self._client, self._piece, self._every = client, piece, every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self._client.sock.sendall(self._piece)
            except OSError:
                return


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nA: ", GET[:-2]], ids=len)
def test_a_head_that_takes_too_long_is_refused(begin: bytes) -> None:
    """From the beginning of the connection on there is a time for the first head, however steadily its bytes come."""
    with serving(replace(LIMITS, head_seconds=BRIEF)) as port, _raw(port) as client:
        started = time.monotonic()
        client.send(begin)
        with _Drip(client, b"x" if begin != GET[:-2] else b"A: 1\r\n"):
            answer = client.message()
        waited = time.monotonic() - started

        assert client.ended()
    assert LATE == problem(answer)
    assert json.loads(answer.body)["detail"].startswith("The request's head was not whole within 0.3 s")
    assert [b"close"] == answer.values("connection")
    assert BRIEF * 0.9 <= waited < LONG / 3


@pytest.mark.parametrize("said", [b"", b"\r\n\r\n"], ids=["nothing", "empty lines"])
def test_a_client_that_says_nothing_is_left_without_a_word(said: bytes) -> None:
    """Where no request has begun, there is nothing to answer: a 408 could be taken for the answer to the next request."""
    with serving(replace(LIMITS, head_seconds=BRIEF)) as port, _raw(port) as client:
        started = time.monotonic()
        client.send(said)

        assert client.ended()
        assert BRIEF * 0.9 <= time.monotonic() - started < LONG / 3


def test_a_later_head_has_its_time_from_its_first_byte() -> None:
    """Between two requests a client may wait for longer than a head may take."""
    with serving(replace(LIMITS, head_seconds=BRIEF)) as port, _raw(port) as client:
        client.ask(GET)
        quiet = client.silent(2 * BRIEF)
        again = client.ask(GET)
        started = time.monotonic()
        client.send(GET[:20])
        answer = client.message()
        waited = time.monotonic() - started

    assert (True, 200, LATE) == (quiet, status(again), problem(answer))
    assert BRIEF * 0.9 <= waited < LONG / 3


def test_a_connection_that_is_not_used_ends() -> None:
    """After the time for that, without a word, and not before."""
    with serving(replace(LIMITS, head_seconds=0.1, idle_seconds=0.5)) as port, _raw(port) as client:
        client.ask(GET)
        quiet = client.silent(0.3)
        again = client.ask(GET)
        started = time.monotonic()

        assert client.ended()
        waited = time.monotonic() - started
    assert (True, 200) == (quiet, status(again))
    assert 0.45 <= waited < LONG / 3


@pytest.mark.parametrize("behind", [b"", GET[:20]], ids=["nothing behind it", "the next one has begun"])
def test_a_request_that_is_being_served_is_not_hurried(behind: bytes) -> None:
    """Neither limit counts while the client waits for us; a head that began meanwhile is read when it is its turn."""
    with serving(replace(LIMITS, head_seconds=0.15, idle_seconds=0.15), seconds=0.5) as port, _raw(port) as client:
        client.send(GET + behind)
        answer = client.message()
        client.send(GET[len(behind) :])
        again = client.message()

    assert [200, 200] == [status(answer), status(again)]


def test_a_body_may_take_longer_than_a_head() -> None:
    """The limit on heads ends with the head."""
    with serving(replace(LIMITS, head_seconds=0.15, idle_seconds=0.15)) as port, _raw(port) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
        quiet = client.silent(0.4)
        answer = client.ask(b"b")

    assert (True, b"2") == (quiet, answer.body)


def test_a_refused_client_that_never_stops_is_cut_off() -> None:
    """It is listened to without heed, so that it can find its answer; but not for ever."""
    with serving(replace(LIMITS, linger_seconds=BRIEF)) as port, _raw(port) as client:
        client.send(b"nonsense\r\n\r\n")
        with _Drip(client):
            answer = client.message()
            started = time.monotonic()
            client.wait_for_end()
            while time.monotonic() - started < LONG / 3:
                try:
                    client.send(b"x")
                except OSError:
                    break
                time.sleep(0.01)
        waited = time.monotonic() - started

    assert 400 == status(answer)
    assert waited < LONG / 3


def _timed(client: Client) -> tuple[Message, float]:
    """The answer while a byte drips, and how long it took."""
    started = time.monotonic()
    with _Drip(client):
        answer = client.message()
    return answer, time.monotonic() - started


def test_a_body_that_drips_is_refused_and_leaves_nothing(upstream: Upstream, port: int, records: Records) -> None:
    """Some thirty bytes a second are no silence, and yet too few: 408, nothing stored or sent, and the key is free."""
    upstream.plays(answers(OK))
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", "Host: impatient", "Content-Length: 10000", key=key))
        answer, waited = _timed(client)
    phase, sent = records.phase(key), list(upstream.lines)
    whole = ask(port, request("POST", "/x", "Host: impatient", body=b"1", key=key))

    assert (LATE, "refused", [b"close"]) == (problem(answer), outcome(answer), answer.values("connection"))
    assert "The request body came at less than 500 bytes/s" in json.loads(answer.body)["detail"]
    assert IMPATIENCE <= waited < 10 * IMPATIENCE
    assert (None, []) == (phase, sent)
    assert 200 == status(whole)


def test_a_body_that_drips_through_is_broken_off(upstream: Upstream, port: int) -> None:
    """What is passed through is ended on both sides, and the upstream does not take what came for the whole."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        client.send(request("PUT", "/x", "Host: impatient", "Content-Length: 10000"))
        answer, waited = _timed(client)
    (line,) = upstream.wait_for_lines(1)
    upstream.wait_for_end_of(line)

    assert (408, "outcome-unknown", "unknown", "after_check") == problem(answer)
    assert "the client did not send the whole of its body" in json.loads(answer.body)["detail"]
    assert IMPATIENCE <= waited < 10 * IMPATIENCE
    assert [] == upstream.requests


def _intake(clock: Callable[[], float]) -> tuple[StreamReader, Intake]:
    """A body of which nothing has come, and its intake with a patience of 2 s and a least rate of 10 bytes/s."""
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.transport = cast("asyncio.Transport", SimpleNamespace())
    content = StreamReader(protocol, 1 << 16, loop=asyncio.get_running_loop())
    http: Any = SimpleNamespace(content=content, connection=SimpleNamespace(limits=ClientLimits(min_rate=10)))
    return content, Intake(http, 2.0, clock)


async def _wait(content: StreamReader, intake: Intake, now: list[float], seconds: float, piece: bytes) -> bytes:
    """Take a piece for which so many seconds, on the clock `now`, were waited."""

    def arrive() -> None:
        now[0] += seconds
        content.feed_data(piece)

    asyncio.get_running_loop().call_soon(arrive)
    return await intake.take()


async def test_a_body_that_comes_fast_enough_may_take_its_time() -> None:
    """At the least rate there is no limit on the whole: this one takes ten times the patience that silence has."""
    now = [0.0]
    content, intake = _intake(lambda: now[0])
    found = [await _wait(content, intake, now, 1.0, b"x" * 10) for _ in range(20)]

    assert ([b"x" * 10] * 20, 20.0) == (found, now[0])


async def test_a_body_that_breaks_just_as_a_chunk_ends_is_broken() -> None:
    """Whoever waits for it was woken for the chunk, and finds no more data: that is not the end of the body."""
    content, intake = _intake(lambda: 0.0)
    content.begin_http_chunk_receiving()
    content.feed_data(b"12345")
    first = await intake.take()
    next_one = asyncio.create_task(intake.take())
    await asyncio.sleep(0)
    content.end_http_chunk_receiving()
    content.set_exception(web.RequestPayloadError("broken"))
    content.feed_eof()

    assert b"12345" == first
    with pytest.raises(web.RequestPayloadError):
        await next_one


async def test_the_time_in_which_a_piece_goes_on_is_not_the_clients() -> None:
    """An upstream that takes a body slowly holds it back: a client is not to blame for that, and loses nothing by it."""
    now = [0.0]
    content, intake = _intake(lambda: now[0])
    found = []
    for _ in range(5):
        found.append(await _wait(content, intake, now, 1.0, b"x" * 10))
        now[0] += 1000.0

    assert [b"x" * 10] * 5 == found


async def test_the_rate_is_an_average_beyond_the_patience() -> None:
    """With 10 bytes/s and 2 s, a client that has waited 2.5 s for 4 bytes is too slow, and one that brought 6 of them is not."""
    now = [0.0]
    content, intake = _intake(lambda: now[0])
    await _wait(content, intake, now, 1.25, b"12")
    await _wait(content, intake, now, 1.25, b"3456")
    last = await _wait(content, intake, now, 0.0, b"7")
    slow_content, slow = _intake(lambda: now[0])
    await _wait(slow_content, slow, now, 1.25, b"12")
    await _wait(slow_content, slow, now, 1.25, b"34")

    assert b"7" == last
    with pytest.raises(SlowError, match="less than 10 bytes/s"):
        await slow.take()
