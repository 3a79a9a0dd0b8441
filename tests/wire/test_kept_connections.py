"""A connection is kept for the next request only while it is certain that this request would be the only thing on it."""

from __future__ import annotations

import threading

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GONE_BY_THEN = ("FIN", "RST", "an unasked answer", "an unasked answer and FIN")


def _write(port: int, key: str | None = None) -> tuple[int, str]:
    answer = ask(port, request("POST", "/charges", body=b"amount=1", key=key))
    return status(answer), outcome(answer)


def test_a_connection_carries_one_request_after_another(upstream: Upstream, port: int) -> None:
    """Requests that do not overlap need one connection, whichever client they are from."""
    upstream.plays(answers(OK))

    found = [_write(port, new_key()) for _ in range(5)]

    assert [(200, "executed")] * 5 == found
    assert 5 == len(upstream.requests)
    assert 1 == len(upstream.lines)


@pytest.mark.parametrize("goodbye", GONE_BY_THEN)
@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_a_connection_that_ended_while_idle_costs_nothing(upstream: Upstream, port: int, goodbye: str, *, keyed: bool) -> None:
    """The next request goes out on another connection: once, and is answered."""
    gone = threading.Event()

    def one_request_each(line: Line) -> None:
        line.request()
        line.send(OK)
        if len(upstream.lines) > 1:
            return line.wait_for_end()
        client_has_its_answer.wait(10)
        if "answer" in goodbye:
            line.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        if "FIN" in goodbye:
            line.finish()
        if goodbye == "RST":
            line.reset()
        gone.set()
        return line.wait_for_end() if goodbye != "RST" else None

    upstream.plays(one_request_each)
    client_has_its_answer = threading.Event()

    first = _write(port, new_key() if keyed else None)
    client_has_its_answer.set()
    assert gone.wait(10)
    second = _write(port, new_key() if keyed else None)

    assert [(200, "executed" if keyed else "bypassed")] * 2 == [first, second]
    assert 2 == len(upstream.requests)
    assert 2 == len(upstream.lines)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"more than was announced",
        OK + OK,
    ],
    ids=["close", "HTTP/1.0", "surplus bytes", "a second answer"],
)
def test_a_connection_that_cannot_be_trusted_is_not_kept(upstream: Upstream, port: int, answer: bytes) -> None:
    """What follows an answer never becomes the answer to another request."""

    def play(line: Line) -> None:
        line.request()
        line.send(answer)
        line.wait_for_end()

    upstream.plays(play)

    found = [ask(port, request("POST", "/charges", body=b"amount=1", key=new_key())) for _ in range(3)]

    assert [b"ok"] * 3 == [one.body for one in found]
    assert [1, 1, 1] == [len(line.raw.split(b"POST ")) - 1 for line in upstream.wait_for_lines(3)]


def test_a_connection_whose_request_was_not_read_whole_is_not_kept(upstream: Upstream, port: int) -> None:
    """After an answer that came before the end of an upload, what was not uploaded is not taken from the next request."""

    def answers_at_once(line: Line) -> None:
        line.request_head()
        line.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        line.wait_for_end()

    upstream.plays(answers_at_once)
    with Client(port) as uploader:
        uploader.send(request("PUT", "/file", "Content-Length: 100000") + bytes(10))
        early = uploader.message()
        other = ask(port, request("PUT", "/other", "Content-Length: 0"))

    assert [413, 413] == [status(early), status(other)]
    assert [b"PUT /file HTTP/1.1", b"PUT /other HTTP/1.1"] == [arrived.start for arrived in upstream.requests]
    assert 2 == len(upstream.lines)


def test_a_broken_upload_is_not_taken_for_a_whole_one(upstream: Upstream, port: int) -> None:
    """When the client breaks off within a chunked body, the upstream sees the connection break, and no last chunk."""

    def reads_on(line: Line) -> None:
        head = line.head()
        line.until(b"12345\r\n")
        upstream.record(head)
        line.wait_for_end()

    upstream.plays(reads_on)
    client = Client(port)
    client.send(request("PUT", "/file", "Transfer-Encoding: chunked") + b"5\r\n12345\r\n")
    line = upstream.wait_for_lines(1)[0]
    upstream.wait_for_requests(1)
    client.close()
    upstream.wait_for_end_of(line)

    assert line.raw.endswith(b"\r\n\r\n5\r\n12345\r\n")


def test_requests_at_the_same_time_have_connections_of_their_own(upstream: Upstream, port: int, records: Records) -> None:
    """An answer goes to the request that it answers, however many are under way."""
    all_there = threading.Barrier(8, timeout=10)

    def echo(line: Line) -> None:
        while True:
            body = line.request().body
            all_there.wait()
            line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    upstream.plays(echo)
    clients = [Client(port) for _ in range(8)]
    keys = [new_key() for _ in clients]
    for client, key in zip(clients, keys, strict=True):
        client.send(request("POST", "/charges", body=key.encode(), key=key))
    bodies = [client.message().body.decode() for client in clients]
    for client in clients:
        client.close()

    assert keys == bodies
    assert ["completed"] * 8 == [records.phase(key) for key in keys]


def test_a_reset_before_the_answer_is_not_taken_for_an_idle_end(upstream: Upstream, port: int) -> None:
    """On a kept connection too, a request that has been read and not answered is unknown and not sent again."""

    def answers_once(line: Line) -> None:
        line.request()
        line.send(OK)
        line.request()
        line.reset()

    upstream.plays(answers_once)

    first = _write(port, new_key())
    second = ask(port, request("POST", "/charges", body=b"amount=1", key=new_key()))

    assert (200, "executed") == first
    assert (502, "outcome-unknown", "unknown", "after_check") == problem(second)
    assert 2 == len(upstream.requests)
    assert 1 == len(upstream.lines)
