"""A request that cannot be read in one way only is refused, not repaired: nothing of it leaves, and nothing of it is logged."""

from __future__ import annotations

import pytest

from tests.processes import Program
from tests.wire.bytestream import Message
from tests.wire.client import Client, new_key, outcome, problem, request
from tests.wire.conftest import Records, complaints
from tests.wire.upstream import Upstream, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
SECRET = b"only-the-caller-knows"
START = b"POST /x HTTP/1.1\r\nHost: x\r\n"

UNREADABLE = {
    "NUL in a value": START + b"Idempotency-Key: " + SECRET + b"\x00\r\nContent-Length: 0\r\n\r\n",
    "control character in a value": START + b"Authorization: Bearer " + SECRET + b"\x01\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": START + b"Authorization : " + SECRET + b"\r\nContent-Length: 0\r\n\r\n",
    "no colon": START + SECRET + b"\r\nContent-Length: 0\r\n\r\n",
    "a folded value": START + b"Idempotency-Key: a\r\n " + SECRET + b"\r\nContent-Length: 0\r\n\r\n",
    "NUL in a name": START + b"A\x00: 1\r\nContent-Length: 0\r\n\r\n",
    "NUL in the target": b"POST /\x00 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a bare carriage return in a value": START + b"A: 1\r2\r\nContent-Length: 0\r\n\r\n",
    "a bare line feed in a value": START + b"A: 1\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n",
    "two carriage returns": START + b"A: 1\r\r\nContent-Length: 0\r\n\r\n",
    "a folded first line": b"POST /x HTTP/1.1\r\n Host: x\r\nContent-Length: 0\r\n\r\n",
    "no name": START + b": 1\r\nContent-Length: 0\r\n\r\n",
    "UTF-8 in a name": START + b"X-\xc3\xa9: 1\r\nContent-Length: 0\r\n\r\n",
    "two equal lengths": START + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n1",
    "a list of equal lengths": START + b"Content-Length: 1, 1\r\n\r\n1",
    "an empty length": START + b"Content-Length:\r\n\r\n",
    "a negative length": START + b"Content-Length: -1\r\n\r\n",
    "a length beyond all bounds": START + b"Content-Length: 99999999999999999999\r\n\r\n",
    "chunks and a length": START + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "chunks twice": START + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in a list": START + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks that are quoted": START + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunks in HTTP/1.0": b"POST /x HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size with a space": START + b"Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
    "a chunk size with a line feed": START + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
    "a line feed in a chunk extension": START + b"Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
    "a chunk size beyond all bounds": START + b"Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\na\r\n0\r\n\r\n",
    "a negative chunk size": START + b"Transfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n",
    "an empty chunk size": START + b"Transfer-Encoding: chunked\r\n\r\n\r\na\r\n0\r\n\r\n",
    "a chunk that is too long": START + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "a trailer without a colon": START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA\r\n\r\n",
    "a folded trailer": START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: 1\r\n 2\r\n\r\n",
    "NUL in a trailer": START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: \x00\r\n\r\n",
    "UTF-8 in a trailer": START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: \xc3\xa9\r\n\r\n",
    "two spaces in the first line": b"POST  /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a tab in the first line": b"POST\t/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a space behind the first line": b"POST /x HTTP/1.1 \r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a space before the first line": b" POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"GET /x\r\n\r\n",
    "HTTP/1.2": b"GET /x HTTP/1.2\r\nHost: x\r\n\r\n",
    "HTTP/2.0": b"GET /x HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "RTSP": b"DESCRIBE /x RTSP/1.0\r\nHost: x\r\n\r\n",
    "two lengths": START + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n1",
    "a length and chunks": START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length that is no number": START + b"Content-Length: +1\r\n\r\n1",
    "a bad chunk size": START + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "an unknown transfer coding": START + b"Transfer-Encoding: chunke\r\n\r\n0\r\n\r\n",
    "two hosts": START + b"Host: y\r\nContent-Length: 0\r\n\r\n",
    "no host": b"POST /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "a space in the target": b"POST /x y HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a target that is not ASCII": b"POST /caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a space in the query": b"POST /x?token=" + SECRET + b" y HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a target at which the parser breaks": b"GET http://[::1]@/" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a bare line feed": b"POST /x HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
}

