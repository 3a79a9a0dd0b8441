"""A client that stops, in the middle of its request or of its answer, keeps nothing: no connection, no claim, no silence."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.process.asking import eventually
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.upstream import Line, Upstream, answers
from tests.wire.watched import Watched, watched

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MIB = 1 << 20
SIZE = 96 * MIB
"""Much more than two sockets hold."""
IDLE = 0.5
DROPPED = (408, "bad-request", "no", "new_key")
UNKNOWN = (408, "outcome-unknown", "unknown", "after_check")
HAPPENED = (409, "response-unavailable", "yes", "never")


@pytest.fixture(scope="module")
def impatient(scripted: Upstream) -> Iterator[Watched]:
    """A proxy that waits for nobody for long: by host, with one connection, or with more time for clients than for upstreams."""
    long = {"connect": "9s", "first_byte": "9s", "total": "30s"}
    settings = {
        "upstreams": {
            "one": {"url": scripted.url, "max_connections": 1, "timeouts": {**long, "idle": f"{round(IDLE * 1000)}ms"}},
            "quiet": {"url": scripted.url, "timeouts": {**long, "idle": f"{round(IDLE * 1000)}ms"}},
            "quick": {"url": scripted.url, "timeouts": {**long, "first_byte": "200ms", "idle": "8s"}},
        },
        "routes": [
            {"name": "quick", "match": {"host": "quick"}, "upstream": "quick"},
            {"name": "kept", "match": {"host": "kept"}, "upstream": "quiet", "max_stored_body": "8MiB"},
            {"name": "one", "upstream": "one", "max_stored_body": "1KiB"},
        ],
    }
    with watched(settings) as running:
        yield running


def _pours(line: Line) -> None:
    """Answer what is asked for under /large with more than can be kept or buffered, and the rest shortly."""
    while True:
        if b" /large" not in line.request().start:
            line.send(OK)
            continue
        line.send(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % SIZE)
        for _ in range(SIZE // MIB):
            line.send(bytes(MIB))


def _stops_reading(port: int) -> Client:
    """A client with little room for what it does not read."""
    client = Client(port)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    return client


def _is_reset(client: Client) -> bool:
    """Whether the connection ends with a reset when the client reads again: an end in order may be taken for the body's."""
    try:
        client.rest()
    except ConnectionResetError:
        return True
    return False


def _drips_until_reset(client: Client) -> bool:
    """Take a little of a large body each time before the proxy's patience ends; whether the end comes before the body's."""
    try:
        while len(client.raw) < SIZE:
            client.exactly(4 * MIB)
            time.sleep(0.9 * IDLE)
    except ConnectionResetError:
        return True
    return False


def _statuses(proxy: Watched, path: str, count: int) -> list[tuple[int, str]]:
    """Status and outcome of each request for a path, as the access log tells them."""
    return sorted((line["status"], line["outcome"]) for line in proxy.told(path, count))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_client_that_stops_reading_gives_its_connection_back(upstream: Upstream, impatient: Watched, method: str) -> None:
    """What is passed through waits for its client as long as for an upstream; then the next request has the connection."""
    upstream.plays(_pours)
    path = f"/large/{method}"
    with _stops_reading(impatient.port) as client:
        started = time.monotonic()
        client.send(request(method, path, "Content-Length: 0"))
        head = client.head()
        answer = ask(impatient.port, request("GET", "/next"))
        waited = time.monotonic() - started
        was_reset = _is_reset(client)

    assert (201, 200, b"ok") == (status(head), status(answer), answer.body)
    assert waited >= IDLE
    assert [(499, "read" if method == "GET" else "bypassed")] == _statuses(impatient, path, 1)
    assert was_reset


@pytest.mark.parametrize("path", ["/steady/kept", "/steady/streamed", "/steady/passed"])
def test_a_slow_reader_that_goes_on_reading_gets_it_all(upstream: Upstream, impatient: Watched, path: str) -> None:
    """Time alone ends nothing: an answer that is taken steadily may take many times as long as a silence may."""
    size, seconds = 6 * MIB, 8 * IDLE

    def gives(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        line.send(bytes(size))
        line.wait_for_end()

    upstream.plays(gives)
    host = "Host: kept" if path.endswith("kept") else "Host: x"
    with Client(impatient.port) as client:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.send(request("POST", path, host, body=b"1", key=None if path.endswith("passed") else new_key()))
        head = client.head()
        started = time.monotonic()
        taken = 0
        while taken < size:
            taken += len(client.exactly(min(64 * 1024, size - taken)))
            time.sleep(max(0.0, started + seconds * taken / size - time.monotonic()))

    assert (200, size) == (status(head), taken)


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_a_client_that_asks_again_and_again_and_reads_nothing_is_given_up(
    upstream: Upstream, impatient: Watched, *, keyed: bool
) -> None:
    """Small answers, too, wait for their client when many of them are there, and then its patience counts."""
    upstream.plays(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + bytes(20_000)))
    path = f"/again/{keyed}"
    with _stops_reading(impatient.port) as client:
        with suppress(OSError):  # it may be given up before it has asked all that
            client.send(request("POST", path, "Host: kept", body=b"", key=new_key() if keyed else None) * 2000)
        eventually(lambda: impatient.told(path)[-1]["status"] == 499 or len(impatient.told(path)) == 2000)
        [*lines, last] = impatient.told(path)

        assert (499, {200}) == (last["status"], {line["status"] for line in lines})
        assert _is_reset(client)


