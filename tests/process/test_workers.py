"""Several workers on one port: one store, one answer, one page of metrics, one end; and what the death of one of them costs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGKILL, SIGSTOP, SIGTERM
from typing import Final

import pytest

from idemproxy.workers import pause_after
from tests.process.asking import Answer, ask, configuration, counted, eventually, page, problem, samples
from tests.process.test_store_checks import refused
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy
from tests.servers import redis_server

UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
EXECUTED: Final = (201, "executed")
MANY: Final = 24
"""Connections of which the system gives each worker some: that one gets none happens once in eight million times."""


@pytest.fixture(scope="module")
def api() -> Iterator[Upstream]:
    """An upstream that answers when it may."""
    with upstream() as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh(api: Upstream) -> None:
    api.let_go()
    api.answers = True
    api.arrived.clear()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for requests at the same time."""
    with ThreadPoolExecutor(MANY) as threads:
        yield threads


@contextmanager
def pair(directory: Path, api: Upstream, store_url: str, drain: str = "1h") -> Iterator[Program]:
    """A proxy with two workers, whose leases outlive every test."""
    directory.mkdir(exist_ok=True)
    settings = {
        "upstreams": {"api": {"url": api.url}},
        "defaults": {"lease": "1h"},
        "store": {"url": store_url},
        "drain": drain,
        "access_log": False,
        "workers": 2,
    }
    with proxy(*configuration(directory, settings)) as running:
        yield running


