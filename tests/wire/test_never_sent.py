"""What failed before the first byte has not happened: the caller is told so, and the same key may try again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.wire.client import ask, new_key, outcome, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Upstream, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def full_backlog(absent_port: int) -> Iterator[socket.socket]:
    """A socket that listens at the upstream `absent` and cannot take one connection more."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", absent_port))
        listening.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(("127.0.0.1", absent_port))
            except TimeoutError:
                break
        yield listening


def _write(host: str, key: str) -> bytes:
    return request("POST", "/charges", f"Host: {host}", body=b"amount=1", key=key)


def test_a_refused_connection_sends_nothing_and_frees_the_key(port: int, absent_port: int, records: Records) -> None:
    """502 not-sent, no record, and the retry with the same key is carried out once the upstream is there."""
    key = new_key()
    first = ask(port, _write("absent", key))
    phase = records.phase(key)

    upstream = Upstream(absent_port)
    upstream.plays(answers(OK))
    retry = ask(port, _write("absent", key))
    upstream.close()

    assert (502, "not-sent", "no", "same_key") == problem(first)
    assert "refused" == outcome(first)
    assert [b'idemproxy; error=connection_refused; details="not-sent"'] == first.values("proxy-status")
    assert phase is None
    assert (200, "executed", b"ok") == (status(retry), outcome(retry), retry.body)
    assert 1 == len(upstream.requests)


def test_a_connection_that_is_not_taken_in_time_sends_nothing_and_frees_the_key(
    port: int, absent_port: int, records: Records, full_backlog: socket.socket
) -> None:
    """504 not-sent, no record, and the retry with the same key is carried out once the upstream takes connections."""
    key = new_key()
    first = ask(port, _write("absent", key))
    phase = records.phase(key)

    full_backlog.close()
    upstream = Upstream(absent_port)
    upstream.plays(answers(OK))
    retry = ask(port, _write("absent", key))
    upstream.close()

    assert (504, "not-sent", "no", "same_key") == problem(first)
    assert "refused" == outcome(first)
    assert [b'idemproxy; error=connection_timeout; details="not-sent"'] == first.values("proxy-status")
    assert phase is None
    assert (200, "executed", b"ok") == (status(retry), outcome(retry), retry.body)
    assert 1 == len(upstream.requests)


def test_a_name_that_does_not_resolve_sends_nothing_and_frees_the_key(port: int, records: Records) -> None:
    """502 not-sent, no record, and the same key is tried again, not held."""
    key = new_key()

    found = [ask(port, _write("nameless", key)) for _ in range(2)]

    assert [(502, "not-sent", "no", "same_key")] * 2 == [problem(answer) for answer in found]
    assert [[b'idemproxy; error=dns_error; details="not-sent"']] * 2 == [answer.values("proxy-status") for answer in found]
    assert records.phase(key) is None


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_passes_through_is_told_that_it_was_not_sent(port: int, absent_port: int, method: str) -> None:
    """Without a record too, 502 says that nothing was sent."""
    answer = ask(port, request(method, "/charges", "Host: absent"))

    assert (502, "not-sent", "no", "same_key") == problem(answer)
