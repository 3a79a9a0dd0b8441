"""No request and no answer is taken in two ways: each mutation is refused, or read as RFC 9112 reads it, at once.

The mutations are data, in mutations.py, and then such as nobody has thought of, drawn by a seed. What the upstream got is read by
a strict reader of our own (corpus.py), byte for byte.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pytest

from tests.wire.bytestream import Message
from tests.wire.client import Client, new_key, request, status
from tests.wire.combination import current
from tests.wire.corpus import read_strictly
from tests.wire.mutations import ANSWER_MUTATIONS, CHUNKED, MUTATIONS, PLACE, AnswerMutation, Mutation, Reading
from tests.wire.upstream import Line, Upstream

AT_ONCE = 2.0
"""Seconds of silence after which a request counts as hanging: far less than any deadline of the proxy."""

MARKER = b"GET /marker HTTP/1.1"

SEED, DRAWN = 20_260_729, 500
SPLICED = (
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\r\n ", b" ", b"\t", b"\0", b"\xff", b":", b";", b",", b"-", b"0", b"5", b"0\r\n\r\n",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n", b"Connection: close\r\n",
    b"Host: b\r\n",
)  # fmt: skip
FILLER = b"x" * 100_000
"""Behind the last request: what takes it for the rest of a body has one."""


@dataclass(frozen=True)
class Found:
    """What became of one connection: the statuses that the client got, and what the upstream got, as (request line, body)."""

    statuses: tuple[int, ...]
    arrived: tuple[tuple[bytes, bytes], ...]


def _echo(line: Line) -> None:
    """Answer each request with its target."""
    while True:
        _, target, _ = line.request().start.split(b" ")
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target))


def _all_answers(client: Client) -> list[Message]:
    """The final answers up to the end of the connection. Raises TimeoutError where nothing comes, and no end either."""
    found, left = [], b""
    try:
        while True:
            found.append(client.message())
    except ConnectionResetError:
        pass  # we were still sending when it was ended
    except EOFError as exc:
        (left,) = exc.args
    assert b"" == left, "bytes that are no answer"
    return [answer for answer in found if status(answer) >= 200]


def _carry_out(upstream: Upstream, port: int, pieces: list[bytes]) -> Found:
    known = len(upstream.requests)
    with Client(port) as client:
        client.sock.settimeout(AT_ONCE)
        with suppress(OSError):  # it may end the connection before it has heard all
            for piece in pieces:
                client.send(piece)
        answers = _all_answers(client)
    arrived = tuple((one.start, one.body) for one in upstream.requests[known:])
    assert [start.split(b" ")[1] for start, _ in arrived] == [answer.body for answer in answers if status(answer) == 200]
    return Found(tuple(map(status, answers)), arrived)


def _allowed(mutation: Mutation, *, streamed: bool) -> set[Found]:
    """What may become of a mutation and the marker behind it; `streamed`: it had perhaps left in part when it broke."""
    allowed = set()
    if mutation.reading is None or mutation.may_refuse:
        broken = (400,) if streamed and mutation.in_body else ()  # of what has left in part
        allowed |= {Found((code,), ()) for code in mutation.statuses + broken}
    match mutation.reading:
        case Reading(start, body, kept=True):
            allowed.add(Found((200, 200), ((start, body), (MARKER, b""))))
        case Reading(start, body, kept=False):
            allowed |= {Found(codes, ((start, body),)) for codes in ((200,), (200, 400))}
        case None:
            pass
    return allowed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_request_is_refused_or_read_in_one_way(upstream: Upstream, port: int, mutation: Mutation) -> None:
    """With and without a key, in one piece and byte by byte: an answer for each request read; the marker is itself."""
    marker = MARKER + b"\r\nHost: proxy.example\r\nConnection: close\r\n\r\n"
    if current().client_tls:
        pytest.skip("what TLS carries is the same HTTP when it is deciphered")
    upstream.plays(_echo)
    wrong = {}
    for keyed in (False, True) if PLACE in mutation.raw else (False,):
        for cut in (False, True):
            key = b"Idempotency-Key: %b\r\n" % new_key().encode()
            raw = mutation.raw.replace(PLACE, key) if keyed else mutation.raw
            found = _carry_out(upstream, port, [*(bytes([byte]) for byte in raw), marker] if cut else [raw + marker])
            allowed = _allowed(mutation, streamed=cut and not keyed)
            if found not in allowed:
                wrong[("keyed" if keyed else "plain") + (" byte by byte" if cut else "")] = (found, allowed)
    assert {} == wrong

    upstream.hang_up()
    arrived = [seen for line in upstream.lines for seen in read_strictly(bytes(line.raw))[0]]
    assert [(one.start, one.body) for one in arrived] == [(one.start, one.body) for one in upstream.requests]


READ = [one for one in MUTATIONS if one.reading is not None and one.reading.kept and not one.may_refuse]


def _damaged(draw: Random, raw: bytes) -> bytes:
    """The bytes with some put in, taken out or changed, or a line twice."""
    at = draw.randrange(len(raw))
    match draw.randrange(4):
        case 0:
            return raw[:at] + draw.choice(SPLICED) + raw[at:]
        case 1:
            return raw[:at] + raw[at + draw.choice((1, 2, 5)) :]
        case 2:
            return raw[:at] + bytes([draw.choice((9, 10, 13, 32, 48, 58, 97, 127, 255))]) + raw[at + 1 :]
        case _:
            lines = raw.split(b"\r\n")
            return b"\r\n".join([*lines[:1], draw.choice(lines), *lines[1:]])


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_what_is_damaged_at_random_is_refused_or_read_in_one_way(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """However it is cut: what is answered is what the upstream got, a refusal ends it, and what came before is as ever."""
    if current().client_tls:
        pytest.skip("what TLS carries is the same HTTP when it is deciphered")
    draw = Random(SEED)  # noqa: S311 - no secret
    upstream.plays(_echo)
    wrong = []
    for _ in range(DRAWN):
        sound, damaged = draw.choice(READ), draw.choice(READ).raw
        for _ in range(damages := draw.randrange(3)):
            damaged = _damaged(draw, damaged)
        raw = sound.raw + damaged + MARKER + b"\r\nHost: proxy.example\r\nConnection: close\r\n\r\n"
        for _ in range(raw.count(PLACE) if keyed else 0):
            raw = raw.replace(PLACE, b"Idempotency-Key: %b\r\n" % new_key().encode(), 1)
        cuts = [0, *sorted(draw.randrange(len(raw)) for _ in range(draw.randrange(3)))]
        pieces = [raw[begin:end] for begin, end in zip(cuts, [*cuts[1:], None], strict=True)]
        found = _carry_out(upstream, port, [*pieces, FILLER])
        expected = None if sound.reading is None else (sound.reading.start, sound.reading.body)
        if {*found.statuses[:-1]} != {200} or found.arrived[0] != expected or (not damages and found.statuses != (200,) * 3):
            wrong.append((raw, found))
    assert [] == wrong

    upstream.hang_up()
    arrived = [seen for line in upstream.lines for seen in read_strictly(bytes(line.raw))[0]]
    assert [(one.start, one.body) for one in arrived] == [(one.start, one.body) for one in upstream.requests]


@pytest.mark.parametrize("rest", [b"45\r\n0\r\n\r\n", b"45678\r\n", b"456\n0\r\n\r\n", b"456\r0\r\n\r\n"], ids=repr)
def test_a_chunk_that_goes_wrong_when_half_of_it_has_left_is_told_at_once(upstream: Upstream, port: int, rest: bytes) -> None:
    """The upstream's connection ends before the request is whole, and the client hears that nobody knows; no marker is read."""
    half = threading.Event()

    def play(line: Line) -> None:
        line.until(b"123")
        half.set()
        line.wait_for_end()

    upstream.plays(play)
    with Client(port) as client:
        client.sock.settimeout(AT_ONCE)
        client.send(CHUNKED + b"6\r\n123")
        assert half.wait(AT_ONCE)
        client.send(rest + MARKER + b"\r\nHost: proxy.example\r\n\r\n")
        found = [status(answer) for answer in _all_answers(client)]
    (line,) = upstream.lines
    upstream.wait_for_end_of(line)

    assert [400] == found
    assert [] == read_strictly(bytes(line.raw))[0]


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("mutation", ANSWER_MUTATIONS, ids=lambda mutation: mutation.name)
def test_no_request_gets_what_was_left_of_another_answer(
    upstream: Upstream, port: int, mutation: AnswerMutation, *, keyed: bool
) -> None:
    """The answer is taken in the one way that it can be, or is none; and the next request gets its own, whatever was behind."""
    answered, late = threading.Event(), threading.Event()

    def play(line: Line) -> None:
        if len(upstream.lines) == 1:
            line.request()
            try:
                line.send(mutation.raw)
                if mutation.ends:
                    return
                answered.wait(AT_ONCE)
                line.send(mutation.late)
            finally:  # the proxy may have hung up
                late.set()
        _echo(line)

    upstream.plays(play)
    body = None if mutation.method == "HEAD" else b"1"
    with Client(port) as client:
        client.sock.settimeout(AT_ONCE)
        client.send(request(mutation.method, "/first", "Connection: close", body=body, key=new_key() if keyed else None))
        first = _first(client, bodiless=mutation.method == "HEAD")
    answered.set()
    assert late.wait(AT_ONCE)
    with Client(port) as client:
        client.sock.settimeout(AT_ONCE)
        others = [client.ask(request("PUT", f"/other-{number}", body=b"")) for number in range(2)]

    assert (mutation.reading or (502, b"")) == first
    assert [(200, b"/other-0"), (200, b"/other-1")] == [(status(other), other.body) for other in others]


def _first(client: Client, *, bodiless: bool) -> tuple[int, bytes]:
    """Status and body of the answer, and that nothing follows it; one that is a problem of ours, or breaks off, is a 502."""
    try:
        answer = client.message(bodiless=bodiless)
        while status(answer) < 200:  # passed on (RFC 9110, section 15.2)
            answer = client.message(bodiless=bodiless)
    except (EOFError, ConnectionResetError):
        return 502, b""
    assert client.ended()
    return status(answer), b"" if answer.values("proxy-status") else answer.body
