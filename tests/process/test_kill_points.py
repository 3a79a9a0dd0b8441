"""Kill -9 at each step of the journey: what the upstream was sent, and what the next one who asks is told.

The next one asks either the heir, which takes over the spool of the killed proxy, or a stranger, a proxy on the same store that
knows nothing of it. Where the outcome is unknown the heir says so at once, and the stranger when the lease is over: no
answer would come to the first with the lease that the killed proxy had, nor a wrong one to the second with its patience.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.process.asking import CHARGE, Answer, ask, configuration, eventually, problem, request_bytes
from tests.process.points import Asked, Place, full_upstream, hashed
from tests.processes import Program, proxy
from tests.wire.upstream import Line, Upstream, answers

OK: Final = b"HTTP/1.1 201 Created\r\nLocation: /charges/1\r\nContent-Length: 8\r\n\r\ncharge_1"
EXECUTED: Final = (201, "executed", b"charge_1")
REPLAYED: Final = (201, "replayed", b"charge_1")
UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
LARGE: Final = 8 * 1024 * 1024
"""Bytes: more than the kernel takes for one who does not read."""
LEASE: Final = {"heir": "1h", "stranger": "3s"}
PATIENCE: Final = 30
"""Seconds. Much longer than the short lease, much shorter than the long one."""


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a proxy is killed. `successor` is who is asked next, `stranger` a proxy that is there all the time."""

    place: Place
    upstream: Upstream
    stranger: Program
    successor: str
    directory: Path

    @contextmanager
    def victim(self, url: str | None = None) -> Iterator[Program]:
        """The proxy to be killed; `url` for another upstream than the scripted one."""
        with proxy(*self._arguments(url)) as running:
            yield running

    def ask_next(self, key: str, body: bytes = CHARGE) -> Answer:
        """The answer to the next one who asks."""
        if self.successor == "stranger":
            return ask(self.stranger.url, key, body=body, wait=PATIENCE)
        with proxy(*self._arguments()) as heir:
            return ask(heir.url, key, body=body, wait=PATIENCE)

    def _arguments(self, url: str | None = None) -> tuple[str, ...]:
        settings = {
            "upstreams": {"api": {"url": url or self.upstream.url}},
            "defaults": {"lease": LEASE[self.successor], "max_stored_body": "10MiB"},
            "store": {"url": self.place.url},
        }
        return (*configuration(self.directory, settings), "--spool", str(self.directory / "spool"))


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A scripted upstream, whose whole requests are its effects."""
    scripted = Upstream()
    yield scripted
    scripted.close()


@pytest.fixture(scope="module")
def stranger(place: Place, upstream: Upstream) -> Iterator[Program]:
    """A proxy on the same store, with a spool of its own."""
    with proxy("--upstream", f"api={upstream.url}", "--store", place.aside) as running:
        yield running


@pytest.fixture
def successor() -> str:
    """Who is asked next, where it makes no difference to the answer."""
    return "stranger"


@pytest.fixture
def stage(place: Place, upstream: Upstream, stranger: Program, successor: str, tmp_path: Path) -> Iterator[Stage]:
    """The store, the upstream and the stranger, with a spool for this test; nobody is held when it is over."""
    yield Stage(place, upstream, stranger, successor, tmp_path)
    place.go_on()
    upstream.hang_up()


BOTH_SUCCESSORS = pytest.mark.parametrize("successor", ["heir", "stranger"])


def asked(program: Program, key: str, body: bytes = CHARGE) -> Asked:
    """A client that has sent its request and has read nothing."""
    return Asked(program, request_bytes(key, body=body))


def test_before_the_claim(stage: Stage, key: str) -> None:
    """Nothing is written and nothing sent; the next one finds the key free, and is the first."""
    stage.upstream.plays(answers(OK))
    with stage.victim() as victim:
        stage.place.stop_before(hashed(key).encode())
        with asked(victim, key) as client:
            stage.place.until_asked(victim.port, client.port)
            victim.kill()
            reply = client.rest()
    stage.place.go_on()
    phase, lines = stage.place.phase(key), list(stage.upstream.lines)
    after = [ask(stage.stranger.url, key), stage.ask_next(key)]

    assert (b"", None, []) == (reply, phase, lines)
    assert [EXECUTED, REPLAYED] == [told(answer) for answer in after]
    assert 1 == len(stage.upstream.requests)


@BOTH_SUCCESSORS
def test_after_the_claim(stage: Stage, key: str) -> None:
    """The key is claimed, no connection stands yet: nothing was sent, but nobody is left who knows, and it is unknown."""
    stage.upstream.plays(answers(OK))
    with full_upstream() as full, stage.victim(full.url) as victim, asked(victim, key) as client:
        full.until_wanted()
        phase = stage.place.phase(key)
        victim.kill()
        reply = client.rest()
        answer = stage.ask_next(key)

    assert (b"", "in_flight") == (reply, phase)
    assert UNKNOWN == answer.problem
    assert [] == stage.upstream.lines


@BOTH_SUCCESSORS
def test_after_the_first_byte(stage: Stage, key: str) -> None:
    """A part of the request has left: the upstream never has all of it, and it is unknown."""
    begun, killed = threading.Event(), threading.Event()

    def reads_a_little(line: Line) -> None:
        line.exactly(1)
        begun.set()
        killed.wait(PATIENCE)

    stage.upstream.plays(reads_a_little)
    body = b'{"note": "%s"}' % (b"x" * LARGE)
    with stage.victim() as victim, asked(victim, key, body) as client:
        assert begun.wait(PATIENCE)
        phase = stage.place.phase(key)
        victim.kill()
        killed.set()
        reply = client.rest()
        answer = stage.ask_next(key, body)

    assert (b"", "in_flight") == (reply, phase)
    assert UNKNOWN == answer.problem
    assert (1, []) == (len(stage.upstream.lines), stage.upstream.requests)


@BOTH_SUCCESSORS
def test_after_the_last_byte(stage: Stage, key: str) -> None:
    """The upstream has the request and acts on it: one effect, and it is unknown."""

    def acts_in_silence(line: Line) -> None:
        line.request()
        line.wait_for_end()

    stage.upstream.plays(acts_in_silence)
    with stage.victim() as victim, asked(victim, key) as client:
        stage.upstream.wait_for_requests(1)
        phase = stage.place.phase(key)
        victim.kill()
        reply = client.rest()
        answer = stage.ask_next(key)

    assert (b"", "in_flight") == (reply, phase)
    assert UNKNOWN == answer.problem
    assert 1 == len(stage.upstream.requests)


@contextmanager
def answered(stage: Stage, key: str) -> Iterator[tuple[Program, Asked]]:
    """A victim that has the upstream's whole answer and asks its store to take it, in vain; and its client."""
    answered_to: list[int] = []

    def stops_the_store_and_answers(line: Line) -> None:
        line.request()
        stage.place.stop_before(b"charge_1")
        line.send(OK)
        answered_to.append(line.sock.getpeername()[1])
        line.wait_for_end()

    stage.upstream.plays(stops_the_store_and_answers)
    with stage.victim() as victim, asked(victim, key) as client:
        eventually(lambda: answered_to)
        stage.place.until_asked(answered_to[0], stage.upstream.port)
        yield victim, client


