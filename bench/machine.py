"""What the machine says: which cores there are, and what a process has used of them. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where: the server under test, the load generator, and what the server leans on (upstream and Redis)."""

    server: frozenset[int]
    load: frozenset[int]
    support: frozenset[int]

    @classmethod
    def of_this_machine(cls) -> Cores:
        """A core for the server and one for the load; support has the third, or shares the load's. One core is for all."""
        last, *others = sorted(os.sched_getaffinity(0), reverse=True)
        load, support = (others or [last])[-1], (others or [last])[0]
        return cls(frozenset({last}), frozenset({load}), frozenset({support}))


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """Processes that are started within the context run on these cores, with all their threads, from the start."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads; unlike /proc/PID/stat, which has steps of 10 ms, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)  # how Linux names the clock of another process: see clock_getcpuclockid(3)


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
