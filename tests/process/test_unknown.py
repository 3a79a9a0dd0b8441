"""Outcomes that nobody here can tell: the first answer is truthful, the second says unknown, and a person has the last word."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from time import monotonic
from typing import Final

import pytest

from idemproxy.cli import main
from tests.process.asking import Answer, ask, configuration, problem, request_bytes
from tests.process.points import hashed
from tests.processes import DemoApi, Program, demo_api, proxy
from tests.wire.upstream import Line, Play, Upstream, answers

OK: Final = b"HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\ncharge_1"
HELD: Final = problem(409, "outcome-unknown", "unknown", "after_check")


def answered(status: int) -> Play:
    """Act, and answer with an error."""
    return answers(b"HTTP/1.1 %d Oh\r\nContent-Length: 5\r\n\r\nsorry" % status)


def resets(line: Line) -> None:
    """Act, and reset the connection."""
    line.request()
    line.reset()


def hangs_up(line: Line) -> None:
    """Act, and close the connection without a word."""
    line.request()


def cuts_short(line: Line) -> None:
    """Act, and close the connection in the middle of the answer."""
    line.request()
    line.send(OK[:-1])


def is_silent(line: Line) -> None:
    """Act, and say nothing."""
    line.request()
    line.wait_for_end()


def stalls(line: Line) -> None:
    """Act, and stop in the middle of the answer."""
    line.request()
    line.send(OK[:-1])
    line.wait_for_end()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A scripted upstream, whose whole requests are its effects."""
    scripted = Upstream()
    yield scripted
    scripted.close()


@pytest.fixture(scope="module")
def running(upstream: Upstream, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A proxy that waits for an upstream no longer than it must; the route `again` runs again what is unknown."""
    brief = {"connect": "5s", "first_byte": "300ms", "idle": "300ms", "total": "5s"}
    settings = {
        "upstreams": {"api": {"url": upstream.url, "timeouts": brief}},
        "store": {"url": store_url},
        "routes": [
            {"name": "again", "match": {"path": "/again"}, "upstream": "api", "on_unknown": "retry", "forward_key": "same"},
            {"name": "rest", "upstream": "api"},
        ],
    }
    with proxy(*configuration(tmp_path_factory.mktemp("proxy"), settings)) as program:
        yield program


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


CASES = [
    pytest.param(answered(500), (500, "unknown", None), id="500"),
    pytest.param(answered(504), (504, "unknown", None), id="504"),
    pytest.param(resets, (502, "unknown", "outcome-unknown"), id="reset"),
    pytest.param(hangs_up, (502, "unknown", "outcome-unknown"), id="closed"),
    pytest.param(cuts_short, (502, "unknown", "outcome-unknown"), id="cut short"),
    pytest.param(is_silent, (504, "unknown", "outcome-unknown"), id="silent"),
    pytest.param(stalls, (504, "unknown", "outcome-unknown"), id="stalled"),
]


@pytest.mark.parametrize(("play", "expected"), CASES)
def test_an_unknown_outcome_is_told_held_and_resolved(
    running: Program, upstream: Upstream, key: str, play: Play, expected: tuple[int, str, str | None]
) -> None:
    """The upstream's own error, or what the proxy knows; then 409 for everyone; then what a person has found out."""
    upstream.plays(play)
    first = ask(running.url, key)
    upstream.plays(answers(OK))
    held = [ask(running.url, key), ask(running.url, key)]
    decision = ("--as", "completed", "--status", "201", "--header", "Location: /charges/7", "--body", "found", "--why", "a test")
    resolved = main(["records", "resolve", hashed(key), "--admin", running.admin, *decision])
    after = ask(running.url, key)

    slug = first.document["type"] if expected[2] else None
    assert expected == (first.status, first.told, slug)
    assert expected[2] or first.body == b"sorry"
    assert ["unknown"] * 2 == [answer.told for answer in held]
    assert [HELD] * 2 == [answer.problem for answer in held]
    assert 0 == resolved
    assert ((201, "replayed", b"found"), "/charges/7") == (told(after), after.field("Location"))
    assert [] == upstream.requests


def test_resolved_as_not_executed_it_is_sent(running: Program, upstream: Upstream, key: str) -> None:
    """Nobody but a person frees a key whose outcome is unknown; then the next one is the first."""
    upstream.plays(resets)
    ask(running.url, key)
    upstream.plays(answers(OK))
    held = ask(running.url, key)
    decision = ("--as", "not-executed", "--why", "a test")
    resolved = main(["records", "resolve", hashed(key), "--admin", running.admin, *decision])
    after = [ask(running.url, key), ask(running.url, key)]

    assert (HELD, 0) == (held.problem, resolved)
    assert [(201, "executed", b"charge_1"), (201, "replayed", b"charge_1")] == [told(answer) for answer in after]
    assert 1 == len(upstream.requests)


def test_what_is_unknown_is_sent_again_to_an_upstream_that_honours_keys(running: Program, upstream: Upstream, key: str) -> None:
    """With `on_unknown: retry` the retry goes out with the same key, by which the upstream knows it again."""
    seen: list[bytes] = []

    def honours_keys(line: Line) -> None:
        given = line.request().values("Idempotency-Key")
        if given[0] in seen:
            line.send(OK)
            line.wait_for_end()
        else:
            seen.append(given[0])
            line.reset()

    upstream.plays(honours_keys)
    lost, answer, again = (ask(running.url, key, target="/again") for _ in range(3))

    assert problem(502, "outcome-unknown", "unknown", "after_check") == lost.problem
    assert [(201, "executed", b"charge_1"), (201, "replayed", b"charge_1")] == [told(answer), told(again)]
    assert ([key.encode()], 2) == (seen, len(upstream.requests))


@pytest.fixture(scope="module")
def ledger() -> Iterator[DemoApi]:
    """The sample upstream, which keeps a ledger."""
    with demo_api() as api:
        yield api


def test_a_client_that_leaves_a_long_write_finds_its_answer(ledger: DemoApi, store_url: str, key: str) -> None:
    """Gone after 100 ms of a write that takes 3 s: its retry gets the first answer, and there is one effect."""
    charges = ledger.charges()
    fields = [("Demo-Fault", "delay_before=3")]
    with proxy("--upstream", ledger.url, "--store", store_url) as running:
        with socket.create_connection(("127.0.0.1", running.port), timeout=0.1) as client:
            client.sendall(request_bytes(key, fields=fields))
            with pytest.raises(TimeoutError):
                client.recv(1)
        begun = monotonic()
        retry, again = ask(running.url, key, fields=fields), ask(running.url, key, fields=fields)
        waited = monotonic() - begun

    assert [(201, "replayed")] * 2 == [(answer.status, answer.told) for answer in (retry, again)]
    assert retry.body == again.body
    assert charges + 1 == ledger.charges()
    assert waited > 1
