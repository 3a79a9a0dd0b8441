"""The lines on standard error: text or JSON, and one piece of news told once."""

from __future__ import annotations

import logging
import subprocess
import sys

import orjson

from idemproxy.observe.log import SECONDS, Lines


def _record(message: str, *values: object, level: int = logging.WARNING, at: float = 1000.0) -> logging.LogRecord:
    record = logging.LogRecord("idemproxy", level, __file__, 1, message, values, None)
    record.created = at
    return record


def _written(*records: logging.LogRecord, as_json: bool = False) -> list[bytes]:
    lines: list[bytes] = []
    handler = Lines(lines.append, as_json=as_json)
    for record in records:
        handler.handle(record)
    return lines


def test_a_line_is_its_level_and_its_text() -> None:
    """In plain text a line begins with its level."""
    assert [b"WARNING store 7 is down\n"] == _written(_record("store %d is down", 7))


def test_a_line_says_whose_it_is() -> None:
    """Where several processes write, each line tells which, as text and as JSON."""
    lines: list[bytes] = []
    for as_json in (False, True):
        Lines(lines.append, as_json=as_json, of="worker 2").handle(_record("store %d is down", 7))
    assert (b"WARNING worker 2: store 7 is down\n", "worker 2: store 7 is down") == (lines[0], orjson.loads(lines[1])["message"])


def test_nothing_that_is_quoted_makes_a_line_of_its_own() -> None:
    """Control characters in what a line quotes are spelled out."""
    assert [b"WARNING upstream a\\nERROR forged\\x1b[2J\n"] == _written(_record("upstream %s", "a\nERROR forged\x1b[2J"))


def test_a_line_can_be_json() -> None:
    """For programs, a line is one object with the time, the level and the message."""
    (line,) = _written(_record("store %s is down", "\udcff"), as_json=True)
    assert {"time": "1970-01-01T00:16:40.000Z", "level": "warning", "message": "store \\udcff is down"} == orjson.loads(line)


def test_the_same_news_is_told_once_a_second() -> None:
    """What every request meets is written once, and then again with the count of what was left out."""
    told = [_record("no store for %s", number, at=1000.0 + number * SECONDS / 10) for number in range(11)]
    assert [b"WARNING no store for 0\n", b"WARNING no store for 10 (and 9 more like this)\n"] == _written(*told)


def test_other_news_and_quiet_news_are_never_left_out() -> None:
    """A line of another sentence, or one that is no warning, is always written."""
    told = [_record("a"), _record("b"), _record("c", level=logging.INFO), _record("c", level=logging.INFO)]
    assert [b"WARNING a\n", b"WARNING b\n", b"INFO c\n", b"INFO c\n"] == _written(*told)


FAULTS = """
import logging, threading, warnings
from idemproxy.observe.log import Lines, take_over_standard_error
lines = []
logging.basicConfig(handlers=[Lines(lines.append, as_json=False)])
take_over_standard_error()
class Faulty:
    def __del__(self):
        raise ValueError("never caught")
Faulty()
def fail():
    raise ValueError("in a thread")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
warnings.warn("a warning")
print(b"".join(lines).decode())
"""


def test_what_python_itself_would_tell_is_told_in_the_log() -> None:
    """Faults that nobody can catch, those of threads, and warnings: nothing but the log writes to standard error."""
    found = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, timeout=20)

    begins = ("ERROR a fault", "ValueError", "WARNING ")
    told = [line for line in found.stdout.splitlines() if line.startswith(begins)]
    assert [
        "ERROR a fault of this proxy: nobody was there to catch it",
        "ValueError: never caught",
        "ERROR a fault of this proxy: a thread has ended",
        "ValueError: in a thread",
        "WARNING <string>:16: UserWarning: a warning\\n",
    ] == told
    assert "" == found.stderr
