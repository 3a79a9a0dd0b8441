"""Copies of the package with a guard taken out, to see that the fault suite notices: each is a few edits of its source."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import idemproxy

PACKAGE: Final = Path(idemproxy.__file__).parent


@dataclass(frozen=True, slots=True)
class Edit:
    """In a file of the package, `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str


LEASE_END_FREES: Final = (
    Edit(
        "core/transition.py",
        "            return replace(record, phase=Phase.UNKNOWN, settled_at=record.lease_until)\n",
        "            return None\n",
    ),
    Edit(
        "store/lua/prelude.lua",
        "    record.phase, record.settled_at = 'unknown', record.lease_until\n    return record, true\n",
        "    return nil, true\n",
    ),
)
"""A lease that is over makes the key free, as with a lock that expires."""

TIMEOUT_RELEASES: Final = (
    Edit(
        "core/outcome.py",
        "        case Unsure():\n            return Settlement.MARK_UNKNOWN\n",
        "        case Unsure():\n            return Settlement.RELEASE\n",
    ),
)
"""An attempt without an answer is taken for one that did not happen."""

COMPLETION_WITHOUT_FENCE: Final = (
    Edit(
        "core/transition.py",
        "    if record is not None and not _holds(record, hold):\n"
        "        return record, Settled.STALE\n"
        "    if record is not None and record.phase in (Phase.COMPLETED, Phase.EXPIRED):\n"
        "        return record, Settled.WRITTEN  # the same completion again, its first reply lost\n",
        "",
    ),
)
"""A holder that comes late replaces the answer that others were given."""


def broken_copy(edits: Sequence[Edit], directory: Path) -> Mapping[str, str]:
    """A copy of the package in `directory`, with these edits, and the environment in which a program runs it."""
    copy = directory / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        text = (copy / edit.file).read_text("utf-8")
        if text.count(edit.old) != 1:
            raise AssertionError(f"{edit.file} has changed: these lines stand there {text.count(edit.old)} times:\n{edit.old}")
        (copy / edit.file).write_text(text.replace(edit.old, edit.new), "utf-8")
    return {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}
