"""A holder that was stopped, or kept waiting, past its lease: what it may still do when it wakes, and what it may not."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from time import monotonic
from typing import Final

import pytest

from tests.process.asking import Answer, ask, configuration, counted, eventually, problem, request_bytes
from tests.process.points import Asked, Place, full_upstream, hashed
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy

LEASE: Final = 3
"""Seconds, the shortest that there is."""
PATIENCE: Final = 30
UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
NOT_SENT: Final = problem(503, "not-sent", "no", "same_key")


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that answers when it may."""
    with upstream() as server:
        yield server


@contextmanager
def holder(place: Place, directory: Path, url: str, **route: object) -> Iterator[Program]:
    """A proxy with the shortest lease, to be stopped; `route` are settings of its only route."""
    with proxy(*arguments(directory, place.url, url, **route)) as running:
        yield running
        running.send(SIGCONT)


@contextmanager
def other(place: Place, directory: Path, url: str, **route: object) -> Iterator[Program]:
    """A proxy on the same store, which nobody stops."""
    aside = directory / "aside"
    aside.mkdir()
    with proxy(*arguments(aside, place.aside, url, **route)) as running:
        yield running


def arguments(directory: Path, store: str, url: str, **route: object) -> tuple[str, ...]:
    """Of a proxy with one route."""
    settings = {
        "upstreams": {"api": {"url": url}},
        "defaults": {"lease": f"{LEASE}s"},
        "store": {"url": store},
        "routes": [{"name": "api", "upstream": "api", **route}],
    }
    return configuration(directory, settings)


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


def is_unrecorded(answer: Answer) -> bool:
    """Whether the answer is marked as one that the store has not taken."""
    return (answer.field("Idempotency-Status") or "").endswith("; unrecorded")


def settlements(program: Program, operation: str, result: str) -> float:
    """How many of the proxy's settlements came to this."""
    return counted(program.admin, "idemproxy_settlements_total", operation=operation, result=result)


def everything_from(connection: socket.socket) -> bytes:
    """All that comes from a connection until its end."""
    data = b""
    with connection:
        while piece := connection.recv(1 << 16):
            data += piece
    return data


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for requests that wait."""
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_stopped_before_the_first_byte(
    place: Place, api: Upstream, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """It wakes with a connection, and a lease that is over: it hangs up without a byte, says so, and the key is free again."""
    with full_upstream() as full, other(place, tmp_path, api.url) as aside, holder(place, tmp_path, full.url) as stopped:
        first = pool.submit(ask, stopped.url, key)
        full.until_wanted()
        eventually(lambda: place.phase(key) == "in_flight")
        stopped.send(SIGSTOP)
        connection = full.accept()
        meanwhile = ask(aside.url, key, wait=PATIENCE)
        stopped.send(SIGCONT)
        sent = everything_from(connection)
        refused = first.result()
        after = ask(aside.url, key)

    assert UNKNOWN == meanwhile.problem
    assert b"" == sent
    assert NOT_SENT == refused.problem
    assert (201, "executed", b'{"id": "op_1"}') == told(after)
    assert 1 == len(api.arrived)


def test_the_lease_counts_from_before_the_claim(place: Place, api: Upstream, key: str, tmp_path: Path) -> None:
    """A claim that is granted when its lease, as its holder counts it, is over is given up: nothing is sent, the key is free."""
    with holder(place, tmp_path, api.url) as starved:
        ask(starved.url, f"{key}-before")
        place.stop_before(hashed(key).encode())
        with Asked(starved, request_bytes(key)) as client:
            place.until_asked(starved.port, client.port)
            asked_at = monotonic()
            starved.send(SIGSTOP)
            place.let_pass()
            eventually(lambda: monotonic() > asked_at + LEASE)
            starved.send(SIGCONT)
            refused = client.answer()
        arrived = len(api.arrived)
        after = ask(starved.url, key)

    assert NOT_SENT == refused.problem
    assert 1 == arrived
    assert (201, "executed", b'{"id": "op_2"}') == told(after)


def late(place: Place, api: Upstream, stopped: Program, pool: ThreadPoolExecutor, key: str) -> Future[Answer]:
    """A request whose holder is stopped while the upstream works on it."""
    api.hold()
    first = pool.submit(ask, stopped.url, key)
    eventually(lambda: len(api.arrived) == 1)
    stopped.send(SIGSTOP)
    return first


def test_a_late_completion_settles_what_was_unknown(
    place: Place, api: Upstream, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """Its fence is still the record's: the answer is stored, and who asks from then on gets it."""
    with other(place, tmp_path, api.url) as aside, holder(place, tmp_path, api.url) as stopped:
        first = late(place, api, stopped, pool, key)
        meanwhile = ask(aside.url, key, wait=PATIENCE)
        api.let_go()
        stopped.send(SIGCONT)
        answer, after = first.result(), ask(aside.url, key)
        written = settlements(stopped, "complete", "written")

    assert UNKNOWN == meanwhile.problem
    assert [(201, "executed", b'{"id": "op_1"}'), (201, "replayed", b'{"id": "op_1"}')] == [told(answer), told(after)]
    assert (False, 1) == (is_unrecorded(answer), written)
    assert 1 == len(api.arrived)


def test_a_late_completion_does_not_replace_what_a_person_resolved(
    place: Place, api: Upstream, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """Its fence is an older one: it changes nothing, is told so, and is counted."""
    with other(place, tmp_path, api.url) as aside, holder(place, tmp_path, api.url) as stopped:
        first = late(place, api, stopped, pool, key)
        ask(aside.url, key, wait=PATIENCE)
        resolve(aside, key, "--as", "completed", "--status", "200", "--body", "resolved")
        api.let_go()
        stopped.send(SIGCONT)
        answer, after = first.result(), ask(aside.url, key)
        stale = settlements(stopped, "complete", "stale")

    assert ((201, "unknown", b'{"id": "op_1"}'), True) == (told(answer), is_unrecorded(answer))
    assert (200, "replayed", b"resolved") == told(after)
    assert 1 == stale
    assert 1 == len(api.arrived)


def test_a_late_completion_does_not_replace_a_later_one(
    place: Place, api: Upstream, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """Where the policy is to run again, another has forwarded under a new fence: what that one was answered stays."""
    with (
        other(place, tmp_path, api.url, on_unknown="retry") as aside,
        holder(place, tmp_path, api.url, on_unknown="retry") as stopped,
    ):
        first = late(place, api, stopped, pool, key)
        second = pool.submit(ask, aside.url, key, wait=PATIENCE)
        eventually(lambda: len(api.arrived) == 2)
        api.let_go()
        again = second.result()
        stopped.send(SIGCONT)
        answer, after = first.result(), ask(aside.url, key)
        stale = settlements(stopped, "complete", "stale")

    assert [(201, "executed", b'{"id": "op_2"}'), (201, "replayed", b'{"id": "op_2"}')] == [told(again), told(after)]
    assert ((201, "unknown", b'{"id": "op_1"}'), True) == (told(answer), is_unrecorded(answer))
    assert 1 == stale


def resolve(program: Program, key: str, *decision: str) -> None:
    """Decide an unknown outcome, as an operator does."""
    command = ("records", "resolve", hashed(key), "--admin", program.admin, *decision, "--why", "a test")
    subprocess.run([sys.executable, "-m", "idemproxy", *command], check=True, capture_output=True)
