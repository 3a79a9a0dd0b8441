"""The access log: one line of JSON for each finished request, written in batches.

A line holds no body, no query and no credentials, and of the key only its hash, since an observation holds nothing else.
Logging never breaks or delays a request: what cannot be written is dropped.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from idemproxy.observe.observation import Observation

Schedule: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Call a function after so many seconds: an event loop's `call_later`."""

FLUSH_SECONDS: Final = 0.05
FLUSH_BYTES: Final = 65_536
_QUEUED_BATCHES: Final = 64
_DIGITS: Final = 6
"""Of a duration in seconds, behind the point: it was not measured to more."""


class AccessLog:
    """Turns observations into lines and hands them to `write`, whole batches at a time.

    A batch is due FLUSH_SECONDS after its first line, at FLUSH_BYTES, and when the log is closed. `now` is the wall clock, in
    seconds since the epoch.
    """

    def __init__(self, write: Callable[[bytes], None], schedule: Schedule, now: Callable[[], float]) -> None:
        self._write = write
        self._schedule = schedule
        self._now = now
        self._batch = bytearray()
        self._full_at = FLUSH_BYTES
        self._is_due = False

    def observe(self, observation: Observation) -> None:
        """Log one finished request, at the present time."""
        self._batch += log_line(observation, self._now())
        if len(self._batch) >= self._full_at:
            self._flush()
        elif not self._is_due:
            self._is_due = True
            self._schedule(FLUSH_SECONDS, self._flush_when_due)

    def close(self) -> None:
        """Write what is left. A line that comes later is written at once, for its timer may never fire."""
        self._full_at = 0
        self._flush()

    def _flush_when_due(self) -> None:
        self._is_due = False
        self._flush()

    def _flush(self) -> None:
        if self._batch:
            batch = bytes(self._batch)
            self._batch.clear()
            with suppress(OSError, ValueError):  # ValueError: a closed file object
                self._write(batch)


def log_line(observation: Observation, now: float) -> bytes:  # noqa: C901 - each line asks the same
    """One line of JSON, ended by a newline; members without a value are left out, and so is `unrecorded` unless true."""
    second = int(now)
    members: dict[str, object] = {
        "time": f"{_moment(second)}.{int((now - second) * 1_000):03}Z",  # RFC 3339
        "route": observation.route,
        "method": observation.method,
        "path": observation.path,
        "status": observation.status,
        "outcome": observation.outcome,
        "seconds": round(observation.seconds, _DIGITS),
        "bytes": observation.response_bytes,
    }
    # One by one, since a table of them would be made anew, and gone through, for each line.
    if observation.result is not None:
        members["result"] = observation.result
    if observation.attempt_seconds is not None:
        members["attempt_seconds"] = round(observation.attempt_seconds, _DIGITS)
    if observation.waited is not None:
        members["waited"] = round(observation.waited, _DIGITS)
    if observation.slug is not None:
        members["slug"] = observation.slug
    if observation.scope is not None:
        members["scope"] = observation.scope
    if observation.upstream is not None:
        members["upstream"] = observation.upstream
    if observation.key_hash is not None:
        members["key"] = observation.key_hash
    if observation.fence is not None:
        members["fence"] = observation.fence
    if observation.request_id is not None:
        members["request_id"] = observation.request_id
    if observation.unrecorded:
        members["unrecorded"] = True
    try:
        return orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a raw target may hold bytes that are not UTF-8, which came in as lone surrogates
        return orjson.dumps(_escaped(members), option=orjson.OPT_APPEND_NEWLINE)


@lru_cache(maxsize=1)
def _moment(second: int) -> str:
    """A second in UTC, which many lines in a row have in common."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _escaped(members: dict[str, Any]) -> dict[str, Any]:
    """The same, with every lone surrogate as a backslash escape."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value
        for name, value in members.items()
    }


class Outlet:
    """A `write` that never blocks: a thread carries the batches to a file descriptor.

    A reader that stops reading fills its pipe, and the next write to it would stop the event loop, and with it every request.
    Here it stops only the thread. Beyond _QUEUED_BATCHES, batches are dropped whole; so are those that the descriptor refuses.

    `is_shared`: other processes write to the descriptor too. Then no more is written at once than a pipe takes as a whole, and
    that ends where a line does, so that only a line that is longer than that may be torn.
    """

    def __init__(self, descriptor: int, *, is_shared: bool = False) -> None:
        self._descriptor = descriptor
        self._is_shared = is_shared
        self._batches: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # A daemon: a full pipe must not keep the process from ending.
        self._thread = threading.Thread(target=self._carry, name="access-log", daemon=True)
        self._thread.start()

    def __call__(self, batch: bytes) -> None:
        """Take a batch, or drop it when the descriptor lags too far behind."""
        if self._batches.qsize() < _QUEUED_BATCHES:
            self._batches.put(batch)

    def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until all that was taken is written; the descriptor stays open."""
        self._batches.put(None)
        self._thread.join(timeout)

    def _carry(self) -> None:
        while (batch := self._batches.get()) is not None:
            with suppress(OSError):
                for piece in whole_lines(batch) if self._is_shared else (batch,):
                    self._write_all(piece)

    def _write_all(self, batch: bytes) -> None:
        rest = memoryview(batch)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # whoever shares the pipe may have made it non-blocking
                select.select((), (self._descriptor,), ())


def whole_lines(batch: bytes, longest: int = select.PIPE_BUF) -> Iterator[bytes]:
    """The batch in pieces of whole lines, none longer than `longest` unless it is one line."""
    start = 0
    while len(batch) - start > longest:
        end = batch.rfind(b"\n", start, start + longest) + 1 or batch.find(b"\n", start) + 1 or len(batch)
        yield batch[start:end]
        start = end
    if start < len(batch):
        yield batch[start:]
