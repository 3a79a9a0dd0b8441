"""The access log: what a line says and never says, how lines are batched, and that a bad output breaks nothing."""

from __future__ import annotations

import json
import os
import threading
import timeit
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import thread_time
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.core.problem import Slug
from idemproxy.observe.access_log import FLUSH_BYTES, FLUSH_SECONDS, AccessLog, Outlet, log_line, whole_lines
from idemproxy.observe.observation import Observation, Outcome, Result

NOW: Final = 1764425543.123999
READ: Final = Observation("search", "GET", "/v1/search", 200, Outcome.READ, 0.0123456789, 0, 512)
WRITE: Final = Observation(
    route="charges",
    method="POST",
    path="/v1/charges",
    status=504,
    outcome=Outcome.UNKNOWN,
    seconds=0.25,
    request_bytes=300,
    response_bytes=240,
    result=Result.UNKNOWN,
    attempt_seconds=0.2,
    waited=0.04,
    slug=Slug.OUTCOME_UNKNOWN,
    scope="shared",
    upstream="payments",
    key_hash="9f86d081884c7d65",
    fence=1764425543000001,
    request_id="0af7651916cd43dd8448eb211c80319c",
    unrecorded=True,
)


@dataclass
class Output:
    """What a log wrote and which timers it set, none of which runs by itself."""

    batches: list[bytes] = field(default_factory=list)
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def log(self) -> AccessLog:
        """A log that writes and schedules here, always at NOW."""
        return AccessLog(self.batches.append, lambda seconds, call: self.timers.append((seconds, call)), lambda: NOW)

    def ring(self) -> None:
        """Let every timer that is set run out."""
        timers, self.timers = self.timers, []
        for _, call in timers:
            call()


@pytest.fixture(name="pipe")
def fixture_pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test has closed it


def test_line_holds_every_fact_under_its_name() -> None:
    """A request with every fact makes one JSON object with exactly these members, times in RFC 3339 and in seconds."""
    expected = {
        "time": "2025-11-29T14:12:23.123Z",
        "route": "charges",
        "method": "POST",
        "path": "/v1/charges",
        "status": 504,
        "outcome": "unknown",
        "seconds": 0.25,
        "bytes": 240,
        "result": "unknown",
        "attempt_seconds": 0.2,
        "waited": 0.04,
        "slug": "outcome-unknown",
        "scope": "shared",
        "upstream": "payments",
        "key": "9f86d081884c7d65",
        "fence": 1764425543000001,
        "request_id": "0af7651916cd43dd8448eb211c80319c",
        "unrecorded": True,
    }

    assert expected == json.loads(log_line(WRITE, NOW))


def test_members_without_a_value_are_left_out() -> None:
    """A read says nothing of keys, attempts or problems, not even null."""
    line = (
        b'{"time":"2025-11-29T14:12:23.000Z","route":"search","method":"GET","path":"/v1/search","status":200,'
        b'"outcome":"read","seconds":0.012346,"bytes":512}\n'
    )

    assert line == log_line(READ, 1764425543.0)


@given(st.text(st.characters()), st.text(st.characters()))
def test_whatever_the_path_it_stays_one_line_of_json(method: str, path: str) -> None:
    """Line ends, quotes and bytes that are not UTF-8 in a target can neither break the log nor forge a line of it."""
    line = log_line(replace(READ, method=method, path=path), NOW)

    assert 1 == line.count(b"\n")
    assert {"route": "search", "status": 200}.items() <= json.loads(line).items()


def test_path_that_is_not_utf_8_is_shown_escaped() -> None:
    """A raw byte 0xFF, which arrives as a lone surrogate, is readable in the log."""
    path = b"/caf\xc3\xa9/\xff".decode("utf-8", "surrogateescape")

    assert "/café/\\udcff" == json.loads(log_line(replace(READ, path=path), NOW))["path"]


def test_lines_of_one_moment_are_one_write() -> None:
    """Lines wait for one timer and leave together, in their order; nothing is written when there is nothing."""
    output = Output()
    log = output.log()

    for status in (200, 201, 202):
        log.observe(replace(READ, status=status))
    set_timers, written_before = [seconds for seconds, _ in output.timers], list(output.batches)
    output.ring()
    log.close()

    assert [FLUSH_SECONDS] == set_timers
    assert [] == written_before
    assert [[200, 201, 202]] == [[json.loads(line)["status"] for line in batch.splitlines()] for batch in output.batches]


def test_each_batch_has_its_own_timer() -> None:
    """After a batch has left, the next line sets a timer again."""
    output = Output()
    log = output.log()

    log.observe(READ)
    output.ring()
    log.observe(READ)
    output.ring()

    assert [log_line(READ, NOW)] * 2 == output.batches


