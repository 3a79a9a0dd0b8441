"""The order of things: the claim is durable before the first byte leaves, and the settlement before the reply's first byte."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

import pytest

from tests.servers import RedisServer, redis_server
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.combination import Combination, wired
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream, answers, nothing

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
A_WHILE = 0.3
"""Seconds. What must not happen has so long to happen; a test that passes does not depend on it."""


def test_the_record_is_in_flight_when_the_request_arrives(upstream: Upstream, port: int, records: Records) -> None:
    """Another process reads the claim from the file by the time that the upstream has the request."""
    key = new_key()
    found = []

    def look(line: Line) -> None:
        line.exactly(1)
        found.append(records.phase(key))
        line.request()
        line.send(OK)

    upstream.plays(look)

    answer = ask(port, request("POST", "/charges", body=b"amount=1", key=key))

    assert ["in_flight"] == found
    assert "executed" == outcome(answer)


def test_nothing_leaves_before_the_claim_is_stored(upstream: Upstream, port: int, records: Records) -> None:
    """While nobody can write to the file, the upstream does not even see a connection; then it sees one request."""
    upstream.plays(answers(OK))
    key = new_key()
    with Client(port) as client:
        lock = records.lock()
        client.send(request("POST", "/charges", body=b"amount=1", key=key))
        silent = client.silent(A_WHILE)
        lines = list(upstream.lines)
        lock.close()
        answer = client.message()

    assert silent
    assert [] == lines
    assert "executed" == outcome(answer)
    assert 1 == len(upstream.requests)


def test_the_record_is_completed_at_the_first_byte_of_the_reply(upstream: Upstream, port: int, records: Records) -> None:
    """Whoever has one byte of the reply finds the settled record in the file."""
    upstream.plays(answers(OK))
    found = []
    for _ in range(50):
        key = new_key()
        with Client(port) as client:
            client.send(request("POST", "/charges", body=b"amount=1", key=key))
            client.sock.recv(1)
            found.append(records.phase(key))

    assert ["completed"] * 50 == found


@pytest.mark.parametrize(
    ("answer", "expected", "phase"),
    [
        (OK, (200, "executed"), "completed"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", (500, "unknown"), "unknown"),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", (429, "refused"), None),
        (b"", (502, "unknown"), "unknown"),
    ],
    ids=["complete", "mark unknown by status", "release", "mark unknown"],
)
def test_nothing_is_replied_before_the_settlement_is_stored(
    upstream: Upstream, port: int, records: Records, answer: bytes, expected: tuple[int, str], phase: str | None
) -> None:
    """While nobody can write to the file, the client hears nothing of the upstream's answer; then it hears all of it."""
    locked: list[sqlite3.Connection] = []
    answered = threading.Event()

    def lock_and_answer(line: Line) -> None:
        line.request()
        locked.append(records.lock())
        line.send(answer)
        answered.set()

    upstream.plays(lock_and_answer)
    key = new_key()
    with Client(port) as client:
        client.send(request("POST", "/charges", body=b"amount=1", key=key))
        assert answered.wait(10)
        silent = client.silent(A_WHILE)
        locked[0].close()
        reply = client.message()

    assert silent
    assert expected == (status(reply), outcome(reply))
    assert phase == records.phase(key)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A durable server."""
    with redis_server(appendonly=True) as server:
        yield server


@pytest.fixture(scope="module")
def behind(combination: Combination) -> Iterator[Upstream]:
    """The upstream of the two proxies."""
    upstream = Upstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def pair(redis: RedisServer, behind: Upstream) -> Iterator[tuple[int, int]]:
    """Two proxies on one Redis: their ports."""
    settings = {"upstreams": {"behind": {"url": behind.url}}, "store": {"url": redis.url}}
    with wired(settings) as one, wired(settings) as other:
        yield one.port, other.port


def test_two_proxies_on_one_redis_agree_at_every_step(behind: Upstream, pair: tuple[int, int]) -> None:
    """When the request arrives the other proxy says in-progress, and at the reply's first byte it replays."""
    here, there = pair
    key = new_key()
    retry = request("POST", "/charges", "Prefer: wait=0", body=b"amount=1", key=key)
    during = []

    def ask_the_other(line: Line) -> None:
        line.exactly(1)
        during.append(ask(there, retry))
        line.request()
        line.send(OK)

    behind.plays(ask_the_other)
    with Client(here) as client:
        client.send(request("POST", "/charges", body=b"amount=1", key=key))
        client.sock.recv(1)
        after = ask(there, retry)

    assert [(409, "in-progress", "in_progress", "same_key")] == [problem(answer) for answer in during]
    assert (200, "replayed", b"ok") == (status(after), outcome(after), after.body)
    assert 1 == len(behind.requests)


def test_nothing_leaves_or_returns_past_a_redis_that_does_not_answer(
    behind: Upstream, pair: tuple[int, int], redis: RedisServer
) -> None:
    """While Redis is stopped no claim is granted and no settlement taken: nothing is sent, and then nothing replied."""
    behind.plays(nothing)
    key = new_key()
    paused = threading.Event()

    def pause_and_answer(line: Line) -> None:
        line.request()
        redis.pause()
        line.send(OK)
        paused.set()

    behind.plays(pause_and_answer)
    with Client(pair[0]) as client:
        redis.pause()
        client.send(request("POST", "/charges", body=b"amount=1", key=key))
        silent = [client.silent(A_WHILE)]
        lines = list(behind.lines)
        redis.resume()
        assert paused.wait(10)
        silent.append(client.silent(A_WHILE))
        redis.resume()
        answer = client.message()

    assert [True, True] == silent
    assert [] == lines
    assert (200, "executed", b"ok") == (status(answer), outcome(answer), answer.body)
    assert 1 == len(behind.requests)
