"""What is read off a running proxy from outside: memory, file descriptors, sockets, threads; and from inside, by proxy.py."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from bench.machine import resident_mib

_ANSWERED: Final = 15.0
"""Seconds that the proxy may take to answer a signal."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: see the table in __init__.py."""

    seconds: float
    mib: float
    workers: float
    fds: int
    clients: int
    upstreams: int
    sockets: int
    threads: int
    tasks: int
    objects: int
    attempts: int
    done: int
    quiet: bool

    def line(self) -> str:
        """A row of the table."""
        figures = "".join(f"{getattr(self, name):{width}.{digits}f}" for name, width, digits in _COLUMNS)
        return figures + ("  quiet" if self.quiet else "")


_COLUMNS: Final = tuple(
    (each.name, max(8, len(each.name) + 2), 1 if each.type == "float" else 0) for each in fields(Sample) if each.name != "quiet"
)
HEADING: Final = "".join(f"{name:>{width}}" for name, width, _ in _COLUMNS)


@dataclass(frozen=True, slots=True)
class Watched:
    """A proxy that runs as bench.soak.proxy: its process, its ports, those of its upstreams, and the file that it tells to."""

    pid: int
    port: int
    admin: int
    upstreams: frozenset[int]
    told: Path

    async def sample(self, seconds: float, done: int, *, quiet: bool) -> Sample:
        """Look; in a pause with a collection first, so that only what is held is counted."""
        kinds = self.descriptors()
        tasks, objects = await self._inside(signal.SIGUSR2 if quiet else signal.SIGUSR1)
        return Sample(
            seconds,
            resident_mib(self.pid),
            sum(resident_mib(child) for child in self._children()),
            kinds.total(),
            kinds["clients"],
            kinds["upstreams"],
            kinds["sockets"],
            len(os.listdir(f"/proc/{self.pid}/task")),  # noqa: PTH208 - as long as a list, and counted
            tasks,
            objects,
            await asyncio.to_thread(self._attempts),
            done,
            quiet,
        )

    def descriptors(self) -> Counter[str]:
        """The file descriptors of the process, by kind: clients, upstreams, sockets (others), files."""
        connections = self._connections()
        kinds = Counter[str]()
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                kind, _, number = str(descriptor.readlink()).partition(":")
                kinds[connections.get(number.strip("[]"), "sockets") if kind == "socket" else "files"] += 1
        return kinds

    def _connections(self) -> dict[str, str]:
        """Which connections are of clients and to upstreams, by inode."""
        found = {}
        for line in Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, *_, inode = line.split()[:10]
            here, there = int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)
            if here == self.port and there:
                found[inode] = "clients"
            elif there in self.upstreams:
                found[inode] = "upstreams"
        return found

    def _children(self) -> list[int]:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    async def _inside(self, number: signal.Signals) -> tuple[int, int]:
        """Tasks and objects, as the process tells them."""
        before = self.told.stat().st_size if self.told.exists() else 0
        os.kill(self.pid, number)
        async with asyncio.timeout(_ANSWERED):
            while not self.told.exists() or self.told.stat().st_size == before:  # noqa: ASYNC110 - by another process
                await asyncio.sleep(0.01)
        tasks, objects = self.told.read_text().splitlines()[-1].split()
        return int(tasks), int(objects)

    def _attempts(self) -> int:
        return round(metric(self.admin, "idemproxy_in_flight"))


def metric(admin: int, series: str) -> float:
    """The sum of a metric's samples whose line begins so."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=_ANSWERED) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))
