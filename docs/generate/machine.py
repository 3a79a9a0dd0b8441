"""The machine as diagrams, drawn from its table and from what its functions do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias

from docs.generate.markdown import mermaid
from docs.generate.profiles import statuses_by_settlement
from idemproxy.core.decision import TABLE, Match, Rule, Verb
from idemproxy.core.outcome import NeverSent, Settlement, Unsure, judge
from idemproxy.core.policy import OutcomeRule
from idemproxy.core.problem import KINDS
from idemproxy.core.record import Record
from idemproxy.core.transition import (
    Ask,
    Completion,
    Doubt,
    Granted,
    Hold,
    aged,
    claim,
    complete,
    forget,
    mark_unknown,
    release,
    resolve,
)

_BACK: Final = MappingProxyType({Verb.WAIT: "settled, or time is up", Verb.RECLAIM: "naming the fence that was found"})
"""The verbs after which the claim is asked again."""


def decision_diagram() -> str:
    """What follows from each thing that a claim can find: the whole of `core.decision.TABLE`."""
    lines = ["flowchart LR", '  claim{"claim"}']
    names: dict[Rule, str] = {}
    for rule in TABLE.values():
        if rule not in names:
            names[rule] = f"n{len(names)}"
            lines.append(f'  {names[rule]}["{_shown(rule)}"]')
    for (situation, match), rule in TABLE.items():
        if match is Match.SAME:
            lines.append(f'  claim -- "{situation}" --> {names[rule]}')
    others = {rule for (_, match), rule in TABLE.items() if match is Match.OTHER}
    lines += [f'  claim -- "any record, {Match.OTHER}" --> {names[rule]}' for rule in others]
    lines += [f'  {name} -. "{_BACK[rule.verb]}" .-> claim' for rule, name in names.items() if rule.verb in _BACK]
    return mermaid(lines)


def _shown(rule: Rule) -> str:
    return rule.verb.value if rule.slug is None else f"{rule.verb}: {KINDS[rule.slug].status} {rule.slug}"


def attempt_diagram() -> str:
    """What is written after each result of an attempt, under the default rule."""
    rule = OutcomeRule()
    results = {f"answered: {told}": settlement for settlement, told in statuses_by_settlement(rule).items()}
    results |= {"never_sent": judge(NeverSent(""), rule), "unknown": judge(Unsure(""), rule)}
    lines = ["flowchart LR", '  attempt["one attempt"]']
    lines += [f'  {settlement}["{settlement.replace("_", " ")}"] --> {_phase_after(settlement)}' for settlement in Settlement]
    lines += [f'  attempt -- "{told}" --> {settlement}' for told, settlement in results.items()]
    return mermaid(lines)


# Any times will do, as long as each comes before the next.
_CLAIMED, _NOW, _LEASE, _RETENTION, _MARK = 1_000, 1_001, 1_000, 5_000, 5_000
_ASK: Final = Ask("v1:", "first", "route", _LEASE)
_COMPLETION: Final = Completion(201, _RETENTION, _MARK, answer=b"answer")


def _granted() -> tuple[Record, Hold]:
    record, result = claim(None, _ASK, _CLAIMED)
    if record is None or not isinstance(result, Granted):
        raise AssertionError("an absent record was not granted")
    return record, result.hold


_IN_FLIGHT, _HOLD = _granted()

Change: TypeAlias = Callable[[Record | None], Record | None]

_SETTLEMENTS: Final[Mapping[Settlement, Change]] = MappingProxyType(
    {
        Settlement.COMPLETE: lambda record: complete(record, _HOLD, _COMPLETION, _NOW)[0],
        Settlement.RELEASE: lambda record: release(record, _HOLD)[0],
        Settlement.MARK_UNKNOWN: lambda record: mark_unknown(record, _HOLD, Doubt(), _NOW)[0],
    }
)

_EVENTS: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "claim": lambda record: claim(record, replace(_ASK, owner="second"), _NOW)[0],
        Verb.RECLAIM: lambda record: claim(record, replace(_ASK, owner="second", reclaim=_fence(record)), _NOW)[0],
        **{settlement.replace("_", " "): change for settlement, change in _SETTLEMENTS.items()},
        "resolve as completed": lambda record: resolve(record, _fence(record), _COMPLETION, _NOW)[0],
        "resolve as not executed": lambda record: resolve(record, _fence(record), None, _NOW)[0],
        "forget": lambda record: forget(record, _fence(record), _NOW)[0],
    }
)
"""What can be done to a record, each act with the function of `core.transition` that does it."""

_TIMES: Final = MappingProxyType(
    {
        "the lease ends": _CLAIMED + _LEASE,
        "retention ends": _NOW + _RETENTION,
        "the expired mark ends": _NOW + _RETENTION + _MARK,
    }
)
"""What time alone may do, in its order."""


def phase_diagram() -> str:
    """Every change of phase: each event is tried on a record in each phase, and what comes out is drawn."""
    completed = _SETTLEMENTS[Settlement.COMPLETE](_IN_FLIGHT)
    unknown = _SETTLEMENTS[Settlement.MARK_UNKNOWN](_IN_FLIGHT)
    changes: dict[tuple[str, str], list[str]] = {}
    for record in (None, _IN_FLIGHT, unknown, completed, aged(completed, _NOW + _RETENTION)):
        for event, after in _events(record):
            changes.setdefault((_phase(record), after), []).append(event)
    lines = ["stateDiagram-v2", "  [*] --> absent"]
    lines += [f"  {before} --> {after}: {', '.join(events)}" for (before, after), events in changes.items()]
    return mermaid(lines)


def _events(record: Record | None) -> Iterator[tuple[str, str]]:
    """The events that change the record's phase, each with the phase that it then has."""
    for event, change in _EVENTS.items():
        # Where a claim is granted anyway, it makes no difference that it names a fence.
        if _phase(change(record)) != _phase(record) and not (event == Verb.RECLAIM and record is None):
            yield event, _phase(change(record))
    passed = ((event, _phase(aged(record, time))) for event, time in _TIMES.items())
    yield from islice(((event, after) for event, after in passed if after != _phase(record)), 1)


def _phase_after(settlement: Settlement) -> str:
    return _phase(_SETTLEMENTS[settlement](_IN_FLIGHT))


def _phase(record: Record | None) -> str:
    return "absent" if record is None else record.phase.value


def _fence(record: Record | None) -> int:
    return 0 if record is None else record.fence