@BOTH_SUCCESSORS
def test_after_the_answer(stage: Stage, key: str) -> None:
    """The upstream has answered and nothing of it is stored: one effect, the answer is lost, and it is unknown."""
    with answered(stage, key) as (victim, client):
        victim.kill()
        stage.place.go_on()
        phase, reply = stage.place.phase(key), client.rest()
        answer = stage.ask_next(key)

    assert (b"", "in_flight") == (reply, phase)
    assert UNKNOWN == answer.problem
    assert 1 == len(stage.upstream.requests)


def test_after_the_settlement(stage: Stage, key: str) -> None:
    """The answer is stored and its client has not a byte of it: everyone who asks next gets it, and there is one effect."""
    with answered(stage, key) as (victim, client):
        stage.place.write_unheard(victim, key, "completed")
        victim.kill()
        stage.place.go_on()
        reply = client.rest()
        after = [ask(stage.stranger.url, key), stage.ask_next(key)]

    assert b"" == reply
    assert [REPLAYED] * 2 == [told(answer) for answer in after]
    assert ["/charges/1"] * 2 == [answer.field("Location") for answer in after]
    assert 1 == len(stage.upstream.requests)


def test_during_the_reply(stage: Stage, key: str) -> None:
    """The client has a part of the reply: everyone who asks next gets all of it, and there is one effect."""
    body = bytes(range(256)) * (LARGE // 256)
    stage.upstream.plays(answers(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (LARGE, body)))
    with stage.victim() as victim, asked(victim, key) as client:
        begun = client.first_byte()
        phase = stage.place.phase(key)
        victim.kill()
        reply = client.rest()
        after = [ask(stage.stranger.url, key), stage.ask_next(key)]

    assert (b"H", "completed") == (begun, phase)
    assert len(reply) < LARGE
    assert [(200, "replayed", True)] * 2 == [(answer.status, answer.told, answer.body == body) for answer in after]
    assert 1 == len(stage.upstream.requests)


@BOTH_SUCCESSORS
def test_during_an_answer_that_streams(stage: Stage, key: str) -> None:
    """What is relayed as it comes is settled at its end: there is none, so it is unknown, with one effect."""

    def streams_for_ever(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        line.wait_for_end()

    stage.upstream.plays(streams_for_ever)
    with stage.victim() as victim, asked(victim, key) as client:
        begun = client.first_byte()
        phase = stage.place.phase(key)
        victim.kill()
        reply = client.rest()
        answer = stage.ask_next(key)

    assert (b"H", "in_flight") == (begun, phase)
    assert b"Idempotency-Status: executed;" in reply
    assert UNKNOWN == answer.problem
    assert 1 == len(stage.upstream.requests)
