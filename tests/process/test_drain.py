"""How a run ends: the attempts under way, the deadline, the second signal, and the exit codes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import RemoteDisconnected
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from typing import Final

import pytest

from tests.process.asking import Answer, Caller, ask, claims, configuration, eventually, problem, request_bytes, samples
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy

UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
LONG: Final = "1h"
DEADLINE: Final = "idemproxy_drain_deadline_timestamp_seconds", ()


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that answers when it may."""
    with upstream() as server:
        yield server


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for requests that wait."""
    with ThreadPoolExecutor(4) as threads:
        yield threads


def run(directory: Path, api: Upstream, store_url: str, drain: str) -> tuple[str, ...]:
    """Arguments of a proxy whose leases outlive every test."""
    settings = {"upstreams": {"api": {"url": api.url}}, "defaults": {"lease": LONG}, "store": {"url": store_url}, "drain": drain}
    return configuration(directory, settings)


def under_way(running: Program, api: Upstream, pool: ThreadPoolExecutor, key: str) -> Future[Answer]:
    """A request on which the upstream works."""
    api.hold()
    asked = pool.submit(ask, running.url, key)
    eventually(lambda: len(api.arrived) == 1)
    return asked


def is_draining(running: Program) -> bool:
    """Whether the proxy has said that it drains."""
    return any("draining" in line for line in running.told)


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


@pytest.mark.parametrize("signal", [SIGTERM, SIGINT])
def test_those_who_wait_for_an_attempt_get_its_answer(
    api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path, signal: Signals
) -> None:
    """The one who asked first, one who asked again, and nobody else: what comes new is refused, and the exit is 0."""
    arguments = run(tmp_path, api, store_url, drain="1h")
    with proxy(*arguments) as running, Caller(running.url) as kept:
        kept.exchange(request_bytes(f"{key}-before"))
        api.arrived.clear()
        first = under_way(running, api, pool, key)
        asked = claims(running.admin)
        second = pool.submit(ask, running.url, key, wait=30)
        eventually(lambda: claims(running.admin) >= asked + 2)  # it has found the first, and asked to be woken
        with Caller(running.url) as unheard:
            running.send(signal)
            eventually(lambda: is_draining(running))
            refused = [caller.exchange(request_bytes(f"{key}-new")) for caller in (kept, unheard)]
        api.let_go()
        answers = [first.result(), second.result()]
        code = running.process.wait(20)

    assert [problem(503, "draining", "no", "same_key")] * 2 == [answer.problem for answer in refused]
    assert [(201, "executed", b'{"id": "op_1"}'), (201, "replayed", b'{"id": "op_1"}')] == [told(answer) for answer in answers]
    assert (0, 1) == (code, len(api.arrived))


def test_an_answer_after_a_refusal_ends_the_connection(
    api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """A kept connection is refused once while the proxy drains, and closed: the next request on it does not hang."""
    with proxy(*run(tmp_path, api, store_url, drain="1h")) as running, Caller(running.url) as kept:
        kept.exchange(request_bytes(f"{key}-before"))
        api.arrived.clear()
        first = under_way(running, api, pool, key)
        running.send(SIGTERM)
        eventually(lambda: is_draining(running))
        refused = kept.exchange(request_bytes(f"{key}-new"))
        with pytest.raises((ConnectionError, RemoteDisconnected)):
            kept.exchange(request_bytes(f"{key}-new"))
        api.let_go()

        assert ("close", 503) == (refused.field("Connection"), refused.status)
        assert 201 == first.result().status


def ends_unfinished(running: Program, api: Upstream, pool: ThreadPoolExecutor, key: str, signals: int) -> tuple[int, Answer]:
    """The exit code, and what the client is told, of a run that is told to end while the upstream works."""
    asked = under_way(running, api, pool, key)
    for _ in range(signals):
        running.send(SIGTERM)
        eventually(lambda: is_draining(running))
    code = running.process.wait(20)
    return code, asked.result()


@pytest.mark.parametrize(("drain", "signals"), [("300ms", 1), ("1h", 2)], ids=["deadline", "second signal"])
def test_what_did_not_end_is_unknown(
    api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path, drain: str, signals: int
) -> None:
    """At the deadline, or at once at a second signal, it exits with 3; the client is told, and the record says so, at once."""
    with proxy(*run(tmp_path, api, store_url, drain)) as running:
        code, told = ends_unfinished(running, api, pool, key, signals)
        last = list(running.told)[-1]
    with proxy("--upstream", f"api={api.url}", "--store", store_url) as other:
        answer = ask(other.url, key, wait=0)

    assert (3, problem(502, "outcome-unknown", "unknown", "after_check")) == (code, told.problem)
    assert last.startswith("ERROR ended with 1 ")
    assert UNKNOWN == answer.problem
    assert 1 == len(api.arrived)


def test_metrics_tell_the_deadline_of_a_drain(
    api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """As long as it drains, whoever scrapes it sees what is under way and until when; before, that there is no deadline."""
    with proxy(*run(tmp_path, api, store_url, drain="1h")) as running:
        asked = under_way(running, api, pool, key)
        before = samples(running.admin)
        earliest = time.time()
        running.send(SIGTERM)
        eventually(lambda: is_draining(running))
        latest = time.time()
        meanwhile = samples(running.admin)
        api.let_go()
        asked.result()

    assert (0, 1) == (before[DEADLINE], meanwhile["idemproxy_in_flight", ()])
    assert earliest <= meanwhile[DEADLINE] - 3600 <= latest


def test_nothing_under_way_ends_at_once(api: Upstream, store_url: str, key: str, tmp_path: Path) -> None:
    """A kept connection without a request keeps nobody waiting: the exit is 0, long before the deadline."""
    with proxy(*run(tmp_path, api, store_url, drain="1h")) as running, Caller(running.url) as kept:
        kept.exchange(request_bytes(key))
        running.send(SIGTERM)
        code = running.process.wait(20)

    assert 0 == code


def test_exit_codes_of_a_run_that_does_not_start(api: Upstream, store_url: str, tmp_path: Path) -> None:
    """2 for a configuration that cannot be run, 1 for an address that is taken; each says what to do."""
    with proxy(*run(tmp_path, api, store_url, drain="1s")) as running:
        taken = ("--listen", f"127.0.0.1:{running.port}", "--admin-listen", "127.0.0.1:0", "--spool", str(tmp_path / "spool"))
        ended = [
            subprocess.run([sys.executable, "-m", "idemproxy", "run", *flags], capture_output=True, text=True, check=False)
            for flags in (("--upstream", "ftp://nowhere"), (*run(tmp_path, api, store_url, "1s"), *taken))
        ]

    assert [2, 1] == [each.returncode for each in ended]
    assert "upstream" in ended[0].stderr
    assert f"cannot listen on 127.0.0.1:{running.port}" in ended[1].stderr
    assert "choose another address with --listen" in ended[1].stderr
