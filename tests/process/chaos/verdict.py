"""What a run has shown: for every key, whether the promises were kept, and for each that was not, the story of that key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.process.chaos.history import ANSWERED, Attempt, History, Told
from tests.process.chaos.ledger import ARRIVED, EFFECT, Entry

SAYS_NOT_SENT: Final = frozenset({"not-sent", "store-unavailable", "in-progress", "key-reused", "draining"})
"""Slugs of answers that say that this very request did not reach the upstream."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken for a key."""

    key: str
    promise: str

    def __str__(self) -> str:
        """In one line."""
        return f"{self.key}: {self.promise}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the keys: counted by their last answer's outcome, and every violation."""

    outcomes: Counter[str]
    answers: Counter[str]
    """What the attempts were told, by outcome and slug."""
    upstream: Counter[str]
    """What the upstream wrote down: arrivals by what they suffered, and effects."""
    violations: list[Violation] = field(default_factory=list)


def judge(history: History, ledger: Mapping[str, Sequence[Entry]]) -> Verdict:
    """Hold every key to the promises."""
    outcomes = Counter(told.outcome if told else "no answer" for told in history.final.values())
    violations = [
        *twice(ledger),
        *(Violation(key, promise) for key in history.final for promise in _broken(key, history, ledger.get(key, ()))),
    ]
    upstream = Counter(entry.what.partition("=")[0] for entries in ledger.values() for entry in entries)
    answers = Counter(_told(attempt) for attempts in history.attempts.values() for attempt in attempts)
    return Verdict(outcomes, answers, upstream, violations)


def _told(attempt: Attempt) -> str:
    if attempt.answer is None:
        return "nothing"
    slug = f" ({attempt.answer.slug})" if attempt.answer.slug else ""
    return f"{attempt.answer.outcome}{slug}{' unrecorded' if attempt.answer.unrecorded else ''}"


def twice(ledger: Mapping[str, Sequence[Entry]]) -> list[Violation]:
    """Keys with more than one effect, which can be seen before a run is over."""
    return [Violation(key, f"{count} effects") for key, entries in ledger.items() if (count := _effects(entries)) > 1]


def forgotten(history: History) -> list[str]:
    """Keys of which some attempt was given an answer that is not the last one: the store does not know it any more."""
    return [
        key
        for key, attempts in history.attempts.items()
        if any(
            promise
            for attempt in attempts
            if attempt.answer is not None and attempt.answer.outcome in ANSWERED
            for promise in _differs(attempt, attempt.answer, history.final[key])
        )
    ]


def _effects(entries: Sequence[Entry]) -> int:
    return sum(entry.what == EFFECT for entry in entries)


def _broken(key: str, history: History, entries: Sequence[Entry]) -> Iterator[str]:
    effects, final, attempts = _effects(entries), history.final[key], history.attempts[key]
    if final is None or final.outcome not in {*ANSWERED, "unknown"}:
        yield f"stuck: the last answer is {final}"
    elif final.outcome == "unknown" and key.startswith("probe"):
        yield "still unknown, although a probe could tell"
    elif final.outcome in ANSWERED and effects != 1:
        yield f"completed, with {effects} effects"
    for attempt in attempts:
        if attempt.answer is not None and attempt.answer.outcome in ANSWERED:
            yield from _differs(attempt, attempt.answer, final)
    arrivals = Counter(entry.attempt for entry in entries if entry.what.startswith(ARRIVED))
    for name, count in arrivals.items():
        if count > 1:
            yield f"attempt {name} reached the upstream {count} times"
    for attempt in attempts:
        if attempt.answer is not None and attempt.answer.slug in SAYS_NOT_SENT and attempt.name in arrivals:
            yield f"attempt {attempt.name} was told {attempt.answer.slug}, and reached the upstream"


def _differs(attempt: Attempt, answer: Told, final: Told | None) -> Iterator[str]:
    """Whether an answer that was given is not what is stored.

    One that was marked unrecorded came, where a probe has found the operation meanwhile, from a holder that was too late.
    """
    if final is None or final.outcome not in ANSWERED:
        yield f"attempt {attempt.name} was given an answer, which is not stored: {final}"
    elif answer.content != final.content and not (answer.unrecorded and final.outcome == "recovered"):
        yield f"attempt {attempt.name} was given another answer than the one that is stored"


def story(key: str, history: History, entries: Sequence[Entry]) -> str:
    """The timeline of a key: what its clients did and heard, what the upstream wrote down, and what happened meanwhile."""
    attempts = history.attempts[key]
    begun, ended = min(attempt.begun for attempt in attempts), max(attempt.ended for attempt in attempts)
    lines = [(each.begun, f"client   asks as {each.name} at {each.proxy}, fault {each.fault or 'none'}") for each in attempts]
    lines += [(each.ended, f"client   {each.name}: {each.answer or each.why}") for each in attempts]
    lines += [(entry.at, f"upstream {entry.attempt}: {entry.what}") for entry in entries]
    lines += [(each.at, f"         {each.what}") for each in history.happenings if begun - 5 <= each.at <= ended]
    return "\n".join([f"{key}:", *(f"  {at - begun:8.3f}  {text}" for at, text in sorted(lines))])
