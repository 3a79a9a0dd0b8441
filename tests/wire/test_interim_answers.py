"""Interim answers (1xx): passed on before the final one where nothing is owed first, and never a part of it."""

from __future__ import annotations

import threading

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b.js>\r\nX-Early: 1\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\nX-Early: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nX-Final: 1\r\nContent-Length: 2\r\n\r\nok"
UNKNOWN = (502, "outcome-unknown", "unknown", "after_check")


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_hints_come_before_the_answer_exists(upstream: Upstream, port: int, method: str) -> None:
    """Each is with the client as soon as it is here: its status line and its fields in order, case and repeats."""
    client_has_hints = threading.Event()

    def hints_and_waits(line: Line) -> None:
        line.request()
        line.send(PROCESSING + HINTS)
        client_has_hints.wait(10)
        line.send(OK.removesuffix(b"ok") if method == "HEAD" else OK)
        line.request()
        line.send(OK)

    upstream.plays(hints_and_waits)
    with Client(port) as client:
        client.send(request(method, "/page", body=b"1" if method == "POST" else None))
        interim = [client.exactly(len(PROCESSING)), client.exactly(len(HINTS))]
        client_has_hints.set()
        final = client.message(bodiless=method == "HEAD")
        client.send(request("GET", "/next"))
        following = client.message()

    assert [PROCESSING, HINTS] == interim
    assert (200, b"" if method == "HEAD" else b"ok", [b"1"], []) == (
        status(final),
        final.body,
        final.values("x-final"),
        final.values("x-early") + final.values("link"),
    )
    assert 200 == status(following)


def test_what_belongs_to_one_hop_is_not_hinted(upstream: Upstream, port: int) -> None:
    """Hop-by-hop fields, those that Connection names, framing and what only we may say stay here in an interim answer too."""
    hop = b"Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 5\r\nIdempotency-Status: executed\r\n"
    upstream.plays(answers(HINTS.replace(b"X-Early: 1\r\n", hop) + OK))
    with Client(port) as client:
        client.send(request("GET", "/page"))
        hinted, final = client.head(), client.message()

    assert (b"Link: </a.css>; rel=preload", b"link: </b.js>") == hinted.lines
    assert (200, b"ok") == (status(final), final.body)


@pytest.mark.parametrize("early", [CONTINUE, CONTINUE * 3 + PROCESSING + HINTS])
def test_a_covered_request_gets_one_answer(upstream: Upstream, port: int, records: Records, early: bytes) -> None:
    """Nothing is said before the settlement: interim answers are dropped, and neither replayed nor part of what is."""
    upstream.plays(answers(early + OK))
    key = new_key()
    asked = request("POST", "/charges", body=b"1", key=key)

    first, retry = ask(port, asked), ask(port, asked)

    assert [(200, "executed", b"ok"), (200, "replayed", b"ok")] == [
        (status(one), outcome(one), one.body) for one in (first, retry)
    ]
    assert [[], []] == [one.values("x-early") + one.values("link") for one in (first, retry)]
    assert "completed" == records.phase(key)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("early", [CONTINUE, CONTINUE * 5])
def test_100_is_ours_alone(upstream: Upstream, port: int, early: bytes) -> None:
    """Whether the client is told to continue is decided here; an upstream's 100 is not passed on."""
    upstream.plays(answers(early + OK))

    answer = ask(port, request("POST", "/x", body=b"1"))

    assert (200, b"ok", []) == (status(answer), answer.body, answer.values("x-early"))


def test_an_http_1_0_client_gets_one_answer(upstream: Upstream, port: int) -> None:
    """It would take an interim answer for the final one (RFC 9110, section 15.2)."""
    upstream.plays(answers(HINTS + OK))

    answer = ask(port, request("GET", "/page").replace(b"HTTP/1.1", b"HTTP/1.0", 1))

    assert (200, b"ok", []) == (status(answer), answer.body, answer.values("link"))


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("count", [100, 101, 10_000])
def test_interim_answers_have_a_limit(upstream: Upstream, port: int, records: Records, count: int, *, keyed: bool) -> None:
    """A hundred may come; of an upstream that goes on like this nobody knows what became of the request."""
    upstream.plays(answers(PROCESSING * count + OK))
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", body=b"1", key=key if keyed else None))
        early = 0
        while 102 == status(answer := client.head()):
            early += 1
        answer = type(answer)(answer.start, answer.lines, client.exactly(int(answer.values("content-length")[0])), answer.raw)

    if count <= 100:
        assert (200, b"ok") == (status(answer), answer.body)
    else:
        assert UNKNOWN == problem(answer)
    assert (0 if keyed else 100) == early
    assert (("completed" if count <= 100 else "unknown") if keyed else None) == records.phase(key)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_their_bytes_count_as_those_of_a_head(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """Fifty interim answers of 8 KiB each are over the limit of 256 KiB."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: %b\r\n\r\n" % (b"x" * 8192)
    upstream.plays(answers(hint * 50 + OK))
    with Client(port) as client:
        client.send(request("POST", "/x", body=b"1", key=new_key() if keyed else None))
        while 103 == status(answer := client.head()):
            pass

    assert 502 == status(answer)
    assert [b'idemproxy; error=http_response_header_section_size; details="outcome-unknown"'] == answer.values("proxy-status")


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("then", ["ends", "falls silent"])
def test_an_interim_answer_alone_is_none(upstream: Upstream, port: int, records: Records, then: str, *, keyed: bool) -> None:
    """The final one must follow, within the time for the first byte."""

    def only_hints(line: Line) -> None:
        line.request()
        line.send(HINTS)
        if then == "falls silent":
            line.wait_for_end()

    upstream.plays(only_hints)
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", "Host: impatient", body=b"1", key=key if keyed else None))
        hinted = None if keyed else client.head()
        answer = client.message()

    assert (502 if then == "ends" else 504, *UNKNOWN[1:]) == problem(answer)
    assert (None if keyed else 103) == (hinted and status(hinted))
    assert ("unknown" if keyed else None) == records.phase(key)


@pytest.mark.parametrize("how", ["asked", "unasked"])
def test_hints_may_come_before_a_switch_of_protocols(upstream: Upstream, port: int, how: str) -> None:
    """The last interim answer is the 101, and it must still have been asked for."""
    upstream.plays(answers(HINTS + b"HTTP/1.1 101 Yes\r\nConnection: Upgrade\r\nUpgrade: example\r\n\r\nhello"))
    with Client(port) as client:
        client.send(request("GET", "/x", "Connection: Upgrade", "Upgrade: example" if how == "asked" else "Upgrade: other"))
        hinted, answer = client.head(), client.head()
        said = client.exactly(5) if how == "asked" else b""

    assert 103 == status(hinted)
    assert (101 if how == "asked" else 502) == status(answer)
    assert (b"hello" if how == "asked" else b"") == said
    assert [] == answer.values("link")
