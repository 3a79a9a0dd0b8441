"""What surrounds the process: its standard streams, read or not or closed, the terminal's hang-up, and its first words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import IO

import pytest

from tests.process.asking import Caller, ask, eventually, page, problem, request_bytes
from tests.process.upstream import Upstream, upstream
from tests.processes import proxy
from tests.servers import free_port

UNAVAILABLE = problem(503, "store-unavailable", "no", "same_key")
RUN = (sys.executable, "-m", "idemproxy", "run")


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that answers at once."""
    with upstream() as server:
        yield server


def _addresses(stderr: IO[bytes]) -> dict[str, str]:
    """Where a proxy says that it listens; nothing is read beyond that."""
    found: dict[str, str] = {}
    while len(found) < 2:
        line = stderr.readline().decode()
        assert line, found
        if told := re.search(r"(listening|admin) on (http://\S+)", line):
            found[told[1]] = told[2]
    return found


def _fill(pipe: IO[bytes]) -> None:
    """Leave no room in the pipe of which this is the end for reading."""
    other_end = os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (1 << 16, 1):
        with suppress(BlockingIOError):
            while os.write(other_end, bytes(size)):
                pass
    os.close(other_end)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive the context."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_standard_error_that_nobody_reads_stops_nothing(api: Upstream, key: str, tmp_path: Path) -> None:
    """With its pipe full, 2,000 writes are refused for a store that is down, reads are served, and the run ends in order."""
    away = f"redis://127.0.0.1:{free_port()}/0"
    addresses = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--spool", str(tmp_path / "spool"))
    command = [*RUN, "--upstream", api.url, "--store", away, *addresses]
    with _ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)) as process:
        assert process.stderr is not None
        url = _addresses(process.stderr)["listening"]
        _fill(process.stderr)
        with Caller(url) as caller:
            refused = [caller.exchange(request_bytes(f"{key}-{number}")) for number in range(2000)]
            started = time.monotonic()
            reads = [caller.exchange(request_bytes(method="GET", body=b""), "GET") for _ in range(10)]
            seconds = time.monotonic() - started
        process.send_signal(SIGTERM)
        code = process.wait(20)

    assert {UNAVAILABLE} == {answer.problem for answer in refused}
    assert [201] * 10 == [answer.status for answer in reads]
    assert seconds < 5
    assert (0, 10) == (code, len(api.arrived))


def test_a_process_without_standard_streams_serves_and_drains(api: Upstream, key: str, tmp_path: Path) -> None:
    """Started with all three closed, as some service managers do, it takes no socket for one of them."""
    listen, admin = free_port(), free_port()
    addresses = ("--listen", f"127.0.0.1:{listen}", "--admin-listen", f"127.0.0.1:{admin}", "--spool", str(tmp_path / "spool"))
    command = [*RUN, "--upstream", api.url, "--store", f"sqlite:///{tmp_path}/records.db", *addresses]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]

    def is_ready() -> bool:
        assert process.poll() is None, process.returncode
        with suppress(ConnectionError):
            return page(f"http://127.0.0.1:{admin}/readyz") == (200, "ok\n")
        return False

    with _ended(subprocess.Popen(closed)) as process:
        eventually(is_ready)
        with Caller(f"http://127.0.0.1:{listen}") as caller:
            answers = [caller.exchange(request_bytes(key)) for _ in range(20)]
        process.send_signal(SIGTERM)
        code = process.wait(20)

    assert [(201, "executed"), *[(201, "replayed")] * 19] == [(answer.status, answer.told) for answer in answers]
    assert (0, 1) == (code, len(api.arrived))


def test_a_hang_up_does_not_end_it(api: Upstream, key: str, tmp_path: Path) -> None:
    """SIGHUP, by which others are told to reload, is answered by a line that says what it needs, and nothing else happens."""
    with proxy("--upstream", api.url, "--store", f"sqlite:///{tmp_path}/records.db") as running:
        running.send(SIGHUP)
        eventually(lambda: any("SIGHUP" in line for line in running.told))
        answer = ask(running.url, key)
        code = running.stop()

    (told,) = [line for line in running.told if "SIGHUP" in line]
    assert "WARNING SIGHUP: a changed configuration needs a restart\n" == told
    assert ((201, "executed"), 0) == ((answer.status, answer.told), code)


def test_a_store_in_memory_says_what_it_is(api: Upstream, key: str) -> None:
    """Who starts with it by mistake is warned: it is for tests, and keeps nothing."""
    with proxy("--upstream", api.url, "--store", "memory://") as running:
        answer = ask(running.url, key)

    warnings = [line for line in running.told if line.startswith("WARNING")]
    said = "for tests only, every record goes with the process; keep them in a file or on a server"
    assert [f"WARNING store: memory: {said}\n"] == warnings
    assert (201, "executed") == (answer.status, answer.told)


def test_lines_for_programs(api: Upstream, key: str, tmp_path: Path) -> None:
    """With --log-format json each line of standard error is one object, from the first to the last."""
    arguments = ("--upstream", api.url, "--store", f"sqlite:///{tmp_path}/records.db", "--log-format", "json")
    with proxy(*arguments) as running:
        running.send(SIGHUP)
        eventually(lambda: any("SIGHUP" in line for line in running.told))
        url = next(json.loads(line)["message"] for line in running.told if "listening on" in line).rpartition(" ")[2]
        answer = ask(url, key)
        code = running.stop()

    lines = [json.loads(line) for line in running.told]
    assert {("time", "level", "message")} == {tuple(line) for line in lines}
    assert ["SIGHUP: a changed configuration needs a restart"] == [
        line["message"] for line in lines if line["level"] == "warning"
    ]
    assert "drained" == lines[-1]["message"]
    assert (201, 0) == (answer.status, code)
