"""What the machine says: which cores there are, and what a process has used of them. Linux only."""

from __future__ import annotations

import os
import resource
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

    @property
    def two_servers(self) -> frozenset[int]:
        """For a server that is two processes: another core that nobody has, where there is one, else the load's too."""
        free = sorted(os.sched_getaffinity(0) - self.server - self.load - self.support)
        return self.server | (frozenset(free[:1]) or self.load)


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


def family(pid: int) -> list[int]:
    """A process and those that it started."""
    children = [Path(f"/proc/{pid}/task/{task.name}/children") for task in Path(f"/proc/{pid}/task").iterdir()]
    return [pid, *(int(child) for each in children for child in each.read_text().split())]


def kernel_seconds(pid: int) -> float:
    """What of its processor time a process has spent in the kernel so far, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[12]) / os.sysconf("SC_CLK_TCK")


def allow_files(count: int) -> bool:
    """Let this process, and those that it starts, have so many files open; False where that may not be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        return False
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return True


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib(pid: int) -> float:
    """The most resident memory that a process had since `forget_peak`, or since it began."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def forget_peak(pid: int) -> None:
    """Let the peak be what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
