"""What the clients of the fault suite did and were told, and what was done to the machines meanwhile."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

ANSWERED: Final = frozenset({"executed", "replayed", "recovered"})
"""What an answer is told as that is the operation's own."""


@dataclass(frozen=True, slots=True)
class Told:
    """A whole answer: what is the upstream's own of it, the words of Idempotency-Status, and a problem's slug, "" for none."""

    status: int
    fields: tuple[str, ...]
    """Its field lines in order, without the proxy's and the framing."""
    body: bytes
    outcome: str
    slug: str
    unrecorded: bool

    @property
    def content(self) -> tuple[int, tuple[str, ...], bytes]:
        """What must be the same for everyone who is given this answer."""
        return self.status, self.fields, self.body

    def __str__(self) -> str:
        """In one line."""
        marks = " unrecorded" if self.unrecorded else ""
        said = self.slug or self.body[:60].decode("utf-8", "replace")
        return f"{self.status} {self.outcome}{marks} {said}"


@dataclass(slots=True)
class Attempt:
    """One request of a client; `answer` None and a reason where none came. Times in seconds on the monotonic clock."""

    name: str
    key: str
    proxy: str
    fault: str
    begun: float
    ended: float = 0.0
    answer: Told | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that was done to a process or a link."""

    at: float
    what: str


class History:
    """Everything in order; `of` a key, its attempts."""

    def __init__(self) -> None:
        self.attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self.happenings: list[Happening] = []
        self.final: dict[str, Told | None] = {}
        """What the last question about each key was answered; None where no answer was to be had."""
