"""A request is written once. Whatever the upstream does then, it is not written again, and nobody is told to."""

from __future__ import annotations

import pytest

from tests.wire.bytestream import Message
from tests.wire.client import ask, new_key, outcome, problem, request
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Play, Upstream

COVERED = ("POST", "PUT", "PATCH", "DELETE")
PASSED_THROUGH = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


def closes(line: Line) -> None:
    """Take the request and say goodbye."""
    line.request()


def resets(line: Line) -> None:
    """Take the request and crash."""
    line.request()
    line.reset()


def hangs(line: Line) -> None:
    """Take the request and say nothing."""
    line.request()
    line.wait_for_end()


def answers_half_a_head(line: Line) -> None:
    """Stop within the head."""
    line.request()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl")


def answers_half_a_body(line: Line) -> None:
    """Stop within a body of known length."""
    line.request()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")


def answers_half_the_chunks(line: Line) -> None:
    """Stop before the last chunk."""
    line.request()
    line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n")


def resets_within_the_body(line: Line) -> None:
    """Crash within a body that the end of the connection would delimit."""
    line.request()
    line.send(b"HTTP/1.1 200 OK\r\n\r\n12345")
    line.reset()


def hangs_within_the_body(line: Line) -> None:
    """Fall silent within the body."""
    line.request()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    line.wait_for_end()


def answers_garbage(line: Line) -> None:
    """Say something that is not HTTP."""
    line.request()
    line.send(b"\x00\x01 this is not HTTP\r\n\r\n")
    line.wait_for_end()


def switches_protocols(line: Line) -> None:
    """Agree to what nobody asked for."""
    line.request()
    line.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    line.wait_for_end()


def answers_two_lengths(line: Line) -> None:
    """Give a body that can be read in two ways."""
    line.request()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    line.wait_for_end()


FAULTS = (
    (closes, 502, "connection_terminated"),
    (resets, 502, "connection_terminated"),
    (hangs, 504, "http_response_timeout"),
    (answers_half_a_head, 502, "connection_terminated"),
    (answers_half_a_body, 502, "connection_terminated"),
    (answers_half_the_chunks, 502, "connection_terminated"),
    (resets_within_the_body, 502, "connection_terminated"),
    (hangs_within_the_body, 504, "http_response_timeout"),
    (answers_garbage, 502, "http_protocol_error"),
    (switches_protocols, 502, "http_protocol_error"),
    (answers_two_lengths, 502, "http_protocol_error"),
)


def _patience(expected: int) -> str:
    """The route of a fault: only where a timeout is expected it comes soon."""
    return "Host: impatient" if expected == 504 else "Host: any"


@pytest.mark.parametrize("method", COVERED)
@pytest.mark.parametrize(("play", "expected", "error"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_covered_request_is_sent_once_and_is_unknown(
    upstream: Upstream, port: int, records: Records, method: str, play: Play, expected: int, error: str
) -> None:
    """One request arrives, the record is unknown, and the caller is told so and not to send it again."""
    upstream.plays(play)
    key = new_key()
    asked = request(method, "/charges", _patience(expected), body=b"amount=1", key=key)

    first = ask(port, asked)
    phase = records.phase(key)
    retry = ask(port, asked)

    assert (expected, "outcome-unknown", "unknown", "after_check") == problem(first)
    assert "unknown" == outcome(first)
    assert [f'idemproxy; error={error}; details="outcome-unknown"'.encode()] == first.values("proxy-status")
    assert "unknown" == phase
    assert (409, "outcome-unknown", "unknown", "after_check") == problem(retry)
    assert "unknown" == outcome(retry)
    assert [f"{method} /charges HTTP/1.1".encode()] == [arrived.start for arrived in upstream.requests]
    assert 1 == len(upstream.lines)


def _is_told(answer: Message, expected: int, method: str) -> None:
    if method == "HEAD":
        assert f"HTTP/1.1 {expected} ".encode() == answer.start[:13]
    else:
        assert (expected, "outcome-unknown", "unknown", "after_check") == problem(answer)


FAULTS_BEFORE_A_HEAD = tuple(fault for fault in FAULTS if "body" not in fault[0].__name__ and "chunks" not in fault[0].__name__)


@pytest.mark.parametrize("method", PASSED_THROUGH)
@pytest.mark.parametrize(("play", "expected", "error"), FAULTS_BEFORE_A_HEAD, ids=lambda value: getattr(value, "__name__", ""))
def test_a_request_that_passes_through_is_sent_once(
    upstream: Upstream, port: int, method: str, play: Play, expected: int, error: str
) -> None:
    """One request arrives, whatever its method; the caller, who may know that it can be repeated, is told."""
    upstream.plays(play)
    body = b"amount=1" if method in COVERED else None

    answer = ask(port, request(method, "/charges", _patience(expected), body=body))

    _is_told(answer, expected, method)
    assert [f'idemproxy; error={error}; details="outcome-unknown"'.encode()] == answer.values("proxy-status")
    assert [f"{method} /charges HTTP/1.1".encode()] == [arrived.start for arrived in upstream.requests]
    assert 1 == len(upstream.lines)


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_body_that_the_upstream_hangs_up_on_is_not_sent_again(
    upstream: Upstream, port: int, method: str, *, keyed: bool
) -> None:
    """An upstream that reads the head and hangs up while a long body is still on its way gets no second request."""

    def hangs_up_early(line: Line) -> None:
        line.request_head()
        line.reset()

    upstream.plays(hangs_up_early)
    asked = request(method, "/charges", body=bytes(8_000_000), key=new_key() if keyed else None)

    first = ask(port, asked)
    sent = len(upstream.requests)
    retry = ask(port, asked)

    assert (502, "outcome-unknown", "unknown", "after_check") == problem(first)
    assert 1 == sent
    if keyed:
        assert (409, "outcome-unknown", "unknown", "after_check") == problem(retry)
        assert 1 == len(upstream.requests)
