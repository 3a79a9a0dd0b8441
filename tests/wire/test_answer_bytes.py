"""An answer reaches the client as the upstream wrote it, and so does every replay, less what speaks of one exchange only."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.wire.bytestream import Message
from tests.wire.client import Client, ask, new_key, outcome, request, status
from tests.wire.upstream import Line, Play, Upstream, answers

HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
OURS = ("Idempotency-Status", "Idempotent-Replayed", "Content-Length", "Transfer-Encoding")
EVERY_BYTE = bytes(range(256)) * 5


def _once(answer: bytes) -> Play:
    """A play: one answer, whose end is the end of the connection."""

    def play(line: Line) -> None:
        line.request()
        line.send(answer)

    return play


def _seen(message: Message) -> tuple[bytes, list[bytes], bytes]:
    """An answer without what this proxy adds: status line, field lines, body."""
    return message.start, message.lines_without(*OURS), message.body


def _undated(raw: bytes) -> bytes:
    """An answer without the second at which it expires: the first caller hears when that is at the earliest."""
    return re.sub(rb"expires=\d+", b"expires", raw)


ANSWERS = {
    "200": (b"200 OK", (b"Content-Type: text/plain",), b"ok"),
    "binary": (b"200 OK", (b"Content-Type: application/octet-stream",), EVERY_BYTE),
    "empty": (b"200 OK", (), b""),
    "an odd reason": (b"200 Very  well \xe9 indeed", (), b"ok"),
    "no reason": (b"200 ", (), b"ok"),
    "201": (b"201 Created", (b"Location: /x/%2f?a=b#c", b'ETag: W/"1"'), b"{}"),
    "202": (b"202 Accepted", (b"Preference-Applied: respond-async",), b""),
    "205": (b"205 Reset Content", (), b""),
    "299": (b"299 Own", (), b"1"),
    "203": (b"203 Non-Authoritative Information", (b"Warning: 214 - x",), b"1"),
    "300": (b"300 Multiple Choices", (b"Link: </a>; rel=alternate",), b"choose"),
    "301": (b"301 Moved Permanently", (b"Location: /moved",), b"moved"),
    "302": (b"302 Found", (b"Location: http://elsewhere.example/",), b"moved"),
    "303": (b"303 See Other", (b"Location: //elsewhere.example",), b""),
    "307": (b"307 Temporary Redirect", (b"Location: /again",), b""),
    "308": (b"308 Permanent Redirect", (b"Location: /again?%7E#f",), b""),
    "400": (b"400 Bad Request", (b"Content-Type: application/problem+json",), b'{"type":"theirs"}'),
    "404": (b"404 Not Found", (), b"no"),
    "422": (b"422 Unprocessable", (), b"no"),
    "501": (b"501 Not Implemented", (), b"no"),
    "gzip": (b"200 OK", (b"Content-Encoding: gzip", b"Vary: Accept-Encoding"), gzip.compress(EVERY_BYTE, mtime=0)),
    "br": (b"200 OK", (b"Content-Encoding: br",), EVERY_BYTE),
    "a coding of their own": (b"200 OK", (b"Content-Encoding: x-own, gzip", b"Content-Type: application/json"), EVERY_BYTE),
    "not gzip": (b"200 OK", (b"content-encoding: gzip",), b"this is not gzip"),
    "no body of HTTP": (b"200 OK", (), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "fields": (
        b"200 OK",
        (
            b"x-repeat: 1",
            b"X-Repeat: 2",
            b"x-repeat: 1",
            b"X-Empty: ",
            b"X-Text: caf\xe9 \xc3\xa9 \xff",
            b'X-Spaces: a  b\tc ",;="',
            b"date: then",
            b"SERVER: them",
            b"Via: 1.1 other",
            b"Cache-Control: no-store",
            b"Age: 5",
            b"Link: <a>, <b>",
            b'X-Powered-By: "x"',
            b"x!#$%&'*+-.^_`|~9: 1",
            b"X-Accel-Redirect: /inner",
            b"Content-Location: /x/1",
            b"Content-Digest: sha-256=:x:",
        ),
        b"ok",
    ),
}


@HOW
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_comes_byte_for_byte(upstream: Upstream, port: int, name: str, *, keyed: bool) -> None:
    """Status line, field lines in order with case and repeats, and body are the upstream's; the length is right."""
    line, fields, body = ANSWERS[name]
    upstream.plays(answers(b"\r\n".join([b"HTTP/1.1 " + line, *fields, b"Content-Length: %d" % len(body), b"", body])))

    answer = ask(port, request("POST", "/x", body=b"1", key=new_key() if keyed else None))

    assert (b"HTTP/1.1 " + line, list(fields), body) == _seen(answer)
    assert [b"%d" % len(body)] == answer.values("content-length")
    assert [] == answer.values("transfer-encoding")
    assert ("executed" if keyed else "bypassed") == outcome(answer)
    assert 1 == len(upstream.requests), "a redirect is the client's to follow"


