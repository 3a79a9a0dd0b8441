"""Large bodies hold up nobody else, and the process that reads them lives exactly as long as it is needed."""

from __future__ import annotations

import fcntl
import gzip
import os
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.process.asking import CHARGE, Answer, Fields, ask, configuration, eventually
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks for processes in /proc")

SIZE: Final = 10_000_000
DEAR: Final = b"[" + b"1.1," * (SIZE // 4) + b"1]"
"""JSON that takes seconds to read."""
PLAIN: Final = b'["%b"]' % (b"x" * 3_000_000)
"""A large body that takes no time."""
GZIP: Final = (("Content-Encoding", "gzip"),)


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that notes what arrives."""
    with upstream() as running:
        yield running


@contextmanager
def front(api: Upstream) -> Iterator[Program]:
    """A proxy of the test's own."""
    with proxy("--upstream", api.url, "--store", "memory://") as running:
        yield running


def workers(of: Program) -> list[int]:
    """The processes that a proxy has started."""
    tasks = Path(f"/proc/{of.process.pid}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; one that has, and that nobody has asked about yet, has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def held(of: Program, key: str, body: bytes, fields: Fields = ()) -> Iterator[tuple[int, Future[Answer]]]:
    """A stopped worker that has been given a body; the answer is still to come. At the end the worker runs again."""
    ask(of.url, f"{key}-first", body=PLAIN)
    [worker] = workers(of)
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(ask, of.url, key, body=body, fields=fields)
            eventually(lambda: unread(worker) > 1000)
            yield worker, answer
        finally:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)


def unread(worker: int) -> int:
    """How many bytes wait for a process in its standard input."""
    with Path(f"/proc/{worker}/fd/0").open("rb") as pipe:
        [found] = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        return int(found)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        pytest.param(DEAR, (), id="10 MB"),
        pytest.param(gzip.compress(DEAR), GZIP, id="10 MB packed to 10 kB"),
    ],
)
def test_small_requests_pass_a_large_one(body: bytes, fields: Fields, api: Upstream, key: str) -> None:
    """Forty writes, half of them packed, that come while a large body is being read have been answered before it goes out."""
    packed = gzip.compress(CHARGE)
    with front(api) as running:
        with held(running, key, body, fields) as (worker, answer):
            os.kill(worker, signal.SIGCONT)
            answers = [ask(running.url, f"{key}-{n}") for n in range(20)]
            answers += [ask(running.url, f"{key}-packed-{n}", body=packed, fields=GZIP) for n in range(20)]
            arrived = [len(arrival.body) for arrival in api.arrived]

        assert [len(PLAIN), *[len(CHARGE)] * 20, *[len(packed)] * 20] == arrived
        assert ["executed"] * 41 == [each.told for each in (*answers, answer.result())]
        assert len(body) == len(api.arrived[-1].body)


def test_a_killed_worker_loses_no_request(api: Upstream, key: str) -> None:
    """A worker that is killed with a body in its hands: the request is carried out once, and its retry is a replay."""
    with front(api) as running:
        with held(running, key, PLAIN) as (worker, answer):
            os.kill(worker, signal.SIGKILL)
        told = [answer.result().told, ask(running.url, key, body=PLAIN).told]

        assert ["executed", "replayed"] == told
        assert [len(PLAIN), len(PLAIN)] == [len(arrival.body) for arrival in api.arrived]
        assert not is_alive(worker)


def test_a_worker_ends_with_its_proxy(api: Upstream, key: str) -> None:
    """After `kill -9` of the proxy nothing of it is left, whether or not the worker had something to do."""
    with front(api) as running:
        ask(running.url, f"{key}-large", body=PLAIN[: 10**5] + b'"]')
        [idle] = workers(running)
        ask(running.url, f"{key}-huge", body=PLAIN)
        [busy] = set(workers(running)) - {idle}
        os.kill(busy, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            cut_off = pool.submit(ask, running.url, key, body=PLAIN)
            eventually(lambda: unread(busy) > 1000)
            running.kill()
            os.kill(busy, signal.SIGCONT)

        assert cut_off.exception() is not None
        eventually(lambda: not is_alive(idle) and not is_alive(busy))


def test_a_drain_still_reads_large_bodies(api: Upstream, key: str) -> None:
    """SIGTERM for all of a service's processes, as service managers send it: what is here is carried out, and no worker stays."""
    with front(api) as running:
        with held(running, key, PLAIN) as (worker, answer):
            for pid in (worker, running.process.pid):
                os.kill(pid, signal.SIGTERM)
            eventually(lambda: any("draining" in line for line in running.told))
        code = running.process.wait(40)

        assert ("executed", 0) == (answer.result().told, code)
        assert not is_alive(worker)


def test_a_drain_that_is_over_does_not_wait_for_a_worker(api: Upstream, key: str, tmp_path: Path) -> None:
    """At the deadline of a drain a body that is still being read is given up: nothing was claimed or sent for it."""
    settings = {"upstreams": {"api": {"url": api.url}}, "store": {"url": "memory://"}, "drain": "100ms"}
    with proxy(*configuration(tmp_path, settings)) as running:
        with held(running, key, PLAIN) as (worker, answer):
            running.send(signal.SIGTERM)
            code = running.process.wait(20)
            eventually(lambda: not is_alive(worker))

        assert (0, 1) == (code, len(api.arrived))
        assert answer.exception() is not None
