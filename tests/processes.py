"""The programs under test as real processes: the proxy, and the sample upstream."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

from tests.forked import Forked, extra_paths

START_SECONDS = 15.0
_LISTENING = re.compile(r"(listening|admin) on (https?://\S+)")


class Program:
    """A running program that tells on standard error where it listens. `url` and `admin` are base URLs without a slash."""

    def __init__(self, *arguments: str, awaits: int, log: Path | None = None, environment: dict[str, str] | None = None) -> None:
        self._log = log.open("ab") if log else None
        self.process = _started(arguments, self._log, environment or {})
        self._urls: dict[str, str] = {}
        self._awaits = awaits
        self._ready = threading.Event()
        self.told: deque[str] = deque(maxlen=1000)
        """The latest lines of standard error."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(START_SECONDS) or len(self._urls) < awaits:
            self.kill()
            raise RuntimeError(f"{arguments} did not start:\n" + "".join(self.told))

    @property
    def url(self) -> str:
        """Where it listens for requests."""
        return self._urls["listening"]

    @property
    def admin(self) -> str:
        """Where it listens for operators."""
        return self._urls["admin"]

    @property
    def port(self) -> int:
        """The port of `url`."""
        return int(self.url.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line)
            if found := _LISTENING.search(line):
                self._urls[found[1]] = found[2]
                if len(self._urls) == self._awaits:
                    self._ready.set()
        self._ready.set()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; SIGSTOP and SIGCONT among them."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """As `kill -9`: nothing of the program runs any more."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As a service manager does: the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join(5)
        if self.process.stderr is not None:
            self.process.stderr.close()
        if self._log is not None:
            self._log.close()
        return code


def _started(arguments: Sequence[str], log: IO[bytes] | None, environment: Mapping[str, str]) -> subprocess.Popen[str] | Forked:
    """A process that runs a module: a fork, but where the environment brings another proxy than the one that is imported here."""
    whole = {**os.environ, **environment}
    if not any(Path(path, "idemproxy").exists() for path in extra_paths(environment)):
        return Forked(arguments, whole, None if log is None else log.fileno())
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, stdout=log or subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=whole)


@contextmanager
def proxy(*arguments: str, log: Path | None = None, environment: dict[str, str] | None = None) -> Iterator[Program]:
    """`idemproxy run` on ports of its own, ended with the context; `arguments` as on the command line.

    Unless `--spool` is among them it has a spool of its own too, and so is nobody's heir.
    """
    with scratch() as spool:
        program = Program(
            "idemproxy", "run", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", *arguments,
            awaits=2, log=log, environment={"IDEMPROXY_SPOOL": str(spool), **(environment or {})},
        )  # fmt: skip
        try:
            yield program
        finally:
            program.stop()


class DemoApi(Program):
    """The sample upstream, and what its ledger says."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("idemproxy.demo", "--listen", "127.0.0.1:0", *arguments, awaits=1)

    def ledger(self) -> dict[str, Any]:
        """Every effect that has occurred, and their counts."""
        found: dict[str, Any] = json.loads(self._ask("GET", "/ledger"))
        return found

    def charges(self) -> int:
        """How many charges there were."""
        counted: int = self.ledger()["by_kind"].get("charge", 0)
        return counted

    def fault(self, fault: str, times: int = 1) -> None:
        """Let the next `times` writes meet a fault."""
        self._ask("POST", "/faults", json.dumps({"fault": fault, "times": times}))

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().read()


@contextmanager
def demo_api(*arguments: str) -> Iterator[DemoApi]:
    """The sample upstream on a port of its own, ended with the context."""
    api = DemoApi(*arguments)
    try:
        yield api
    finally:
        api.stop()


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that goes with the context."""
    with tempfile.TemporaryDirectory(prefix="idemproxy-") as directory:
        yield Path(directory)