@HOW
@pytest.mark.parametrize("framing", [b"Content-Length: 2\r\n\r\nok", b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"])
def test_cookies_are_never_folded(upstream: Upstream, port: int, framing: bytes, *, keyed: bool) -> None:
    """Each is a line, in order and as it was written, also among others of its name (RFC 9110, section 5.3)."""
    lines = [b"Set-Cookie: a=1, 2; Path=/", b"A: 1", b"set-cookie: a=1", b"Set-Cookie: ", b"SET-COOKIE: a=1; Expires=Mon, 1 Jan"]
    upstream.plays(answers(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, framing])))

    answer = ask(port, request("POST", "/x", body=b"1", key=new_key() if keyed else None))

    assert (b"HTTP/1.1 200 OK", lines, b"ok") == _seen(answer)


@HOW
@pytest.mark.parametrize("length", [b"Content-Length: 2", b"content-length: 0002"])
def test_a_length_is_counted_and_not_copied(upstream: Upstream, port: int, length: bytes, *, keyed: bool) -> None:
    """However the upstream writes the number, the client reads it in one way only."""
    upstream.plays(answers(b"HTTP/1.1 200 OK\r\n" + length + b"\r\nA: 1\r\n\r\nok"))

    answer = ask(port, request("POST", "/x", body=b"1", key=new_key() if keyed else None))

    assert (b"HTTP/1.1 200 OK", [b"A: 1"], b"ok") == _seen(answer)
    assert [b"2"] == answer.values("content-length")


@pytest.mark.parametrize("name", ANSWERS)
def test_a_replay_is_the_first_answer_byte_for_byte(upstream: Upstream, port: int, name: str) -> None:
    """All of it, with two lines that say what it is."""
    line, fields, body = ANSWERS[name]
    upstream.plays(answers(b"\r\n".join([b"HTTP/1.1 " + line, *fields, b"Content-Length: %d" % len(body), b"", body])))
    asked = request("POST", "/x", body=b"1", key=new_key())
    ours = b"\r\nContent-Length: %d\r\n\r\n" % len(body)

    first, second, third = (ask(port, asked) for _ in range(3))

    expected = _undated(first.raw).replace(b"executed", b"replayed").replace(ours, b"\r\nIdempotent-Replayed: true" + ours)
    assert [expected] * 2 == [_undated(second.raw), _undated(third.raw)]
    assert 1 == len(upstream.requests)


