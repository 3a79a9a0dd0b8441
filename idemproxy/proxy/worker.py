"""A process that reads large bodies, so that the one that serves need not: both its ends.

Reading JSON holds the interpreter's lock, in a thread too, and a body of 10 MiB can take seconds to read. The process is given
one task at a time through a pipe and answers through another. It imports `core` and nothing else, ignores the signals that ask
its parent to end, since a drain still needs it, and ends with its parent, whose end closes the pipe.

A task on the pipe: two lengths (`_TASK`), the task without its body, pickled, and the body as it is. A result: whether there is
one and a length (`_RESULT`), then the result's bytes, or in UTF-8 why there is none.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from struct import Struct
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from idemproxy.core.fingerprint import FingerprintRule, fingerprint
from idemproxy.core.message import Request
from idemproxy.core.stamp import StampError, StampRule, stamp

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


_TASK: Final = Struct("!QQ")
_RESULT: Final = Struct("!?Q")
_START: Final = "from idemproxy.proxy.worker import main; main()"
_PATIENCE: Final = 5.0
"""Seconds in which a process that has been told to end does so."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Take a request's fingerprint; the result is its text."""

    request: Request
    rule: FingerprintRule
    max_decoded: int

    def result(self) -> bytes:
        """See `core.fingerprint`."""
        return fingerprint(self.request, self.rule, max_decoded=self.max_decoded).encode("ascii")


@dataclass(frozen=True, slots=True)
class Stamping:
    """Write a key into a request's body; the result is the body with it."""

    request: Request
    rule: StampRule
    key: str

    def result(self) -> bytes:
        """See `core.stamp`. Raises StampError."""
        return stamp(self.request, self.rule, self.key).body


Task: TypeAlias = Digest | Stamping


class WorkerDiedError(Exception):
    """The process has ended without an answer; the message says how."""


class Worker:
    """The parent's end; to make one starts the process, and raises OSError where there can be none. All but `kill` block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - nothing of it comes from outside
            [sys.executable, "-P", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # whoever reads the parent's until its end waits for nobody else
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # what is imported there is what is imported here
            start_new_session=True,  # Ctrl-C, and the end of a terminal, are for the parent
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise OSError("there are no pipes")
        self._tasks, self._results = self._process.stdin, self._process.stdout

    def do(self, task: Task) -> bytes:
        """The task's result. Raises what the task raises, and WorkerDiedError."""
        try:
            self._send(task)
            found, length = _RESULT.unpack(_read(self._results, _RESULT.size))
            result = _read(self._results, length)
        except (OSError, EOFError) as exc:
            raise WorkerDiedError(f"it ended with {self._ended()}") from exc
        if not found:
            raise StampError(result.decode())
        return result

    def _send(self, task: Task) -> None:
        body = task.request.body
        head = pickle.dumps(replace(task, request=replace(task.request, body=b"")))
        self._tasks.write(_TASK.pack(len(head), len(body)) + head)
        self._tasks.write(body)
        self._tasks.flush()

    def kill(self) -> None:
        """End it at once, whatever it does; `end` is still to be called."""
        self._process.kill()

    def end(self) -> None:
        """Let it end, and see it end."""
        with suppress(OSError):  # it died with something unread
            self._tasks.close()
        self._ended()
        self._results.close()

    def _ended(self) -> str:
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"status {code}"


def main() -> None:
    """The process's end: do what comes, until nothing more can."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # what is here stays, and need not be looked through again
    gc.disable()  # to look for cycles among the millions of values of a document takes a third of the time that reading it takes
    tasks, results = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        while True:
            _do_one(tasks, results)
            gc.collect()  # the document is gone; what searched in it may be a cycle


def _do_one(tasks: IO[bytes], results: IO[bytes]) -> None:
    head, body = (_read(tasks, length) for length in _TASK.unpack(_read(tasks, _TASK.size)))
    task: Task = pickle.loads(head)  # noqa: S301 - from the parent
    try:
        found, result = True, replace(task, request=replace(task.request, body=body)).result()
    except StampError as exc:
        found, result = False, str(exc).encode()
    results.write(_RESULT.pack(found, len(result)))
    results.write(result)
    results.flush()


def _read(pipe: IO[bytes], length: int) -> bytes:
    """So many bytes. Raises EOFError when the pipe ends before."""
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data
