"""Hundreds of generated requests and answers come out on the other side as the contract says, and in no other way."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from tests.wire.bytestream import Message
from tests.wire.client import Client, new_key, outcome, request
from tests.wire.corpus import (
    KEY,
    REQUEST_ID,
    Seen,
    Told,
    draw_answer,
    draw_request,
    expected_answer,
    expected_outcome,
    expected_replay,
    expected_request,
    read_strictly,
)
from tests.wire.upstream import Line, Play, Upstream

SEED = 20_260_728
EXAMPLES = 150
"""Of each of the two kinds of requests, and of answers."""

HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
OURS = ("Idempotency-Status", "Idempotent-Replayed", "Content-Length", "Transfer-Encoding", "Connection")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

generated = settings(
    max_examples=EXAMPLES,
    database=None,  # what runs is what the seed says, whatever failed here before
    deadline=None,  # an example is a round trip between processes that share their processors with others
    phases=[Phase.generate],  # no shrinking, which would take minutes of round trips: the example is told as it stands
    print_blob=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # the upstream is told anew what to play in every example
        HealthCheck.too_slow,  # it measures drawing, which a busy machine slows
        HealthCheck.data_too_large,  # bodies are meant to be large at times
    ],
)


def _takes_all(line: Line) -> None:
    """Answer each request of a connection."""
    while True:
        line.send(OK[:-2] if line.request().start.startswith(b"HEAD ") else OK)


def _without_made_id(seen: Seen) -> Seen:
    lines = tuple(re.sub(rb"^(X-Request-Id: )(?!r-\d$)[!-~]{8,}$", rb"\1" + REQUEST_ID, line) for line in seen.lines)
    return Seen(seen.start, lines, seen.body)


@HOW
@seed(SEED)
@generated
@given(data=st.data())
def test_a_request_arrives_as_the_contract_says(upstream: Upstream, port: int, data: st.DataObject, *, keyed: bool) -> None:
    """The upstream sees exactly one request, in one reading, that differs only where it must."""
    told = draw_request(data, covered=keyed)
    note(f"seed {SEED}: {told.raw!r}")
    if not upstream.requests:
        upstream.plays(_takes_all)
    known = len(upstream.requests)
    with Client(port) as client:
        client.send(told.raw.replace(KEY, new_key().encode()))
        answer = client.message(bodiless=told.start.startswith(b"HEAD "))
        while answer.start == b"HTTP/1.1 100 Continue":
            answer = client.message(bodiless=told.start.startswith(b"HEAD "))

    assert b"HTTP/1.1 200 OK" == answer.start, answer
    (arrived,), rest = read_strictly(b"".join(one.raw for one in upstream.requests[known:]))
    authority = b"127.0.0.1:%d" % upstream.port
    assert (expected_request(told, authority, covered=keyed), b"") == (_without_made_id(arrived), rest)


def _plays(told: Told) -> Play:
    """Answer each request of a connection with `told`; where the end of the connection is the body's, once."""
    ends = not any(line.lower().startswith((b"content-length:", b"transfer-encoding:")) for line in told.lines)
    lasts = told.start.split(b" ")[1] in {b"204", b"304"}

    def play(line: Line) -> None:
        line.request()
        line.send(told.raw)
        if not ends or lasts:
            line.wait_for_end()

    return play


def _seen(answer: Message) -> Seen:
    return Seen(answer.start, tuple(answer.lines_without(*OURS)), answer.body)


@HOW
@seed(SEED)
@generated
@given(data=st.data())
def test_an_answer_arrives_as_the_contract_says(upstream: Upstream, port: int, data: st.DataObject, *, keyed: bool) -> None:
    """The client sees exactly one answer that differs only where it must; a retry of a completed operation the same one."""
    told = draw_answer(data)
    note(f"seed {SEED}: {told.raw!r}")
    upstream.plays(_plays(told))
    key = new_key() if keyed else None
    asked, asked_last = (request("POST", "/x", *lines, body=b"1", key=key) for lines in ([], ["Connection: close"]))
    status = expected_outcome(told) if keyed else "bypassed"
    with Client(port) as client:
        first = client.ask(asked if status == "executed" else asked_last)
        second = client.ask(asked_last) if status == "executed" else None
        assert client.ended(), "something follows the answer"

    assert (expected_answer(told), status) == (_seen(first), outcome(first))
    bodiless = told.start.split(b" ")[1] in {b"204", b"304"}
    assert (0 if bodiless else 1) == len(first.values("content-length") + first.values("transfer-encoding"))
    if second is not None:
        assert (expected_replay(told), "replayed") == (_seen(second), outcome(second))
    assert 1 == len(upstream.requests)
