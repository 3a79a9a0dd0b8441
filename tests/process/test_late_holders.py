"""A holder that was stopped, or kept waiting, past its lease: what it may still do when it wakes, and what it may not.

One stop serves several keys: it comes when the holder is at another point with each, and while it lasts others act on them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from time import monotonic
from typing import Final
from uuid import uuid4

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


@dataclass(frozen=True, slots=True)
class Story:
    """What was answered for a key: to the one whose holder was stopped, meanwhile at another proxy, and after it had woken."""

    first: Answer
    meanwhile: Answer
    after: Answer


@dataclass(frozen=True, slots=True)
class Stopped:
    """What came of it: the stories by what was done to the key, the bytes that left unsent requests, and the settlements."""

    stories: dict[str, Story]
    sent: bytes
    settled: dict[tuple[str, str], float]


def arguments(directory: Path, store: str, api: str, full: str) -> tuple[str, ...]:
    """Of a proxy with the shortest lease: one route leads to an upstream that nobody reaches, one runs again what is unknown."""
    settings = {
        "upstreams": {"api": {"url": api}, "full": {"url": full}},
        "defaults": {"lease": f"{LEASE}s"},
        "store": {"url": store},
        "routes": [
            {"name": "unsent", "match": {"path": "/unsent"}, "upstream": "full"},
            {"name": "run-again", "match": {"path": "/run-again"}, "upstream": "api", "on_unknown": "retry"},
            {"name": "rest", "upstream": "api"},
        ],
    }
    directory.mkdir()
    return configuration(directory, settings)


@contextmanager
def two_proxies(place: Place, directory: Path, api: Upstream, full: str) -> Iterator[tuple[Program, Program]]:
    """The one to be stopped, and another on the same store, for which the full upstream is one that answers."""
    with (
        proxy(*arguments(directory / "aside", place.aside, api.url, api.url)) as aside,
        proxy(*arguments(directory / "stopped", place.url, api.url, full)) as stopped,
    ):
        yield stopped, aside
        stopped.send(SIGCONT)


@pytest.fixture(scope="module")
def woken(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """A proxy that was stopped with four requests under way, until its leases were over, and woken."""
    names = ("unsent", "settled", "resolved", "run-again")
    keys = {name: f"{name}-{uuid4()}" for name in names}
    with (
        upstream() as api,
        full_upstream() as full,
        two_proxies(place, tmp_path_factory.mktemp("late"), api, full.url) as (stopped, aside),
        ThreadPoolExecutor(8) as pool,
    ):
        api.hold()
        asked = {}
        for number, name in enumerate(names):
            asked[name] = pool.submit(ask, stopped.url, keys[name], target=f"/{name}")
            eventually(partial(arrived, api, number))
        full.until_wanted()
        stopped.send(SIGSTOP)
        connection = full.accept()
        again = pool.submit(ask, aside.url, keys["run-again"], target="/run-again", wait=PATIENCE)
        meanwhile = {name: ask(aside.url, keys[name], target=f"/{name}", wait=PATIENCE) for name in names[:3]}
        resolve(aside, keys["resolved"], "--as", "completed", "--status", "200", "--body", "resolved")
        eventually(lambda: len(api.arrived) == len(names))
        api.let_go()
        meanwhile["run-again"] = again.result()
        stopped.send(SIGCONT)
        sent = everything_from(connection)
        first = {name: each.result() for name, each in asked.items()}
        after = {name: ask(aside.url, keys[name], target=f"/{name}") for name in names}
        settled = {
            pair: counted(stopped.admin, "idemproxy_settlements_total", operation=pair[0], result=pair[1])
            for pair in (("complete", "written"), ("complete", "stale"), ("release", "written"))
        }
    return Stopped({name: Story(first[name], meanwhile[name], after[name]) for name in names}, sent, settled)


def arrived(api: Upstream, count: int) -> bool:
    """Whether so many requests have come to the upstream."""
    return len(api.arrived) == count


def resolve(program: Program, key: str, *decision: str) -> None:
    """Decide an unknown outcome, as an operator does."""
    command = ("records", "resolve", hashed(key), "--admin", program.admin, *decision, "--why", "a test")
    subprocess.run([sys.executable, "-m", "idemproxy", *command], check=True, capture_output=True)


def everything_from(connection: socket.socket) -> bytes:
    """All that comes from a connection until its end."""
    data = b""
    with connection:
        while piece := connection.recv(1 << 16):
            data += piece
    return data


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


def is_unrecorded(answer: Answer) -> bool:
    """Whether the answer is marked as one that the store has not taken."""
    return (answer.field("Idempotency-Status") or "").endswith("; unrecorded")


def test_woken_before_the_first_byte_it_sends_nothing(woken: Stopped) -> None:
    """It finds a connection, and its lease over: it hangs up without a byte, says so, and the key is free again."""
    story = woken.stories["unsent"]

    assert UNKNOWN == story.meanwhile.problem
    assert b"" == woken.sent
    assert NOT_SENT == story.first.problem
    assert (201, "executed", b'{"id": "op_5"}') == told(story.after)
    assert 1 == woken.settled["release", "written"]


def test_a_late_completion_settles_what_was_unknown(woken: Stopped) -> None:
    """Its fence is still the record's: the answer is stored, and who asks from then on gets it."""
    story = woken.stories["settled"]

    assert UNKNOWN == story.meanwhile.problem
    assert ((201, "executed", b'{"id": "op_1"}'), False) == (told(story.first), is_unrecorded(story.first))
    assert (201, "replayed", b'{"id": "op_1"}') == told(story.after)
    assert 1 == woken.settled["complete", "written"]


def test_a_late_completion_does_not_replace_what_a_person_resolved(woken: Stopped) -> None:
    """Its fence is an older one: it changes nothing, its client is told that this is not all, and it is counted."""
    story = woken.stories["resolved"]

    assert UNKNOWN == story.meanwhile.problem
    assert ((201, "unknown", b'{"id": "op_2"}'), True) == (told(story.first), is_unrecorded(story.first))
    assert (200, "replayed", b"resolved") == told(story.after)
    assert 2 == woken.settled["complete", "stale"]


def test_a_late_completion_does_not_replace_a_later_one(woken: Stopped) -> None:
    """Where the policy is to run again, another has forwarded under a new fence: what that one was answered stays."""
    story = woken.stories["run-again"]

    assert (201, "executed", b'{"id": "op_4"}') == told(story.meanwhile)
    assert ((201, "unknown", b'{"id": "op_3"}'), True) == (told(story.first), is_unrecorded(story.first))
    assert (201, "replayed", b'{"id": "op_4"}') == told(story.after)
    assert 2 == woken.settled["complete", "stale"]


def test_the_lease_counts_from_before_the_claim(place: Place, key: str, tmp_path: Path) -> None:
    """A claim that is granted when its lease, as its holder counts it, is over is given up: nothing is sent, the key is free."""
    with upstream() as api, proxy(*arguments(tmp_path / "starved", place.url, api.url, api.url)) as starved:
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
        sent = len(api.arrived)
        after = ask(starved.url, key)

    assert NOT_SENT == refused.problem
    assert 1 == sent
    assert (201, "executed", b'{"id": "op_2"}') == told(after)
