"""Programs under test that are forked off a process which has imported them: a start takes a tenth of the time.

Each is a process of its own, with its own signals, files and end, and after its imports it is what `python -m` starts.
What it is forked off is the standard library's fork server, of which each process of pytest has one.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

_SERVER: Final = get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "idemproxy.lifecycle",
        "idemproxy.config.load",
        "idemproxy.store.compressed",
        "idemproxy.store.redis",
        "idemproxy.store.sqlite",
        "idemproxy.demo.command",
        __name__,
    ]
)  # not uvloop: some tests see in a process whether it has that


class Forked:
    """One process. What `subprocess.Popen` has under the same names means the same; `stderr` is to be closed by who reads it."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> None:
        """Run the module that `arguments` begin with; `stdout` is a descriptor, and without one what is written there is lost."""
        errors, to_errors = Pipe(duplex=False)
        given = None if stdout is None else Connection(os.dup(stdout), readable=False)
        passed = list(arguments), dict(environment), Path.cwd(), given, to_errors
        self._process = _SERVER.Process(target=_become, args=passed, daemon=True)  # a daemon is ended when pytest ends
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        to_errors.close()
        if given is not None:
            given.close()
        self.stderr = os.fdopen(os.dup(errors.fileno()), "r")
        errors.close()

    @property
    def returncode(self) -> int | None:
        """As of Popen, and always up to date."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """As of Popen."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """As of Popen."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """As of Popen."""
        if self._process.exitcode is not None:
            return
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            # Where a test has stopped it with ptrace, its end is told to us first, and to its parent after that.
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)

    def kill(self) -> None:
        """As of Popen."""
        self.send_signal(signal.SIGKILL)


def extra_paths(environment: Mapping[str, str]) -> list[str]:
    """Where an environment lets modules be looked for first."""
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def _become(
    arguments: list[str], environment: dict[str, str], directory: Path, stdout: Connection | None, stderr: Connection
) -> None:
    """In the new process: be the program, and end with its exit code."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno() if stdout is None else stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    for passed in (stdout, stderr):
        if passed is not None:
            passed.close()
    sys.path[:0] = extra_paths(environment)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
