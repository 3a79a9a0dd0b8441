"""What a look at a store's server, or at its file, has found out: whether records that are put there stay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "ok"
    UNVERIFIED = "not verified"
    """It could not be seen: a provider may hide it."""
    WARNING = "warning"
    ERROR = "error"
    """With this, an operation can happen twice, or nothing works."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what, how it is, and, where that is not fine, what follows from it and what to do.

    `risk` is the word with which `store.accept_risk` accepts an error; None where none does.
    """

    level: Level
    what: str
    text: str
    risk: str | None = None
