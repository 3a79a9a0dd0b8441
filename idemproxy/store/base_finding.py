"""What a look at a store's server, or at its file, has found out: whether records that are put there stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

RECORDS: Final = "records"
"""What a finding looks at that tells of records which are lost already."""


class Level(StrEnum):
    """How much a finding matters, from the least to the most."""

    FINE = "ok"
    ACCEPTED = "accepted"
    """An error that the configuration accepts, in `store.accept_risk`."""
    UNVERIFIED = "not verified"
    """It could not be seen: a provider may hide it."""
    WARNING = "warning"
    ERROR = "error"
    """With this, an operation can happen twice, or nothing works."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what, how it is, and, where that is not fine, what follows from it and what to do.

    `detail` is a figure that differs from one look to the next: another one makes no other finding.
    `risk` is the word with which `store.accept_risk` accepts an error; None where none does.
    `heals`: an error that is an outage, and may be mended under a running proxy: it keeps none from starting.
    """

    level: Level
    what: str
    text: str
    detail: str = field(default="", compare=False)
    risk: str | None = None
    heals: bool = False

    def __str__(self) -> str:
        """The text with its detail, for a person."""
        return f"{self.text} (now: {self.detail})" if self.detail else self.text


def judged(findings: Iterable[Finding], accepted: Collection[str]) -> list[Finding]:
    """The findings in the light of `store.accept_risk`."""
    return [
        replace(finding, level=Level.ACCEPTED) if finding.level is Level.ERROR and finding.risk in accepted else finding
        for finding in findings
    ]


def merged(found: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """One list for several servers, by their addresses: what was not found on all of them says where it was."""
    places: dict[Finding, list[str]] = {}
    for address, findings in found.items():
        for finding in findings:
            places.setdefault(finding, []).append(address)
    order = list(dict.fromkeys(finding.what for finding in places))
    return [
        finding if len(where) == len(found) else replace(finding, text=f"{', '.join(where)}: {finding.text}")
        for finding, where in sorted(places.items(), key=lambda each: order.index(each[0].what))
    ]
