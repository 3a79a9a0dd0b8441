"""An answer that streams is relayed as it comes, and settled at its end: whole, too long to be kept, or broken off."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
CHUNKED = EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize(("method", "keyed"), [("POST", True), ("PATCH", True), ("POST", False), ("GET", False)])
def test_events_are_relayed_one_by_one(upstream: Upstream, port: int, records: Records, method: str, *, keyed: bool) -> None:
    """Each event is with the client before the next one exists, while the record is in flight."""
    client_has = threading.Semaphore(0)

    def streams(line: Line) -> None:
        line.request()
        line.send(CHUNKED)
        for number in range(5):
            line.send(_chunk(b"data: %d\n\n" % number))
            client_has.acquire(timeout=10)
        line.send(b"0\r\n\r\n")
        line.wait_for_end()

    upstream.plays(streams)
    key = new_key()
    asked = request(method, "/answers", body=b"1", key=key if keyed else None)
    with Client(port) as client:
        client.send(asked)
        head = client.head()
        during = []
        for number in range(5):
            client.until(_chunk(b"data: %d\n\n" % number))
            during.append(records.phase(key))
            client_has.release()
        end = client.exactly(5)
        after = records.phase(key)

    assert ("executed" if keyed else "" if method == "GET" else "bypassed") == outcome(head)
    assert [b"chunked"] == head.values("transfer-encoding")
    assert [] == head.values("content-length")
    assert ["in_flight" if keyed else None] * 5 == during
    assert b"0\r\n\r\n" == end
    assert ("completed" if keyed else None) == after


@pytest.mark.parametrize("framing", ["chunks", "the end of the connection", "a length"])
def test_a_stream_is_replayed_whole(upstream: Upstream, port: int, framing: str) -> None:
    """A retry gets every event in one body, with the stream's own fields."""
    body = b"".join(b"data: %d\n\n" % number for number in range(100))

    def streams(line: Line) -> None:
        line.request()
        if framing == "chunks":
            line.send(CHUNKED + _chunk(body[:50]) + _chunk(body[50:]) + b"0\r\n\r\n")
            line.wait_for_end()
        elif framing == "a length":
            line.send(EVENTS + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            line.wait_for_end()
        else:
            line.send(EVENTS + b"\r\n" + body)

    upstream.plays(streams)
    asked = request("POST", "/answers", body=b"1", key=new_key())

    first, retry = ask(port, asked), ask(port, asked)

    kept = [b"Content-Type: text/event-stream; charset=utf-8", b"Cache-Control: no-cache"]
    ours = ("Idempotency-Status", "Idempotent-Replayed", "Content-Length", "Transfer-Encoding")
    assert [(200, "executed", body), (200, "replayed", body)] == [(status(one), outcome(one), one.body) for one in (first, retry)]
    assert [kept, kept] == [one.lines_without(*ours) for one in (first, retry)]
    assert [b"%d" % len(body)] == retry.values("content-length")
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("size", [1023, 1024, 1025, 300_000])
@pytest.mark.parametrize("framing", ["chunks", "the end of the connection", "a length"])
def test_an_answer_that_is_too_long_to_be_kept_is_relayed_and_its_fact_kept(
    upstream: Upstream, port: int, records: Records, size: int, framing: str
) -> None:
    """Up to max_stored_body it is replayed; beyond, a retry hears that it happened, and with which status."""
    body = b"x" * size

    def answer_once(line: Line) -> None:
        line.request()
        if framing == "chunks":
            half = size // 2
            line.send(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n")
            line.send(_chunk(body[:half]) + _chunk(body[half:]) + b"0\r\n\r\n")
            line.wait_for_end()
        elif framing == "a length":
            line.send(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (size, body))
            line.wait_for_end()
        else:
            line.send(b"HTTP/1.1 201 Created\r\n\r\n" + body)

    upstream.plays(answer_once)
    key = new_key()
    asked = request("POST", "/reports", "Host: small", body=b"1", key=key)

    first, retry = ask(port, asked), ask(port, asked)

    assert (201, "executed", body) == (status(first), outcome(first), first.body)
    if size <= 1024:
        assert (201, "replayed", body) == (status(retry), outcome(retry), retry.body)
    else:
        assert (409, "response-unavailable", "yes", "never") == problem(retry)
        assert b"status 201" in retry.body
    assert "completed" == records.phase(key)
    assert 1 == len(upstream.requests)


def test_a_long_answer_is_not_held_back(upstream: Upstream, port: int) -> None:
    """What is longer than can be kept begins to arrive before it is whole."""
    client_has_begun = threading.Event()

    def in_two_parts(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + bytes(5000))
        client_has_begun.wait(10)
        line.send(bytes(5000))
        line.wait_for_end()

    upstream.plays(in_two_parts)
    with Client(port) as client:
        client.send(request("POST", "/reports", "Host: small", body=b"1", key=new_key()))
        head = client.head()
        client.exactly(5000)
        client_has_begun.set()
        rest = client.exactly(5000)

    assert [b"10000"] == head.values("content-length")
    assert bytes(5000) == rest


def _ends(line: Line) -> None:
    """The upstream goes away in order, but too early."""


def _hangs(line: Line) -> None:
    """The upstream falls silent."""
    line.wait_for_end()


BREAKS: list[Callable[[Line], None]] = [_ends, Line.reset, _hangs]
BEGUN = {
    "events": CHUNKED + _chunk(b"data: 1\n\n"),
    "a long body": b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\ndata: 1\n\n",
}


@pytest.mark.parametrize("breaks", BREAKS, ids=["FIN", "RST", "silence"])
@pytest.mark.parametrize("begun", BEGUN)
@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_a_stream_that_breaks_off_does_not_look_whole(
    upstream: Upstream, port: int, records: Records, version: bytes, begun: str, breaks: Callable[[Line], None], *, keyed: bool
) -> None:
    """The client sees its body break, and the record is unknown by then: a retry is told so, and nothing is sent for it."""
    client_has_begun = threading.Event()

    def break_off(line: Line) -> None:
        line.request()
        line.send(BEGUN[begun])
        client_has_begun.wait(10)
        breaks(line)

    upstream.plays(break_off)
    key = new_key()
    host = "Host: impatient" if breaks is _hangs else "Host: any"
    asked = request("POST", "/answers", host, body=b"1", key=key if keyed else None)
    with Client(port) as client:
        client.send(asked.replace(b"HTTP/1.1", version, 1))
        head = client.head()
        client.until(b"data: 1\n\n")
        client_has_begun.set()
        was_reset = False
        try:
            rest = client.rest()
        except ConnectionResetError:
            was_reset, rest = True, b""
        phase = records.phase(key)

    assert 200 == status(head)
    assert b"0\r\n\r\n" not in rest
    if not head.values("content-length") and not head.values("transfer-encoding"):
        assert was_reset, "the end of the connection would be the end of the body"
    if keyed:
        assert "unknown" == phase
        assert (409, "outcome-unknown", "unknown", "after_check") == problem(ask(port, asked))
    assert 1 == len(upstream.requests)


def test_an_event_stream_that_refuses_frees_the_key_at_its_end(upstream: Upstream, port: int, records: Records) -> None:
    """A status by which an upstream says that it did not act says so in a stream too."""
    refusal = b"HTTP/1.1 429 Busy\r\nContent-Type: text/event-stream\r\nContent-Length: 2\r\n\r\nno"
    upstream.plays(answers(refusal, CHUNKED + _chunk(b"data: 1\n\n") + b"0\r\n\r\n"))
    key = new_key()
    asked = request("POST", "/answers", body=b"1", key=key)

    first, second = ask(port, asked), ask(port, asked)

    assert [(429, "refused", b"no"), (200, "executed", b"data: 1\n\n")] == [
        (status(one), outcome(one), one.body) for one in (first, second)
    ]
    assert "completed" == records.phase(key)


@pytest.mark.parametrize("framing", ["Content-Length: 50", "Transfer-Encoding: chunked"])
def test_an_upload_is_passed_on_piece_by_piece(upstream: Upstream, port: int, framing: str) -> None:
    """Without a key each piece of a body is with the upstream before the next one exists, in the client's framing."""
    chunked = framing.startswith("Transfer")
    upstream_has = threading.Semaphore(0)
    arrived = []

    def takes_pieces(line: Line) -> None:
        line.request_head()
        for _ in range(5):
            arrived.append(line.exactly(15 if chunked else 10))
            upstream_has.release()
        if chunked:
            arrived.append(line.exactly(5))
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        line.wait_for_end()

    upstream.plays(takes_pieces)
    pieces = [_chunk(b"piece %d..\n" % number) if chunked else b"piece %d..\n" % number for number in range(5)]
    with Client(port) as client:
        client.send(request("PUT", "/file", framing))
        for piece in pieces:
            client.send(piece)
            assert upstream_has.acquire(timeout=10)
        client.send(b"0\r\n\r\n" if chunked else b"")
        answer = client.message()

    assert (200, b"ok") == (status(answer), answer.body)
    assert [framing.partition(": ")[2].encode()] == upstream.requests[0].values(framing.partition(":")[0])
    assert pieces + ([b"0\r\n\r\n"] if chunked else []) == arrived


SIZE = 5_000_000
ENDS = {
    "a length": b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (SIZE, bytes(SIZE)),
    "chunks": b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % _chunk(bytes(SIZE)),
    "the end of the connection": b"\r\n" + bytes(SIZE),
}


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("framing", ENDS)
def test_an_upstream_that_has_hung_up_leaves_a_whole_body(
    upstream: Upstream, port: int, records: Records, framing: str, *, keyed: bool
) -> None:
    """It has said all and is gone while the client takes its time over the half of it, and still the client gets all."""
    client_has_half = threading.Event()

    def says_all_and_goes(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 201 Created\r\n" + ENDS[framing])
        client_has_half.wait(10)

    upstream.plays(says_all_and_goes)
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/file", "Host: small", body=b"1", key=key if keyed else None))
        head = client.head()
        chunked = bool(head.values("transfer-encoding"))
        taken = 0 if chunked else len(client.exactly(SIZE // 2))
        while chunked and taken < SIZE // 2:
            taken += len(client.exactly(int(client.until(b"\r\n"), 16) + 2)) - 2
        client_has_half.set()
        while chunked and (size := int(client.until(b"\r\n"), 16)):
            taken += len(client.exactly(size + 2)) - 2
        taken += 0 if chunked else len(client.exactly(SIZE - taken))
    retry = ask(port, request("POST", "/file", "Host: small", body=b"1", key=key)) if keyed else None

    assert (201, SIZE) == (status(head), taken)
    assert ("completed" if keyed else None) == records.phase(key)
    assert retry is None or (409, "response-unavailable", "yes", "never") == problem(retry)