# What only the proxy minds: the operators' listener looks at no such field.
NOT_ASCII = {
    "Latin-1 in a value": START + b"Authorization: " + SECRET + b"\xe9\r\nContent-Length: 0\r\n\r\n",
    "UTF-8 in a value": START + b"Authorization: " + SECRET + b"\xc3\xa9\r\nContent-Length: 0\r\n\r\n",
    "UTF-8 in the host": b"POST /x HTTP/1.1\r\nHost: caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n",
}


def refused(port: int, data: bytes, *, tls: bool | None = None) -> Message:
    """The answer to what cannot be read, on a connection that ends with it and tells nothing more."""
    with Client(port, tls=tls) as client:
        client.send(data)
        answer = client.message()
        assert client.ended()
    assert (400, "bad-request", "no", "new_key") == problem(answer)
    assert [b"close"] == answer.values("connection")
    assert [b'idemproxy; error=http_request_error; details="bad-request"'] == answer.values("proxy-status")
    assert [] == answer.values("server")
    assert SECRET not in answer.raw
    return answer


@pytest.mark.parametrize("name", UNREADABLE | NOT_ASCII)
def test_what_cannot_be_read_is_refused(upstream: Upstream, port: int, shared_proxy: Program, name: str) -> None:
    """400 as a problem document, the end of the connection, nothing sent, nothing read behind it; and no line of it is logged."""
    upstream.plays(answers(OK))

    answer = refused(port, (UNREADABLE | NOT_ASCII)[name] + request("POST", "/behind", body=b"1"))

    assert "refused" == outcome(answer)
    assert [] == secrets_and_complaints(shared_proxy)
    assert [] == upstream.requests


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_to_operators_too(shared_proxy: Program, name: str) -> None:
    """The admin listener answers in the same way, though not about an operation, and logs none of it: it may be the token."""
    answer = refused(int(shared_proxy.admin.rpartition(":")[2]), UNREADABLE[name], tls=False)

    assert "" == outcome(answer)
    assert [b"no-store"] == answer.values("cache-control")
    assert [] == secrets_and_complaints(shared_proxy)


@pytest.mark.parametrize("key", [b"k\xe9y", b"k\xc3\xa9y"], ids=["Latin-1", "UTF-8"])
def test_a_key_that_is_not_ascii_is_told_as_such(upstream: Upstream, port: int, key: bytes) -> None:
    """400 `key-invalid`, and the end of the connection, as for other bytes that are not ASCII."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        client.send(START + b"Idempotency-Key: " + key + b"\r\nContent-Length: 0\r\n\r\n" + request("POST", "/behind", body=b"1"))
        answer = client.message()
        assert client.ended()

    assert (400, "key-invalid", "no", "new_key") == problem(answer)
    assert [] == upstream.requests


def secrets_and_complaints(program: Program) -> list[str]:
    """The lines of standard error that should not be there."""
    return [*(line for line in program.told if SECRET.decode() in line), *complaints(program)]


def test_requests_in_front_of_an_unreadable_one_are_answered(upstream: Upstream, port: int) -> None:
    """What was read before stays read; the connection ends after the refusal."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        first = client.ask(request("GET", "/x"))
        second = client.ask(UNREADABLE["no colon"])
        ended = client.ended()

    assert (b"ok", (400, "bad-request", "no", "new_key"), True) == (first.body, problem(second), ended)


@HOW
def test_a_body_that_turns_out_to_be_unreadable_is_not_sent_as_a_whole_one(
    upstream: Upstream, port: int, records: Records, *, keyed: bool
) -> None:
    """A bad chunk in the middle of a body breaks the attempt off; covered, there is no record and nothing was sent.

    The fault is the client's either way; but passed through, part of the request has left, and that is told, too.
    """
    upstream.plays(answers(OK))
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", "Expect: 100-continue", "Transfer-Encoding: chunked", key=key if keyed else None))
        client.until(b"\r\n\r\n")
        client.send(b"5\r\n12345\r\nxyz\r\n")
        answer = client.message()
        client.rest()

    told = ("bad-request", "no", "new_key") if keyed else ("outcome-unknown", "unknown", "after_check")
    assert ((400, *told), [b"close"]) == (problem(answer), answer.values("connection"))
    assert records.phase(key) is None
    assert [] == upstream.requests
    assert not keyed or [] == upstream.lines
