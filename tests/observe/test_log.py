"""The lines on standard error: text or JSON, and one piece of news told once."""

from __future__ import annotations

import logging

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
