"""The lines on standard error: what an operator should know, in plain text or as JSON, and never so much that it hurts.

A line goes through an `Outlet`, so that a reader who stops reading stops nobody else. The same sentence is written at most once a
second, with a count of those that were left out: an outage that every request meets is one piece of news.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

import orjson

SECONDS: Final = 1.0

_log = logging.getLogger("idemproxy")

_ESCAPED: Final = {code: repr(chr(code))[1:-1] for code in (*range(32), 127)}
"""Control characters, spelled out: a line is one line, whatever it quotes."""


class Lines(logging.Handler):
    """Writes records with `write`. `as_json`: one JSON object for each line, for programs that collect them.

    `of` tells whose lines they are, where several processes write them.
    """

    def __init__(self, write: Callable[[bytes], None], *, as_json: bool, of: str = "") -> None:
        super().__init__()
        self._of = f"{of}: " if of else ""
        self._write = write
        self._as_json = as_json
        self._latest: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless its sentence was just written."""
        since, left_out = self._latest.get(record.msg, (0.0, 0))
        if record.levelno >= logging.WARNING and record.exc_info is None and record.created - since < SECONDS:
            self._latest[record.msg] = since, left_out + 1
            return
        self._latest[record.msg] = record.created, 0
        text = self._of + record.getMessage().translate(_ESCAPED) + (f" (and {left_out} more like this)" if left_out else "")
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self._write(self._line(record, text))

    def _line(self, record: logging.LogRecord, text: str) -> bytes:
        if not self._as_json:
            return f"{record.levelname} {text}\n".encode("utf-8", "backslashreplace")
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        members = {"time": time, "level": record.levelname.lower(), "message": text.encode("utf-8", "backslashreplace").decode()}
        return orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE)


def take_over_standard_error() -> None:
    """Log what Python itself would write there, where a reader who stops reading would stop the process: faults and warnings."""
    sys.unraisablehook = lambda found: _tell(
        found.err_msg or "nobody was there to catch it", found.exc_value, found.exc_traceback
    )
    threading.excepthook = lambda found: _tell("a thread has ended", found.exc_value, found.exc_traceback)
    logging.captureWarnings(capture=True)


def _tell(what: str, exc: BaseException | None, traceback: TracebackType | None) -> None:
    _log.error("a fault of this proxy: %s", what, exc_info=exc and (type(exc), exc, traceback))
