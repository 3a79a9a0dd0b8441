"""A client that leaves changes nothing of a covered request: it is carried out, written down, and waits for the retry."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers

OK = b"HTTP/1.1 201 Created\r\nLocation: /charges/1\r\nContent-Length: 2\r\n\r\nok"
Leave: TypeAlias = Callable[[Client], None]
LEAVES = pytest.mark.parametrize("leave", [Client.leave, Client.reset], ids=["FIN", "RST"])


@LEAVES
def test_a_client_that_leaves_while_waiting_finds_the_answer(upstream: Upstream, port: int, leave: Leave) -> None:
    """The upstream answers after the client has gone; the retry gets that answer, and there was one request."""
    client_has_left = threading.Event()

    def answers_late(line: Line) -> None:
        line.request()
        client_has_left.wait(10)
        line.send(OK)
        line.wait_for_end()

    upstream.plays(answers_late)
    asked = request("POST", "/charges", body=b"amount=1", key=new_key())
    client = Client(port)
    client.send(asked)
    upstream.wait_for_requests(1)
    leave(client)
    client_has_left.set()
    retry = ask(port, asked)

    assert (201, "replayed", b"ok") == (status(retry), outcome(retry), retry.body)
    assert 1 == len(upstream.requests)


def test_a_retry_that_comes_while_the_first_is_carried_out_waits_for_it(upstream: Upstream, port: int) -> None:
    """The first client leaves, a second one waits; the answer is the second one's, and nothing is sent for it."""
    go_on = threading.Event()

    def answers_when_told(line: Line) -> None:
        line.request()
        go_on.wait(10)
        line.send(OK)
        line.wait_for_end()

    upstream.plays(answers_when_told)
    asked = request("POST", "/charges", body=b"amount=1", key=new_key())
    first, second, impatient = Client(port), Client(port), Client(port)
    first.send(asked)
    upstream.wait_for_requests(1)
    second.send(asked)
    first.leave()
    hurried = impatient.ask(asked.replace(b"Host:", b"Prefer: wait=0\r\nHost:"))
    go_on.set()
    waited = second.message()
    second.close()
    impatient.close()

    assert (409, "in-progress", "in_progress", "same_key") == problem(hurried)
    assert (201, "replayed", b"ok") == (status(waited), outcome(waited), waited.body)
    assert 1 == len(upstream.requests)


@LEAVES
def test_a_waiting_retry_that_leaves_disturbs_nobody(upstream: Upstream, port: int, leave: Leave) -> None:
    """The first client still gets its answer."""
    go_on = threading.Event()

    def answers_when_told(line: Line) -> None:
        line.request()
        go_on.wait(10)
        line.send(OK)
        line.wait_for_end()

    upstream.plays(answers_when_told)
    asked = request("POST", "/charges", body=b"amount=1", key=new_key())
    with Client(port) as first:
        first.send(asked)
        upstream.wait_for_requests(1)
        second = Client(port)
        second.send(asked)
        leave(second)
        go_on.set()
        answer = first.message()

    assert (201, "executed", b"ok") == (status(answer), outcome(answer), answer.body)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("body", [b"Content-Length: 10\r\n\r\n12345", b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"])
def test_a_client_that_leaves_before_its_request_is_whole_asked_for_nothing(
    upstream: Upstream, port: int, records: Records, body: bytes
) -> None:
    """No record, nothing sent: half a request is no operation."""
    upstream.plays(answers(OK))
    key = new_key()
    client = Client(port)
    client.send(b"POST /charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %b\r\n%b" % (key.encode(), body))

    client.leave()
    phase = records.phase(key)
    complete = ask(port, request("POST", "/charges", body=b"1234567890", key=key))

    assert phase is None
    assert (201, "executed") == (status(complete), outcome(complete))
    assert [b"1234567890"] == [arrived.body for arrived in upstream.requests]


@pytest.mark.parametrize("method", ["GET", "POST"])
@LEAVES
def test_a_request_that_passes_through_ends_with_its_client(upstream: Upstream, port: int, method: str, leave: Leave) -> None:
    """Nobody would get the answer, and nothing keeps it: the upstream is told at once by the end of its connection."""

    def waits(line: Line) -> None:
        line.request()
        line.wait_for_end()

    upstream.plays(waits)
    client = Client(port)
    client.send(request(method, "/slow", "Content-Length: 0"))
    upstream.wait_for_requests(1)
    leave(client)

    upstream.wait_for_end_of(upstream.lines[0])


@LEAVES
@pytest.mark.parametrize("way", ["events", "a download", "an upload", "an upload in chunks"])
def test_what_passes_through_ends_in_the_middle_with_its_client(upstream: Upstream, port: int, way: str, leave: Leave) -> None:
    """Of an answer that streams, or of a body that is still coming: the upstream's connection ends, before any limit of time."""
    begun = threading.Event()

    def is_in_the_middle(line: Line) -> None:
        line.request_head()
        if way == "events":
            line.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n")
        elif way == "a download":
            line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegun")
        else:
            line.until(b"begun")
        begun.set()
        line.wait_for_end()

    upstream.plays(is_in_the_middle)
    client = Client(port)
    if "upload" in way:
        chunked = way == "an upload in chunks"
        client.send(request("PUT", "/file", "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000000"))
        client.send(b"5\r\nbegun\r\n" if chunked else b"begun")
    else:
        client.send(request("GET", "/file"))
        client.until(b"begun\r\n" if way == "events" else b"begun")
    assert begun.wait(10)
    leave(client)

    upstream.wait_for_end_of(upstream.lines[0])
    assert not upstream.lines[0].raw.endswith(b"\r\n0\r\n\r\n"), "a body that was not whole did not end as one that is"


@LEAVES
@pytest.mark.parametrize("when", ["before it begins", "in the middle"])
def test_a_client_that_leaves_a_stream_leaves_a_whole_record(
    upstream: Upstream, port: int, records: Records, leave: Leave, when: str
) -> None:
    """The stream is read to its end for the store alone, and the retry gets all of it."""
    client_has_left = threading.Event()
    events = [b"data: %d\n\n" % number for number in range(1000)]
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 0\n\n\r\n"

    def streams(line: Line) -> None:
        line.request()
        if when == "in the middle":
            line.send(begun)
        client_has_left.wait(10)
        if when == "before it begins":
            line.send(begun)
        for event in events[1:]:
            line.send(b"%x\r\n%b\r\n" % (len(event), event))
        line.send(b"0\r\n\r\n")
        line.wait_for_end()

    upstream.plays(streams)
    key = new_key()
    asked = request("POST", "/answers", body=b"1", key=key)
    client = Client(port)
    client.send(asked)
    upstream.wait_for_requests(1)
    if when == "in the middle":
        client.until(b"data: 0\n\n\r\n")
    leave(client)
    client_has_left.set()
    retry = ask(port, asked)

    assert (200, "replayed") == (status(retry), outcome(retry))
    assert b"".join(events) == retry.body
    assert "completed" == records.phase(key)
    assert 1 == len(upstream.requests)


def test_a_client_that_does_not_read_its_reply_disturbs_nobody(upstream: Upstream, port: int, records: Records) -> None:
    """The record is settled although the reply cannot be delivered."""
    body = bytes(1_000_000)
    upstream.plays(answers(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)))
    key = new_key()
    asked = request("POST", "/charges", body=b"1", key=key)
    deaf = Client(port)
    deaf.send(asked)
    retry = ask(port, asked)
    deaf.reset()

    assert (200, "replayed", body) == (status(retry), outcome(retry), retry.body)
    assert "completed" == records.phase(key)
    assert 1 == len(upstream.requests)
