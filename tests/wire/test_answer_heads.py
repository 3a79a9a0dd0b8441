"""What is no answer, or too long for one, leaves the outcome unknown: the request has been read, and is not sent again."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.wire.client import Client, ask, new_key, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers

KIB = 1024


def _answer(size: int, lines: int) -> bytes:
    """An answer whose fields have about `size` bytes, on so many lines."""
    fields = b"".join(b"X-%04d: %b\r\n" % (number, b"v" * (size // lines - 10)) for number in range(lines))
    return b"HTTP/1.1 200 OK\r\n" + fields + b"Content-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("lines", [1, 300])
@pytest.mark.parametrize("size", [200 * KIB, 300 * KIB, 1024 * KIB])
def test_a_head_over_the_limit_is_no_answer(
    upstream: Upstream, port: int, records: Records, size: int, lines: int, *, keyed: bool
) -> None:
    """Up to 256 KiB it is passed on; beyond, whether it comes at once or in pieces, the caller hears that nobody knows."""
    upstream.plays(answers(_answer(size, lines)))
    key = new_key()

    answer = ask(port, request("POST", "/x", body=b"1", key=key if keyed else None))

    if size < 256 * KIB:
        assert (200, lines, b"ok") == (status(answer), sum(line.startswith(b"X-") for line in answer.lines), answer.body)
    else:
        assert (502, "outcome-unknown", "unknown", "after_check") == problem(answer)
        error = b'idemproxy; error=http_response_header_section_size; details="outcome-unknown"'
        assert [error] == answer.values("proxy-status")
    assert (("completed" if size < 256 * KIB else "unknown") if keyed else None) == records.phase(key)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize(
    "begin", [b"0\r\nX-T: ", b"0\r\n", b"2;x="], ids=["a trailer's value", "its name", "a chunk's extension"]
)
def test_what_never_ends_behind_a_body_is_no_answer(
    upstream: Upstream, port: int, records: Records, begin: bytes, *, keyed: bool
) -> None:
    """It is given up, the connection with it, and others are served meanwhile as if nothing were."""

    def goes_on_and_on(line: Line) -> None:
        if b" /sound" in line.request().start:
            line.send(SOUND)
            return
        line.send(CHUNKED + b"2\r\nok\r\n" + begin)
        while True:
            line.send(b"a" * 256 * KIB)

    upstream.plays(goes_on_and_on)
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", body=b"1", key=key if keyed else None))
        endless = upstream.wait_for_requests(1)
        other = ask(port, request("POST", "/sound", body=b"1", key=new_key()))
        answer = client.message() if keyed else client.head()
        with suppress(ConnectionResetError):
            assert keyed or client.rest()
    upstream.wait_for_end_of(upstream.lines[0])

    assert (1, 200) == (len(endless), status(other))
    if keyed:
        assert (502, "outcome-unknown", "unknown", "after_check") == problem(answer)
        error = b'idemproxy; error=http_response_trailer_section_size; details="outcome-unknown"'
        assert [error] == answer.values("proxy-status")
    else:
        assert (200, False) == (status(answer), client.raw.endswith(b"0\r\n\r\n"))
    assert ("unknown" if keyed else None) == records.phase(key)


HEAD = b"HTTP/1.1 200 OK\r\n"
SOUND = HEAD + b"Content-Length: 2\r\n\r\nok"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def _status(line: bytes) -> bytes:
    return line + b"\r\nContent-Length: 2\r\n\r\nno"


def _lengths(*values: bytes) -> bytes:
    return HEAD + b"".join(b"Content-Length: %b\r\n" % value for value in values) + b"\r\nno"


NO_ANSWERS = {
    "both framings": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "both framings, the other way round": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two lengths": _lengths(b"2", b"3"),
    "the same length twice": _lengths(b"2", b"2"),
    "a list of lengths": _lengths(b"2, 2"),
    "a negative length": _lengths(b"-2"),
    "a signed length": _lengths(b"+2"),
    "a hexadecimal length": _lengths(b"0x2"),
    "an empty length": _lengths(b""),
    "a length of 24 digits": _lengths(b"9" * 24),
    "an unknown coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "status 000": _status(b"HTTP/1.1 000 No"),
    "status 099": _status(b"HTTP/1.1 099 No"),
    "status 99": _status(b"HTTP/1.1 99 No"),
    "status 600": _status(b"HTTP/1.1 600 No"),
    "status 2000": _status(b"HTTP/1.1 2000 No"),
    "no status": _status(b"HTTP/1.1  No"),
    "HTTP/2.0": _status(b"HTTP/2.0 200 No"),
    "HTTP/2": _status(b"HTTP/2 200 No"),
    "HTTP/1.2": _status(b"HTTP/1.2 200 No"),
    "HTTP/0.9": _status(b"HTTP/0.9 200 No"),
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "a page alone": b"<html>no</html>",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a NUL": HEAD + b"X: a\0b\r\nContent-Length: 2\r\n\r\nno",
    "a CR alone": HEAD + b"X: a\rb\r\nContent-Length: 2\r\n\r\nno",
    "a folded line": HEAD + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\nno",
    "white space before the colon": HEAD + b"Content-Length : 2\r\n\r\nno",
    "a line without a colon": HEAD + b"X\r\nContent-Length: 2\r\n\r\nno",
    "a field without a name": HEAD + b": x\r\nContent-Length: 2\r\n\r\nno",
    "lines without CR": HEAD.replace(b"\r", b"") + b"Content-Length: 2\n\nno",
}


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with a sound one behind it"])
@pytest.mark.parametrize("case", NO_ANSWERS)
def test_what_is_no_answer_is_never_taken_for_one(
    upstream: Upstream, port: int, records: Records, case: str, *, alone: bool, keyed: bool
) -> None:
    """It is told at once as an unknown outcome; what stands behind it is not the answer; and a retry is told so, too."""
    upstream.plays(answers(NO_ANSWERS[case] + (b"" if alone else SOUND)))
    key = new_key()
    asked = request("POST", "/x", body=b"1", key=key if keyed else None)

    first = ask(port, asked)
    retry = ask(port, asked) if keyed else None

    assert (502, "outcome-unknown", "unknown", "after_check") == problem(first)
    assert ("unknown" if keyed else None) == records.phase(key)
    assert retry is None or (409, "outcome-unknown", "unknown", "after_check") == problem(retry)
    assert 1 == len(upstream.requests)
    upstream.wait_for_end_of(upstream.lines[0])


BROKEN_BODIES = {
    "no size": CHUNKED + b"zz\r\nok\r\n0\r\n\r\n",
    "a negative size": CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
    "a size with 0x": CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
    "a size of 17 digits": CHUNKED + b"f" * 17 + b"\r\nok\r\n0\r\n\r\n",
    "more than its size": CHUNKED + b"2\r\noko\r\n0\r\n\r\n",
    "lines without CR": CHUNKED + b"2\nok\n0\n\n",
    "framing in a trailer": CHUNKED + b"2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n",
}


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("case", BROKEN_BODIES)
def test_a_body_that_is_wrongly_framed_is_never_whole(
    upstream: Upstream, port: int, records: Records, case: str, *, keyed: bool
) -> None:
    """A covered request is unknown; what is passed through ends within its body, or before it."""
    upstream.plays(answers(BROKEN_BODIES[case]))
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", body=b"1", key=key if keyed else None))
        head = client.head()
        try:
            body = client.rest() if status(head) == 200 else b""
        except ConnectionResetError:
            body = b""

    if keyed:
        assert 502 == status(head)
    assert not body.endswith(b"0\r\n\r\n")
    assert ("unknown" if keyed else None) == records.phase(key)
    assert 1 == len(upstream.requests)