@HOW
@pytest.mark.parametrize("answer", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"], ids=["no length", "length 0"])
def test_an_answer_that_has_no_body_has_no_length(
    upstream: Upstream, port: int, answer: bytes, length: bytes, *, keyed: bool
) -> None:
    """204 and 304 end with their head, first and replayed (RFC 9110, section 8.6)."""
    upstream.plays(answers(b"HTTP/1.1 " + answer + b'\r\nETag: "1"\r\n' + length + b"\r\n"))
    asked = request("PUT", "/x", body=b"1", key=new_key() if keyed else None)

    found = [ask(port, asked) for _ in range(2)]

    assert [(b"HTTP/1.1 " + answer, [b'ETag: "1"'], b"")] * 2 == [_seen(one) for one in found]
    assert [[], []] == [one.values("content-length") + one.values("transfer-encoding") for one in found]
    assert (1 if keyed else 2) == len(upstream.requests)


def test_an_answer_to_head_has_the_length_of_what_it_stands_for(upstream: Upstream, port: int) -> None:
    """HEAD passes through with the announced length and no body, and the connection carries the next request."""
    upstream.plays(answers(b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 10\r\n\r\n", b"HTTP/1.1 200 OK\r\nB: 2\r\n\r\n"))

    found = [ask(port, request("HEAD", "/x")) for _ in range(2)]

    assert [b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 10\r\n\r\n", b"HTTP/1.1 200 OK\r\nB: 2\r\n\r\n"] == [
        one.raw for one in found
    ]
    assert 1 == len(upstream.lines)


def test_a_read_is_passed_on_without_a_word_of_ours(upstream: Upstream, port: int) -> None:
    """A safe request is no operation, so nothing is said about one."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
    upstream.plays(answers(answer))

    assert [answer] * 3 == [ask(port, request(method, "/x", key=new_key())).raw for method in ("GET", "OPTIONS", "TRACE")]


@HOW
def test_what_belongs_to_one_hop_ends_here(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """Hop-by-hop fields of an answer, those that its Connection names, and what only we may say do not go on."""
    upstream.plays(
        answers(
            b"HTTP/1.1 200 OK\r\nA: 1\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nUpgrade: h2c\r\n"
            b"Trailer: X\r\nProxy-Authenticate: Basic\r\nIdempotency-Status: forged\r\nIdempotent-Replayed: true\r\n"
            b"Proxy-Status: forged\r\nB: 2\r\nContent-Length: 2\r\n\r\nok"
        )
    )

    answer = ask(port, request("POST", "/x", body=b"1", key=new_key() if keyed else None))

    assert (b"HTTP/1.1 200 OK", [b"A: 1", b"B: 2"], b"ok") == _seen(answer)
    assert ("executed" if keyed else "bypassed") == outcome(answer)


def test_what_speaks_of_one_exchange_is_not_replayed(upstream: Upstream, port: int) -> None:
    """Cookies, challenges, rate limits and request ids reach the first caller, and no other."""
    denied = (
        b"Set-Cookie: a=b; Path=/",
        b"set-cookie: c=d",
        b"WWW-Authenticate: Basic",
        b"Authentication-Info: x",
        b"Retry-After: 5",
        b"RateLimit: 1",
        b"RateLimit-Policy: 2",
        b"X-RateLimit-Remaining: 3",
        b"X-Request-Id: 4",
        b"Request-Id: 5",
        b"X-Correlation-Id: 6",
    )
    kept = (b"A: 1", b"X-Request-Ids: 1", b"Date: then", b"B: 2")
    fields = (kept[0], *denied[:5], kept[1], *denied[5:], *kept[2:])
    upstream.plays(answers(b"\r\n".join([b"HTTP/1.1 200 OK", *fields, b"Content-Length: 2", b"", b"ok"])))
    asked = request("POST", "/x", body=b"1", key=new_key())

    first, second = ask(port, asked), ask(port, asked)

    assert (b"HTTP/1.1 200 OK", list(fields), b"ok") == _seen(first)
    assert (b"HTTP/1.1 200 OK", list(kept), b"ok") == _seen(second)
    assert [[], [b"true"]] == [one.values("idempotent-replayed") for one in (first, second)]


DELIMITED = {
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    "chunks and trailers": b"HTTP/1.1 200 OK\r\nA: 1\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nabcde\r\n0\r\nX: 1\r\n\r\n",
    "the end of the connection": b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\nabcde",
    "the end of the connection, as was said": b"HTTP/1.1 200 OK\r\nConnection: close\r\nA: 1\r\n\r\nabcde",
    "the end of the connection, HTTP/1.0": b"HTTP/1.0 200 OK\r\nA: 1\r\n\r\nabcde",
    "a length, HTTP/1.0": b"HTTP/1.0 200 OK\r\nA: 1\r\nContent-Length: 5\r\n\r\nabcde",
}


@HOW
@pytest.mark.parametrize("how", DELIMITED)
def test_a_body_comes_whole_however_it_was_delimited(upstream: Upstream, port: int, how: str, *, keyed: bool) -> None:
    """The client gets one framing, ours; the body, the status line and the other fields are the upstream's."""
    upstream.plays(_once(DELIMITED[how]) if how.startswith("the end") else answers(DELIMITED[how]))
    asked = request("POST", "/x", body=b"1", key=new_key() if keyed else None)

    found = [ask(port, asked) for _ in range(2)]

    assert [(b"HTTP/1.1 200 OK", [b"A: 1"], b"abcde")] * 2 == [_seen(one) for one in found]
    assert [1, 1] == [len(one.values("content-length") + one.values("transfer-encoding")) for one in found]
    assert [(), ()] == [one.trailers for one in found]
    assert (["executed", "replayed"] if keyed else ["bypassed"] * 2) == [outcome(one) for one in found]


@HOW
def test_informational_answers_come_before_the_answer_to_what_passes_through(
    upstream: Upstream, port: int, *, keyed: bool
) -> None:
    """Each as it was, but for 100, which speaks to this hop; of a covered request only the answer counts, and is told alone."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nlink: <b>\r\n\r\n"
    last = b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 5\r\n\r\nabcde"
    upstream.plays(answers(b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\n" + hints * 2 + last))

    with Client(port) as client:
        client.send(request("POST", "/x", body=b"1", key=new_key() if keyed else None))
        before = [] if keyed else [client.message().raw for _ in range(2)]
        answer = client.message()

    assert ([] if keyed else [hints] * 2) == before
    assert (b"HTTP/1.1 200 OK", [b"A: 1"], b"abcde") == _seen(answer)


@HOW
@pytest.mark.parametrize(
    "framing", [b"Content-Length: 5\r\n\r\nabcde", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"]
)
def test_an_http_1_0_client_gets_no_chunks(upstream: Upstream, port: int, framing: bytes, *, keyed: bool) -> None:
    """It could not read them: the end of the connection is the body's, whatever framing the upstream chose."""
    upstream.plays(answers(b"HTTP/1.1 200 OK\r\nA: 1\r\n" + framing))
    asked = request("POST", "/x", body=b"1", key=new_key() if keyed else None).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n")

    with Client(port) as client:
        answer = client.ask(asked)
        ended = client.ended()

    assert ([b"A: 1", b"Connection: close"], b"abcde", []) == (*_seen(answer)[1:], answer.values("transfer-encoding"))
    assert ended


@pytest.mark.parametrize("code", [401, 403, 407, 408, 409, 421, 425, 429])
def test_an_answer_that_refuses_is_passed_on_and_the_key_is_free(upstream: Upstream, port: int, code: int) -> None:
    """The upstream did not act: the caller gets its words, and the retry is carried out."""
    refusal = b"HTTP/1.1 %d Not now\r\nA: 1\r\nContent-Length: 2\r\n\r\nno" % code
    upstream.plays(answers(refusal, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    asked = request("POST", "/x", body=b"1", key=new_key())

    first, second = ask(port, asked), ask(port, asked)

    assert (b"HTTP/1.1 %d Not now" % code, [b"A: 1"], b"no") == _seen(first)
    assert ["refused", "executed"] == [outcome(first), outcome(second)]
    assert 200 == status(second)
