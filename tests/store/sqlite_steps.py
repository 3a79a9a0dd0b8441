"""Steps that the tests of the SQLite store share: a busy file, a look into it, and other processes that use it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from tests.store.steps import WITHIN

ROOT = Path(__file__).parents[2]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's write lock, as a busy process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What is in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def log(path: Path) -> os.stat_result:
    """What the system knows of the write-ahead log."""
    return Path(f"{path}-wal").stat()


def commits(path: Path) -> int:
    """How many transactions the write-ahead log holds: each ends with a frame that says how large the file is then."""
    logged = Path(f"{path}-wal").read_bytes()
    page = int.from_bytes(logged[8:12], "big")
    salt = logged[16:24]
    frames = (logged[at : at + 24] for at in range(32, len(logged), 24 + page))
    return sum(frame[8:16] == salt and frame[4:8] != bytes(4) for frame in frames)


class Worker:
    """Another process with a store on the same file (tests.store.sqlite_process)."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def tell(self, command: str) -> None:
        """Send a command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        await self.process.stdin.drain()

    async def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN):
            return (await self.process.stdout.readline()).decode().strip()

    async def ask(self, command: str) -> str:
        """Send a command and wait for its answer."""
        await self.tell(command)
        return await self.answer()


@asynccontextmanager
async def worker(path: Path, step: int = 0) -> AsyncIterator[Worker]:
    """A started worker process, whose wall clock is ahead by `step` seconds; it is killed at the end."""
    arguments = (sys.executable, "-m", "tests.store.sqlite_process", str(path), str(step))
    process = await asyncio.create_subprocess_exec(*arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    started = Worker(process)
    try:
        assert "ready" == await started.answer()
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