def test_full_batch_does_not_wait_for_its_timer() -> None:
    """At 64 KiB the lines are written at once, and one timer at most is set, however many batches it outlives."""
    output = Output()
    log = output.log()
    lines_of_a_batch = -(-FLUSH_BYTES // len(log_line(READ, NOW)))

    for _ in range(3 * lines_of_a_batch + 1):
        log.observe(READ)
    timers = len(output.timers)
    output.ring()

    assert [lines_of_a_batch] * 3 + [1] == [batch.count(b"\n") for batch in output.batches]
    assert 1 == timers


def test_closing_writes_what_is_left_and_later_lines_at_once() -> None:
    """No line waits for a timer of a loop that has ended."""
    output = Output()
    log = output.log()

    log.observe(READ)
    log.close()
    log.observe(WRITE)

    assert [log_line(READ, NOW), log_line(WRITE, NOW)] == output.batches


@pytest.mark.parametrize("failure", [BrokenPipeError(32, "Broken pipe"), BlockingIOError(11, "full"), ValueError("closed file")])
def test_output_that_fails_breaks_no_request(failure: Exception) -> None:
    """A batch that cannot be written is dropped, and the next one is tried again."""
    output = Output()
    failures = [failure]

    def write(batch: bytes) -> None:
        if failures:
            raise failures.pop()
        output.batches.append(batch)

    log = AccessLog(write, lambda seconds, call: output.timers.append((seconds, call)), lambda: NOW)
    log.observe(READ)
    output.ring()
    log.observe(WRITE)
    output.ring()

    assert [log_line(WRITE, NOW)] == output.batches


def test_outlet_writes_everything_in_order(pipe: tuple[int, int]) -> None:
    """What an outlet took is in the pipe when close returns."""
    outlet = Outlet(pipe[1])

    outlet(b"one\n")
    outlet(b"two\n")
    outlet.close(10)

    assert b"one\ntwo\n" == os.read(pipe[0], 100)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_outlet_on_a_full_pipe_blocks_no_one_and_goes_on_when_it_is_read(pipe: tuple[int, int], *, is_blocking: bool) -> None:
    """With nobody reading, a hundred batches are taken or dropped whole; what was taken arrives once somebody reads."""
    os.set_blocking(pipe[1], is_blocking)
    batch = b"x" * FLUSH_BYTES + b"\n"
    outlet = Outlet(pipe[1])

    for _ in range(100):
        outlet(batch)
    with ThreadPoolExecutor(1) as reader, open(pipe[0], "rb", closefd=False) as reading:
        arrived = reader.submit(reading.read)
        outlet.close(10)
        os.close(pipe[1])

    taken = arrived.result().count(b"\n")
    assert taken in (64, 65)  # what is queued, and the batch that the thread holds
    assert batch * taken == arrived.result()


def test_what_is_shared_is_written_in_whole_lines() -> None:
    """Beside other processes no more is written at once than a pipe takes as one, but for a longer line; nothing is lost."""
    short, long = b"x" * 1_499 + b"\n", b"y" * 9_000 + b"\n"
    batch = short * 5 + long + short + b"no end"

    assert [short * 2, short * 2, short, long, short + b"no end"] == list(whole_lines(batch, 4_096))
    assert [batch] == list(whole_lines(batch, len(batch)))


def test_outlet_of_several_writes_everything(pipe: tuple[int, int]) -> None:
    """An outlet beside others writes what it was given, in order."""
    outlet = Outlet(pipe[1], is_shared=True)
    lines = b"".join(b"%d %s\n" % (number, b"x" * 900) for number in range(20))

    outlet(lines)
    outlet.close(10)

    assert lines == os.read(pipe[0], 100_000)


def test_outlet_without_a_reader_goes_on(pipe: tuple[int, int]) -> None:
    """A closed pipe loses the batches and nothing else: the thread still ends when it is asked to."""
    outlet = Outlet(pipe[1])
    os.close(pipe[0])

    outlet(b"lost\n")
    outlet(b"lost too\n")
    outlet.close(10)

    assert "access-log" not in {thread.name for thread in threading.enumerate()}


def cost(work: Callable[[], object]) -> float:
    """Seconds of this thread's own processor time that one `work` takes, the least of several rounds."""
    return min(timeit.repeat(work, number=2000, repeat=7, timer=thread_time)) / 2000


def test_a_line_costs_little_more_than_its_json() -> None:
    """Making, buffering and writing a line costs no more than 15 times its bare serialisation (4 of 10 microseconds)."""
    members = json.loads(log_line(WRITE, NOW))
    with Path(os.devnull).open("wb", buffering=0) as nowhere:

        def write(batch: bytes) -> None:
            nowhere.write(batch)

        log = AccessLog(write, lambda _seconds, _call: None, lambda: NOW)

        assert cost(lambda: log.observe(WRITE)) < 15 * cost(lambda: orjson.dumps(members))
