"""A disk that is full and a file that is read-only: the reason is told, nothing is sent, and it heals without a restart."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.process.asking import Answer, ask, eventually, page, problem
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, scratch

UNAVAILABLE: Final = problem(503, "store-unavailable", "no", "same_key")
NO_LIMIT: Final = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
NO_ROOM: Final = (4096, resource.RLIM_INFINITY)
MEGABYTE: Final = 1024 * 1024


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that notes what arrives."""
    with upstream() as server:
        yield server


@contextmanager
def unprivileged_proxy(api: Upstream, file: Path) -> Iterator[Program]:
    """A proxy for which the modes of files count; its spool is elsewhere."""
    with scratch() as spool:
        running = Program(
            "tests.process.without_privileges", "idemproxy", "run", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
            "--upstream", api.url, "--store", f"sqlite:///{file}", "--spool", str(spool), awaits=2,
        )  # fmt: skip
        try:
            yield running
        finally:
            running.stop()


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


def until_told(running: Program, reason: str) -> None:
    """Wait until the proxy is not ready, and says why."""
    eventually(lambda: (found := page(f"{running.admin}/readyz"))[0] == 503 and reason in found[1])


def what_is_new(running: Program, key: str) -> tuple[int, str | None, str, str, str]:
    """What a write with a new key meets."""
    return ask(running.url, f"{key}-new").problem


def test_a_limit_on_files_and_then_a_read_only_one(api: Upstream, key: str, tmp_path: Path) -> None:
    """First nothing more can be written, then the file may not be: both are told; each time it heals by itself."""
    directory = tmp_path / "store"
    directory.mkdir()
    file = directory / "records.db"
    with unprivileged_proxy(api, file) as running:
        first = ask(running.url, key)
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, NO_ROOM)
        full = what_is_new(running, key)
        until_told(running, "a limit on file sizes")
        for each in (*directory.iterdir(), directory):
            each.chmod(0o500)
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
        until_told(running, "it is read-only: let this user write the file and its directory")
        read_only = what_is_new(running, key)
        arrived = len(api.arrived)
        for each in (directory, *directory.iterdir()):
            each.chmod(0o700)
        eventually(lambda: page(f"{running.admin}/readyz") == (200, "ok\n"))
        after = [ask(running.url, key), ask(running.url, f"{key}-new")]

    assert [UNAVAILABLE] * 2 == [full, read_only]
    assert 1 == arrived
    assert [(201, "replayed", first.body), (201, "executed", b'{"id": "op_2"}')] == [told(answer) for answer in after]


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A disk of a megabyte, mounted; skips where nobody may mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(directory).encode(), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        libc.umount2(str(directory).encode(), 2)


def fill(file: Path) -> None:
    """Write to a file until its disk is full."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


def test_a_full_disk(api: Upstream, key: str, tmp_path: Path) -> None:
    """While there is no space nothing is granted, and what is stored is replayed; with space again all is as it was."""
    with small_disk(tmp_path), unprivileged_proxy(api, tmp_path / "records.db") as running:
        first = ask(running.url, key)
        fill(tmp_path / "filler")
        eventually(lambda: ask(running.url, f"{key}-full").problem == UNAVAILABLE)
        until_told(running, "the disk is full: free some space")
        refused = what_is_new(running, key)
        replayed = ask(running.url, key)
        arrived = len(api.arrived)
        (tmp_path / "filler").unlink()
        eventually(lambda: page(f"{running.admin}/readyz") == (200, "ok\n"))
        after = [ask(running.url, key), ask(running.url, f"{key}-new")]

    assert UNAVAILABLE == refused
    assert [(201, "replayed", first.body)] * 2 == [told(replayed), told(after[0])]
    assert (201, "executed") == (after[1].status, after[1].told)
    assert arrived + 1 == len(api.arrived)
