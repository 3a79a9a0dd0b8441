"""What clients may do with a connection: wait for permission, send too much, pipeline, keep it, or speak HTTP/1.0."""

from __future__ import annotations

import threading

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@HOW
@pytest.mark.parametrize("framing", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_client_that_waits_for_permission_gets_it_from_us(upstream: Upstream, port: int, framing: str, *, keyed: bool) -> None:
    """100 comes before the body is sent; the upstream gets no expectation, and one whole request."""
    upstream.plays(answers(OK))
    body = b"12345" if framing.startswith("Content") else b"5\r\n12345\r\n0\r\n\r\n"
    with Client(port) as client:
        client.send(request("POST", "/x", "EXPECT: 100-Continue", framing, key=new_key() if keyed else None))
        permission = client.exactly(len(CONTINUE))
        client.send(body)
        answer = client.message()

    (arrived,) = upstream.requests
    assert CONTINUE == permission
    assert (200, b"ok") == (status(answer), answer.body)
    assert (b"12345", []) == (arrived.body, arrived.values("expect"))


def test_permission_is_not_given_twice(upstream: Upstream, port: int) -> None:
    """An upstream that says 100 by itself is not heard: the client has its 100 from us."""
    upstream.plays(answers(CONTINUE + OK))
    with Client(port) as client:
        client.send(request("POST", "/x", "Expect: 100-continue", "Content-Length: 5"))
        client.exactly(len(CONTINUE))
        answer = client.ask(b"12345")

    assert (200, b"ok") == (status(answer), answer.body)


def test_an_http_1_0_client_is_not_told_to_continue(upstream: Upstream, port: int) -> None:
    """It would take 100 for the answer (RFC 9110, section 10.1.1)."""
    upstream.plays(answers(OK))
    asked = request("POST", "/x", "Expect: 100-continue", body=b"12345", key=new_key()).replace(b"HTTP/1.1", b"HTTP/1.0", 1)

    answer = ask(port, asked)

    assert (200, b"ok") == (status(answer), answer.body)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Idempotency-Key: "], (400, "key-invalid", "no", "new_key")),
        (["Idempotency-Key: a, b"], (400, "key-invalid", "no", "new_key")),
        (["Idempotency-Key: a", "idempotency-key: a"], (400, "key-invalid", "no", "new_key")),
        (["Idempotency-Key: " + "k" * 256], (400, "key-invalid", "no", "new_key")),
        (["Host: required"], (400, "key-missing", "no", "new_key")),
        (["Host: small", "Idempotency-Key: large"], (413, "body-too-large", "no", "never")),
    ],
    ids=["empty", "a list", "two lines", "256 characters", "missing", "too large"],
)
def test_what_is_refused_is_refused_before_the_body_is_asked_for(
    upstream: Upstream, port: int, lines: list[str], expected: tuple[int, str, str, str]
) -> None:
    """No 100 first, and the connection ends, since a body that may still come is not read."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        client.send(request("POST", "/x", *lines, "Expect: 100-continue", "Content-Length: 5000"))
        answer = client.message()

    assert expected == problem(answer)
    assert "refused" == outcome(answer)
    assert [b"close"] == answer.values("connection")
    assert [] == upstream.lines


@pytest.mark.parametrize("lines", [["Idempotency-Key: a, b"], ["Host: small", "Idempotency-Key: large"]], ids=["key", "size"])
def test_a_refusal_reaches_a_client_that_is_still_sending(upstream: Upstream, port: int, lines: list[str]) -> None:
    """Eight megabytes that nobody wants do not hide the reply behind a reset."""
    answer = ask(port, request("POST", "/x", *lines, body=bytes(8_000_000)))

    assert status(answer) in {400, 413}
    assert [] == upstream.lines


@pytest.mark.parametrize("size", [1024, 1025, 100_000])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "declared"])
def test_a_body_over_the_limit_is_413_before_anything_is_stored(
    upstream: Upstream, port: int, records: Records, size: int, *, chunked: bool
) -> None:
    """Up to max_request_body it is carried out; one byte more is refused, with no record, and nothing sent."""
    upstream.plays(answers(OK))
    key = new_key()
    body = bytes(size)
    if chunked:
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(body[at : at + 700]), body[at : at + 700]) for at in range(0, size, 700))
        asked = request("POST", "/x", "Host: small", "Transfer-Encoding: chunked", key=key) + pieces + b"0\r\n\r\n"
    else:
        asked = request("POST", "/x", "Host: small", body=body, key=key)

    answer = ask(port, asked)

    if size <= 1024:
        assert (200, "completed", 1) == (status(answer), records.phase(key), len(upstream.requests))
    else:
        assert (413, "body-too-large", "no", "never") == problem(answer)
        assert (None, 0) == (records.phase(key), len(upstream.requests))


@HOW
def test_a_body_that_is_wrongly_framed_is_not_sent_as_a_whole_one(
    upstream: Upstream, port: int, records: Records, *, keyed: bool
) -> None:
    """A bad chunk size ends the connection; covered, there is no record and nothing was sent."""
    upstream.plays(answers(OK))
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", "Transfer-Encoding: chunked", key=key if keyed else None) + b"5\r\n12345\r\nxyz\r\n")
        replied = client.rest()

    assert b" 200 " not in replied
    assert records.phase(key) is None
    if keyed:
        assert [] == upstream.lines
    else:
        assert [] == upstream.requests


def test_pipelined_requests_are_answered_in_order(upstream: Upstream, port: int) -> None:
    """Sent at once, reads and writes are carried out one after the other, each with its own answer."""
    numbered = [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number for number in range(6)]
    upstream.plays(answers(*numbered))
    key = new_key()
    pipeline = [
        request("POST", "/1", body=b"one", key=key),
        request("GET", "/2"),
        request("POST", "/3", "Transfer-Encoding: chunked", key=new_key()) + b"3\r\nabc\r\n0\r\n\r\n",
        request("POST", "/1", body=b"one", key=key),
        request("PUT", "/5", body=b"five"),
        request("HEAD", "/6"),
    ]
    with Client(port) as client:
        client.send(b"".join(pipeline))
        found = [client.message(bodiless=asked.startswith(b"HEAD")) for asked in pipeline]

    assert [b"0", b"1", b"2", b"0", b"3", b""] == [answer.body for answer in found]
    assert ["executed", "", "executed", "replayed", "bypassed", ""] == [outcome(answer) for answer in found]
    assert [b"/1", b"/2", b"/3", b"/5", b"/6"] == [arrived.start.split(b" ")[1] for arrived in upstream.requests]


@pytest.mark.parametrize("count", [2, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("split", [0, 7], ids=["one packet", "in pieces"])
def test_any_number_of_requests_may_be_sent_at_once(upstream: Upstream, port: int, count: int, split: int) -> None:
    """However many are waiting, and wherever a packet ends, each is read once, and answered in its turn."""
    bodies = [b"%d" % number * (number % 5) for number in range(count)]
    upstream.plays(answers(*[b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d" % (len(str(n)), n) for n in range(count)]))
    chunked = [b"%x\r\n%b\r\n" % (len(body), body) if body else b"" for body in bodies]
    asked = b"".join(
        request("POST", f"/{number}", "Transfer-Encoding: chunked") + chunked[number] + b"0\r\n\r\n"
        if number % 3
        else request("POST", f"/{number}", body=body)
        for number, body in enumerate(bodies)
    )
    with Client(port) as client:
        for at in range(0, len(asked), split * 100 or len(asked)):
            client.send(asked[at : at + (split * 100 or len(asked))])
        found = [client.message() for _ in range(count)]

    assert [b"%d" % number for number in range(count)] == [answer.body for answer in found]
    assert [(f"/{number}".encode(), body) for number, body in enumerate(bodies)] == [
        (arrived.start.split(b" ")[1], arrived.body) for arrived in upstream.requests
    ]


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "other"])
@pytest.mark.parametrize("body", [None, b"1"], ids=["no body", "a body"])
def test_what_is_behind_a_declined_upgrade_is_the_next_request(
    upstream: Upstream, port: int, protocol: str, body: bytes | None
) -> None:
    """The upstream does not switch, or is not even asked: no byte that came with the request is lost or taken for another's."""
    upstream.plays(answers(OK))
    first = request("POST", "/1", "Connection: Upgrade", f"Upgrade: {protocol}", body=body)
    behind = [
        request("GET", "/2"),
        request("POST", "/3", body=b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        request("GET", "/4"),
    ]
    with Client(port) as client:
        client.send(first + behind[0] + behind[1][:-20])
        found = [client.message(), client.message()]
        client.send(behind[1][-20:] + behind[2])
        found += [client.message(), client.message()]

    assert [200] * 4 == list(map(status, found))
    assert [b"/1", b"/2", b"/3", b"/4"] == [arrived.start.split(b" ")[1] for arrived in upstream.requests]


@HOW
@pytest.mark.parametrize(
    "refused",
    [
        request("POST", "/x", "Host: required", body=b"12345"),
        request("POST", "/x", "Host: small", f"Idempotency-Key: {new_key()}", body=bytes(5000)),
        request("POST", "/_idemproxy/x", body=b"12345"),
        request("POST", "/x#y", body=b"12345"),
        request("CONNECT", "x:443"),
        b"nonsense\r\n\r\n",
    ],
    ids=["key missing", "too large", "own path", "bad target", "CONNECT", "unreadable"],
)
def test_nothing_is_read_behind_a_refused_request(upstream: Upstream, port: int, refused: bytes, *, keyed: bool) -> None:
    """A request that is refused before its body ends the connection: what follows may be that body, and is not carried out."""
    upstream.plays(answers(OK))
    behind = request("POST", "/behind", body=b"1", key=new_key() if keyed else None)
    with Client(port) as client:
        client.send(refused + behind + behind)
        answer = client.message()
        rest = client.rest()

    assert (True, [b"close"], b"") == (status(answer) >= 400, answer.values("connection"), rest)
    assert [] == upstream.requests


@pytest.mark.parametrize("line", ["Connection: close", "Connection: keep-alive, CLOSE"])
def test_nothing_is_read_behind_a_last_request(upstream: Upstream, port: int, line: str) -> None:
    """A client that says close has said its last; what it sends behind that is not carried out."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        client.send(request("POST", "/1", line, body=b"1") + request("POST", "/2", body=b"2"))
        answer = client.message()
        rest = client.rest()

    assert (200, [b"close"], b"") == (status(answer), answer.values("connection"), rest)
    assert [b"/1"] == [arrived.start.split(b" ")[1] for arrived in upstream.requests]


def test_a_connection_is_kept_after_every_answer_that_allows_it(upstream: Upstream, port: int) -> None:
    """Also after a replay, and a problem that left nothing of the request unread; until the client says close."""
    upstream.plays(answers(OK))
    key = new_key()
    asked = request("POST", "/x", body=b"1", key=key)
    with Client(port) as client:
        kept = [
            client.ask(asked),
            client.ask(asked),
            client.ask(request("POST", "/x", body=b"2", key=key)),
            client.ask(request("GET", "/x")),
        ]
        last = client.ask(request("GET", "/x", "Connection: close"))
        ended = client.ended()

    assert [200, 200, 422, 200, 200] == [status(answer) for answer in [*kept, last]]
    assert [[], [], [], [], [b"close"]] == [answer.values("connection") for answer in [*kept, last]]
    assert ended


@HOW
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_an_http_1_0_client_gets_what_it_understands(upstream: Upstream, port: int, *, kept: bool, keyed: bool) -> None:
    """No chunks; the connection ends after the answer unless the client asked to keep it and the length is known."""
    upstream.plays(answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"))
    lines = ["Connection: keep-alive"] if kept else []
    asked = request("POST", "/x", *lines, body=b"1", key=new_key() if keyed else None).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    with Client(port) as client:
        answer = client.ask(asked)
        again = client.ask(asked) if kept else None
        ended = None if kept else client.ended()

    assert (200, b"ok") == (status(answer), answer.body)
    assert [] == answer.values("transfer-encoding")
    assert [b"keep-alive" if kept else b"close"] == answer.values("connection")
    assert (b"ok" if kept else True) == (again.body if again else ended)


@HOW
def test_an_http_1_0_client_knows_the_end_of_a_stream_by_the_end_of_the_connection(
    upstream: Upstream, port: int, *, keyed: bool
) -> None:
    """Where the length is not known before the end, the connection is not kept, whatever the client asked for."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    def streams(line: Line) -> None:
        line.request()
        line.send(head + b"9\r\ndata: 1\n\n\r\n")
        client_has_begun.wait(10)
        line.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
        line.wait_for_end()

    client_has_begun = threading.Event()
    upstream.plays(streams)
    asked = request("POST", "/x", "Connection: keep-alive", body=b"1", key=new_key() if keyed else None)
    with Client(port) as client:
        client.send(asked.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        began = client.head()
        client.until(b"data: 1\n\n")
        client_has_begun.set()
        rest = client.rest()

    assert ([], [], [b"close"]) == tuple(began.values(name) for name in ("transfer-encoding", "content-length", "connection"))
    assert b"data: 2\n\n" == rest