def test_a_stalled_upload_is_refused_and_leaves_nothing(upstream: Upstream, impatient: Watched) -> None:
    """Half of the body, then silence: the client is told, nothing is stored or sent, and the key is as free as before."""
    upstream.plays(answers(OK))
    key = new_key()
    with Client(impatient.port) as client:
        started = time.monotonic()
        client.send(request("POST", "/upload", "Content-Length: 10", key=key) + b"12345")
        answer = client.message()
        waited = time.monotonic() - started
    phase, arrived = impatient.records.phase(key), list(upstream.lines)
    whole = ask(impatient.port, request("POST", "/upload", body=b"1234567890", key=key))

    assert (DROPPED, "refused", [b"close"]) == (problem(answer), outcome(answer), answer.values("connection"))
    assert "Nothing of the request body came for 0.5 s" in json.loads(answer.body)["detail"]
    assert waited >= IDLE
    assert (None, []) == (phase, arrived)
    assert (200, "executed") == (status(whole), outcome(whole))


@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
def test_a_stalled_upload_that_passes_through_is_broken_off(upstream: Upstream, impatient: Watched, framing: str) -> None:
    """The upstream must not take half a body for a whole one; who caused it is told that it was not the upstream."""
    upstream.plays(answers(OK))
    chunked = framing.startswith("Transfer")
    path = f"/upload/{'chunked' if chunked else 'sized'}"
    with Client(impatient.port) as client:
        started = time.monotonic()
        client.send(request("PUT", path, framing) + (b"5\r\n12345\r\n" if chunked else b"12345"))
        answer = client.message()
        waited = time.monotonic() - started
    (line,) = upstream.wait_for_lines(1)
    upstream.wait_for_end_of(line)

    assert (UNKNOWN, "unknown", [b"close"]) == (problem(answer), outcome(answer), answer.values("connection"))
    assert "the client did not send the whole of its body" in json.loads(answer.body)["detail"]
    assert [b'idemproxy; error=http_request_error; details="outcome-unknown"'] == answer.values("proxy-status")
    assert waited >= IDLE
    assert [] == upstream.requests


def test_a_client_may_pause_for_longer_than_the_upstream_may(upstream: Upstream, impatient: Watched) -> None:
    """While the request is still coming, the upstream's silence is not held against it: first_byte counts from its end."""
    upstream.plays(answers(OK))
    with Client(impatient.port) as client:
        client.send(request("PUT", "/slow", "Host: quick", "Content-Length: 10") + b"12345")
        time.sleep(0.7)  # longer than first_byte, and much shorter than idle
        client.send(b"67890")
        answer = client.message()

    assert (200, b"ok") == (status(answer), answer.body)
    assert [b"1234567890"] == [arrived.body for arrived in upstream.requests]


def test_an_upstream_that_is_silent_after_a_slow_upload_is_still_found_out(upstream: Upstream, impatient: Watched) -> None:
    """The time for the first byte begins with the last of the body, and then it counts."""

    def hears_all_and_says_nothing(line: Line) -> None:
        line.request()
        line.wait_for_end()

    upstream.plays(hears_all_and_says_nothing)
    with Client(impatient.port) as client:
        client.send(request("PUT", "/mute", "Host: quick", "Content-Length: 10") + b"12345")
        upstream.wait_for_lines(1)
        answer = client.ask(b"67890")

    assert (504, "outcome-unknown", "unknown", "after_check") == problem(answer)


def test_a_stalled_reader_does_not_hold_up_what_has_to_be_settled(upstream: Upstream, impatient: Watched) -> None:
    """A covered answer too long to be kept is read to its end without its client, and a retry hears that it happened."""
    upstream.plays(_pours)
    key = new_key()
    asked = request("POST", "/large/covered", body=b"1", key=key)
    with _stops_reading(impatient.port) as client:
        client.send(asked)
        head = client.head()
        during = impatient.records.phase(key)
        retry = ask(impatient.port, asked)
        after = impatient.records.phase(key)
        was_reset = _is_reset(client)

    assert ("executed", "in_flight") == (outcome(head), during)
    assert (HAPPENED, "completed") == (problem(retry), after)
    assert was_reset
    assert [(409, "refused"), (499, "executed")] == _statuses(impatient, "/large/covered", 2)
    assert 1 == len(upstream.requests)


def test_a_reader_that_drips_does_not_hold_it_up_for_ever(upstream: Upstream, impatient: Watched) -> None:
    """One that always takes a little before its time is over is let go when the attempt has waited ten times as long for it."""
    upstream.plays(_pours)
    key = new_key()
    asked = request("POST", "/large/dripped", body=b"1", key=key)
    with Client(impatient.port) as client:
        client.send(asked)
        client.head()
        was_reset = _drips_until_reset(client)
        retry = ask(impatient.port, asked)

    assert was_reset
    assert HAPPENED == problem(retry)
    assert [(409, "refused"), (499, "executed")] == _statuses(impatient, "/large/dripped", 2)
    assert "completed" == impatient.records.phase(key)
    assert 1 == len(upstream.requests)
