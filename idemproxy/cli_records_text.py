"""Records as text for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

SHORT: Final = 12
"""Characters of a key's hash that a table shows: enough to name the record."""

_COLUMNS: Final = ("KEY", "PHASE", "SCOPE", "UPSTREAM", "ROUTE", "STATUS", "SINCE")
_LABELS: Final = ("id", "phase", "route", "fence", "status", "source", "claimed_at", "settled_at", "expires_at", "forget_at")
_INDENT: Final = 13


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """One line for each record under a heading, in columns as wide as they need to be."""
    rows = [_COLUMNS, *map(_row, records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def described(record: Mapping[str, Any]) -> str:
    """Everything about one record: a line for each fact that there is, then the answer, then the acts."""
    facts = ((label, record.get(label)) for label in _LABELS)
    lines = chain(
        (_labelled(label, plain(str(value))) for label, value in facts if value is not None),
        _answer(record.get("answer")),
        _acts(record["audit"]),
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def plain(text: str) -> str:
    """The text with every control character as an escape: what an upstream answered must not steer the terminal."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode("ascii") for each in text
    )


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    scope, status = str(record["scope"]), record["status"]
    cells = (
        str(record["key"])[:SHORT],
        record["phase"],
        scope[:SHORT],
        record["upstream"],
        record["route"],
        "-" if status is None else status,
        record["settled_at"] or record["claimed_at"],
    )
    return tuple(plain(str(cell)).replace("\n", " ") for cell in cells)


def _answer(answer: Mapping[str, Any] | None) -> Iterator[str]:
    if answer is None:
        return
    if "unreadable" in answer:
        yield _labelled("answer", plain(answer["unreadable"]))
        return
    yield _labelled("answer", f"{answer['status']} {_phrase(answer['status'])}")
    body = plain(answer["body"]).splitlines() if "body" in answer else [f"(base64) {answer['body_base64']}"]
    for line in (*(plain(f"{name}: {value}") for name, value in answer["headers"]), *(["", *body] if body else [])):
        yield _labelled("", line)


def _acts(acts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for place, act in enumerate(acts):
        done = f"{act['at']} {act['verb']} by {act['who']}: {act['why']} (was {act['from_phase']}, fence {act['fence']})"
        yield _labelled("" if place else "acts", plain(done))


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_INDENT}}{text}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
