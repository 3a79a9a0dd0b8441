"""An answer that comes before the request is whole: it is the answer, whatever becomes of the rest (RFC 9112, section 9.5)."""

from __future__ import annotations

import threading
import time

import pytest

from tests.wire.client import Client, ask, new_key, request, status
from tests.wire.combination import current
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream

MIB = 1 << 20
SIZE = 8 * MIB
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("then", ["hangs up", "hangs up on what it has not read", "waits", "reads on"])
@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"])
def test_an_early_answer_reaches_a_client_that_is_still_uploading(upstream: Upstream, port: int, then: str, framing: str) -> None:
    """It is passed on at once, says that the client's connection ends with it, and the upstream's is not used again either."""
    answered = threading.Event()

    def answers_early(line: Line) -> None:
        line.request_head()
        line.exactly(1000)
        line.send(TOO_LARGE)
        if then == "hangs up":
            line.finish()
        if then in {"hangs up", "waits"}:
            answered.wait(10)
        if then == "reads on":
            line.wait_for_end()

    upstream.plays(answers_early)
    chunked = framing.startswith("Transfer")
    with Client(port) as client:
        client.send(request("PUT", "/file", framing))
        client.send(b"%x\r\n%b\r\n" % (MIB, bytes(MIB)) if chunked else bytes(MIB))
        answer = client.message()
        answered.set()
    upstream.wait_for_end_of(upstream.lines[0])

    if not (current().upstream_tls and then == "hangs up on what it has not read" and status(answer) == 502):
        assert (413, b"big") == (status(answer), answer.body)
    assert [b"close"] == answer.values("connection")


@pytest.mark.parametrize("how", ["passed through", "covered", "no route"])
@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"])
def test_the_end_of_the_connection_is_told_with_the_answer(upstream: Upstream, port: int, framing: str, how: str) -> None:
    """A client that is silent, and waits for the end that `Connection: close` has announced, has it at once."""

    def answers_early(line: Line) -> None:
        line.request_head()
        line.send(TOO_LARGE)
        line.wait_for_end()

    upstream.plays(answers_early)
    fields = {"passed through": (), "covered": ("Host: small", "Expect: 100-continue"), "no route": ()}[how]
    path = "/_idemproxy/none" if how == "no route" else "/file"
    with Client(port) as client:
        client.send(request("PUT", path, framing, *fields, key=new_key() if how == "covered" else None))
        if how == "covered" and framing.startswith("Transfer"):
            client.until(b"\r\n\r\n")
            client.send(b"800\r\n" + bytes(0x800) + b"\r\n")
        answer = client.message()
        started = time.monotonic()
        ended = client.ended()
        waited = time.monotonic() - started

    assert (404 if how == "no route" else 413) == status(answer)
    assert ([b"close"], True) == (answer.values("connection"), ended)
    assert waited < 2


@pytest.mark.parametrize("then", ["hangs up", "hangs up on what it has not read"])
@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_an_upstream_that_hangs_up_after_its_early_answer_has_answered(
    upstream: Upstream, port: int, records: Records, then: str, *, keyed: bool
) -> None:
    """Time and again: an answer that is here is read before the connection is found broken, and settles the operation.

    Over TLS it may be lost with the connection; then the outcome is unknown, and not "not sent".
    """

    def answers_early(line: Line) -> None:
        line.request_head()
        line.exactly(1000)
        line.send(TOO_LARGE)
        if then == "hangs up":
            line.finish()
            line.wait_for_end()

    upstream.plays(answers_early)
    key = new_key()
    found = []
    for _ in range(20):
        answer = ask(port, request("POST", "/file", body=bytes(SIZE), key=key if keyed else None))
        found.append((status(answer), answer.body))

    if current().upstream_tls:  # what the kernel has when a connection breaks is lost there, and then nobody knows
        assert {413, 502, 409} >= {code for code, _ in found}
    else:
        assert [(413, b"big")] * 20 == found
    assert (1 if keyed else 20) == len(upstream.requests)
    assert (None if not keyed else "completed" if found[0][0] == 413 else "unknown") == records.phase(key)


@pytest.mark.parametrize("code", [401, 413, 200])
def test_an_early_answer_to_a_covered_request_settles_it(upstream: Upstream, port: int, records: Records, code: int) -> None:
    """What it means is judged as of any answer, although the body has not been sent; and the connection is not used again."""

    def answers_early(line: Line) -> None:
        line.request_head()
        line.exactly(1000)
        line.send(b"HTTP/1.1 %d Early\r\nContent-Length: 2\r\n\r\nno" % code)
        line.wait_for_end()

    upstream.plays(answers_early)
    key = new_key()

    answer = ask(port, request("POST", "/file", body=bytes(SIZE), key=key))
    upstream.wait_for_end_of(upstream.lines[0])

    assert (code, b"no") == (status(answer), answer.body)
    assert (None if code == 401 else "completed") == records.phase(key)


def test_no_request_follows_half_of_another(upstream: Upstream, port: int) -> None:
    """Where an answer came before the body had gone out, its connection takes no other: that would be read as the rest."""
    broken: list[bytes] = []

    def answers_early(line: Line) -> None:
        while True:
            line.request_head()
            line.exactly(1000)
            line.send(b"HTTP/1.1 401 Early\r\nContent-Length: 2\r\n\r\nno")
            if stray := line.exactly(SIZE - 1000).strip(b"\0"):
                broken.append(stray)

    upstream.plays(answers_early)

    for _ in range(20):
        assert 401 == status(ask(port, request("POST", "/file", body=bytes(SIZE), key=new_key())))

    upstream.hang_up()
    assert [] == broken
