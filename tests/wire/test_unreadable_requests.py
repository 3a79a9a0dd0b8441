"""A request that cannot be read in one way only is refused, not repaired: nothing of it leaves, and nothing of it is logged."""

from __future__ import annotations

import pytest

from tests.processes import Program
from tests.wire.bytestream import Message
from tests.wire.client import Client, new_key, outcome, problem, request
from tests.wire.conftest import Records
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
    "a line that is too long": START + b"Authorization: " + SECRET + b"x" * 10_000 + b"\r\nContent-Length: 0\r\n\r\n",
}


def refused(port: int, data: bytes) -> Message:
    """The answer to what cannot be read, on a connection that ends with it and tells nothing more."""
    with Client(port) as client:
        client.send(data)
        answer = client.message()
        assert client.ended()
    assert (400, "bad-request", "no", "new_key") == problem(answer)
    assert [b"close"] == answer.values("connection")
    assert [b'idemproxy; error=http_request_error; details="bad-request"'] == answer.values("proxy-status")
    assert [] == answer.values("server")
    assert SECRET not in answer.raw
    return answer


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused(upstream: Upstream, port: int, shared_proxy: Program, name: str) -> None:
    """400 as a problem document, the end of the connection, nothing sent; and no line of the request is logged."""
    upstream.plays(answers(OK))

    answer = refused(port, UNREADABLE[name])

    assert "refused" == outcome(answer)
    assert [] == complaints(shared_proxy)
    assert [] == upstream.requests


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_to_operators_too(shared_proxy: Program, name: str) -> None:
    """The admin listener answers in the same way, though not about an operation, and logs none of it: it may be the token."""
    answer = refused(int(shared_proxy.admin.rpartition(":")[2]), UNREADABLE[name])

    assert "" == outcome(answer)
    assert [b"no-store"] == answer.values("cache-control")
    assert [] == complaints(shared_proxy)


def complaints(program: Program) -> list[str]:
    """The lines of standard error that should not be there."""
    return [line for line in program.told if SECRET.decode() in line or not line.startswith("INFO")]


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
    """A bad chunk in the middle of a body breaks the attempt off; covered, there is no record and nothing was sent."""
    upstream.plays(answers(OK))
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/x", "Expect: 100-continue", "Transfer-Encoding: chunked", key=key if keyed else None))
        client.until(b"\r\n\r\n")
        client.send(b"5\r\n12345\r\nxyz\r\n")
        answer = client.message()
        client.rest()

    assert (400, "bad-request", "no", "new_key") == problem(answer) or not keyed
    assert records.phase(key) is None
    assert [] == upstream.requests
    assert not keyed or [] == upstream.lines