@pytest.fixture(scope="module")
def shared(api: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One for the tests that leave it as it was."""
    directory = tmp_path_factory.mktemp("shared")
    with pair(directory, api, f"sqlite:///{directory}/records.db") as running:
        yield running


def workers(running: Program) -> list[int]:
    """The processes that serve."""
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def told(running: Program, words: str) -> list[str]:
    """The lines on standard error with these words."""
    return [line.strip() for line in running.told if words in line]


def is_ready(running: Program) -> bool:
    """As a load balancer asks."""
    return page(f"{running.admin}/readyz")[0] == 200


def under_way(
    running: Program, api: Upstream, pool: ThreadPoolExecutor, key: str, count: int = MANY
) -> dict[str, Future[Answer]]:
    """Requests on which the upstream works, by their keys."""
    api.hold()
    asked = {f"{key}-{number}": pool.submit(ask, running.url, f"{key}-{number}") for number in range(count)}
    eventually(lambda: len(api.arrived) == count)
    return asked


def test_a_key_has_one_effect_whichever_worker_is_asked(
    api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """Many that ask at once with one key, of both workers, get one answer; so do those that ask later."""
    with pair(tmp_path, api, store_url) as running:
        api.hold()
        asked = [pool.submit(ask, running.url, key, wait=30) for _ in range(MANY)]
        eventually(lambda: counted(running.admin, "idemproxy_store_operations_total", operation="claim") >= MANY)
        api.let_go()
        first = [each.result() for each in asked]
        again = list(pool.map(lambda _: ask(running.url, key), range(MANY)))

    assert 1 == len(api.arrived)
    assert {b'{"id": "op_1"}'} == {answer.body for answer in (*first, *again)}
    assert ["executed", *["replayed"] * (2 * MANY - 1)] == sorted(answer.told for answer in (*first, *again))


def test_metrics_are_those_of_all(shared: Program, pool: ThreadPoolExecutor, key: str) -> None:
    """Whichever worker is scraped counts every request of both, and of the store's operations none twice."""
    before = samples(shared.admin)
    list(pool.map(lambda number: ask(shared.url, f"{key}-{number}"), range(MANY)))
    requests = "idemproxy_requests_total", (("outcome", "executed"), ("route", "api"))
    claims = "idemproxy_store_operations_total", (("operation", "claim"), ("result", "ok"), ("store", "sqlite"))
    eventually(lambda: samples(shared.admin)[requests] == before[requests] + MANY)

    scraped = list(pool.map(lambda _: samples(shared.admin), range(8)))
    assert {(before[requests] + MANY, before[claims] + MANY)} == {(each[requests], each[claims]) for each in scraped}
    assert {1.0} == {each["idemproxy_store_up", (("store", "sqlite"),)] for each in scraped}


def test_health_is_that_of_each(shared: Program) -> None:
    """Whoever asks whether it is ready is told of every check of every worker, and is answered as by one process."""
    status, text = page(f"{shared.admin}/readyz?verbose")
    checks = [line.split(":")[0].removesuffix(" ok") for line in text.splitlines()]

    each = [f"[+] worker {number} {check}" for number in (1, 2) for check in ("startup", "shutdown", "store", "spool")]
    assert (200, [*each, "ok"]) == (status, [line.removesuffix(" ok") for line in checks])
    assert [(200, "ok\n")] * 3 == [page(f"{shared.admin}/{name}") for name in ("livez", "readyz", "startupz")]


def test_it_tells_once_where_it_listens(shared: Program) -> None:
    """However many listen, there is one line for clients, with the port that the system has chosen, and one for operators."""
    assert [f"INFO listening on {shared.url}"] == told(shared, "listening on")
    assert [f"INFO admin on {shared.admin}"] == told(shared, "admin on")
    assert 0 != shared.port


def test_sighup_reaches_each(shared: Program) -> None:
    """Every worker answers a SIGHUP, and none ends."""
    before = workers(shared)
    shared.send(SIGHUP)
    lines = [f"WARNING worker {number}: SIGHUP: a changed configuration needs a restart" for number in (1, 2)]
    eventually(lambda: sorted(told(shared, "SIGHUP")) == lines)

    assert before == workers(shared)


def test_a_worker_that_hangs_is_told_of(shared: Program, pool: ThreadPoolExecutor) -> None:
    """One that lives and does not answer makes the proxy neither alive nor ready, until it goes on."""
    _, hanging = workers(shared)
    os.kill(hanging, SIGSTOP)
    try:
        alive = page(f"{shared.admin}/livez")
        ready = page(f"{shared.admin}/readyz")
    finally:
        os.kill(hanging, SIGCONT)
    eventually(lambda: is_ready(shared))

    assert (503, "worker 2 does not answer\n") == alive
    assert (503, "[-] worker 2: no answer within 0.9 s\nnot ready\n") == ready
    assert 200 == page(f"{shared.admin}/livez")[0]


class Visitor(threading.Thread):
    """One who connects all the time; `faults` are the kinds of what went wrong."""

    def __init__(self, running: Program) -> None:
        super().__init__(daemon=True)
        self._running = running
        self._enough = threading.Event()
        self.faults: set[type[Exception]] = set()
        self.served = 0

    def run(self) -> None:
        """Ask for a page of the proxy's own."""
        while not self._enough.is_set():
            try:
                ask(self._running.url, method="GET", target="/_idemproxy/keys/none", body=b"")
                self.served += 1
            except (OSError, HTTPException) as exc:
                self.faults.add(type(exc))

    def stop(self) -> None:
        """See it end."""
        self._enough.set()
        self.join()


def test_a_killed_worker_takes_nothing_of_the_others_along(
    api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path
) -> None:
    """After kill -9 the others answer all that they had, and the port refuses nobody; what the killed one had is unknown at once.

    Another one is started, and no counter goes back.
    """
    with pair(tmp_path, api, store_url) as running:
        ask(running.url, f"{key}-before")
        api.arrived.clear()
        visitor = Visitor(running)
        visitor.start()
        asked = under_way(running, api, pool, key)
        before = samples(running.admin)
        victim, other = workers(running)
        os.kill(victim, SIGKILL)
        eventually(lambda: told(running, "signal 9"))
        eventually(lambda: len(workers(running)) == 2 and is_ready(running))
        eventually(lambda: told(running, "marked unknown"))
        served = visitor.served
        eventually(lambda: visitor.served > served + 10)
        visitor.stop()
        api.let_go()
        answers = {name: _outcome(each) for name, each in asked.items()}
        lost = {name for name, answer in answers.items() if answer is None}
        retried = [ask(running.url, name, wait=0) for name in lost]
        after = samples(running.admin)
        code = running.stop()

    assert {EXECUTED} == {(answer.status, answer.told) for answer in answers.values() if answer is not None}
    assert 0 < len(lost) < MANY
    assert [UNKNOWN] * len(lost) == [answer.problem for answer in retried]
    assert MANY == len(api.arrived)
    assert ConnectionRefusedError not in visitor.faults
    assert [] == [
        name for name in before if name[0].endswith(("_total", "_count", "_bucket", "_sum")) and after[name] < before[name]
    ]
    assert 1 == after["idemproxy_worker_restarts_total", ()]
    assert len(told(running, "what it had under way becomes unknown")) == 1
    assert gone(other)
    assert 0 == code


def _outcome(asked: Future[Answer]) -> Answer | None:
    """The answer; None when the connection broke."""
    try:
        return asked.result()
    except (OSError, HTTPException):
        return None


def test_all_are_drained(api: Upstream, store_url: str, pool: ThreadPoolExecutor, key: str, tmp_path: Path) -> None:
    """Everything under way is answered, by both workers, and the exit is 0; a signal that reaches the workers too is but one."""
    with pair(tmp_path, api, store_url) as running:
        asked = under_way(running, api, pool, key)
        before = workers(running)
        running.send(SIGTERM)
        for pid in before:  # as a service manager does that ends a whole group
            os.kill(pid, SIGTERM)
        eventually(lambda: len(told(running, "draining: ")) == 3)
        ready = page(f"{running.admin}/readyz")
        counts = counted(running.admin, "idemproxy_in_flight")
        api.let_go()
        answers = [each.result() for each in asked.values()]
        code = running.process.wait(20)

    assert [EXECUTED] * MANY == [(answer.status, answer.told) for answer in answers]
    assert (503, MANY) == (ready[0], counts)
    assert "[-] worker 1 shutdown: draining\n[-] worker 2 shutdown: draining\n" in ready[1]
    assert (0, [True, True]) == (code, [gone(pid) for pid in before])


@pytest.mark.parametrize(("drain", "signals"), [("300ms", 1), ("1h", 2)], ids=["deadline", "second signal"])
def test_the_exit_code_is_the_worst(
    api: Upstream, pool: ThreadPoolExecutor, key: str, tmp_path: Path, drain: str, signals: int
) -> None:
    """Where one worker could not finish, the exit is 3, at the deadline or with the second signal; the other one ends with 0."""
    with pair(tmp_path, api, f"sqlite:///{tmp_path}/records.db", drain) as running:
        [asked] = under_way(running, api, pool, key, count=1).values()
        for _ in range(signals):
            running.send(SIGTERM)
            eventually(lambda: told(running, "draining: 1 "))
        code = running.process.wait(20)
        answer = asked.result()

    assert (3, problem(502, "outcome-unknown", "unknown", "after_check")) == (code, answer.problem)
    assert [1, 1] == [len(told(running, words)) for words in ("ended with 1 ", ": drained")]


def test_those_that_die_early_are_started_later_and_later() -> None:
    """One that was steady is started again at once, others after a pause that doubles up to half a minute."""
    assert [0, 0.5, 1, 2, 4, 8, 16, 30, 30] == [pause_after(deaths) for deaths in range(9)]


def test_workers_do_not_outlive_their_supervisor(api: Upstream, tmp_path: Path) -> None:
    """After kill -9 of the process that started them they drain and end, so that its successor gets the port."""
    with pair(tmp_path, api, f"sqlite:///{tmp_path}/records.db") as running:
        orphans = workers(running)
        os.kill(running.process.pid, SIGKILL)
        eventually(lambda: all(map(gone, orphans)))

    assert 2 == len(orphans)


def test_what_keeps_workers_from_starting(api: Upstream, shared: Program, tmp_path: Path) -> None:
    """An address that others have, and a store that may forget, which is not tried for ever: the exit is 1, with the reason."""
    several = ("--upstream", api.url, "--workers", "2")
    taken = ["run", *several, "--store", f"sqlite:///{tmp_path}/records.db", "--spool", str(tmp_path / "spool")]
    ended = subprocess.run(
        [sys.executable, "-m", "idemproxy", *taken, "--listen", f"127.0.0.1:{shared.port}", "--admin-listen", "127.0.0.1:0"],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        forgetful = refused(*several, "--store", server.url, spool=tmp_path / "spool")

    assert (
        1,
        f"ERROR cannot listen on 127.0.0.1:{shared.port}: Address already in use; choose another address with --listen\n",
    ) == (
        ended.returncode,
        ended.stderr,
    )
    assert (1, True, False) == (
        forgetful[0],
        "worker 1: not started, since records may go" in forgetful[1],
        "listening" in forgetful[1],
    )
