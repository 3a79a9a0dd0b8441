"""The machine: the table of the contract, section 7, cell by cell, and that nothing else has a say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from idemproxy.core import decision
from idemproxy.core.decision import TABLE, Match, Situation, decide, situation
from idemproxy.core.policy import OnExpired, OnUnknown, Policy
from idemproxy.core.problem import problem
from idemproxy.core.record import Phase, Record
from idemproxy.core.transition import Found, Granted, Hold

ASKED: Final = "v1:asked"
# What a claim can meet beside the phase: every setting, and the caller's patience.
AXES: Final = {
    "kept": ("yes", "no"),
    "on_expired": ("refuse", "renew"),
    "on_unknown": ("hold", "retry", "probe"),
    "patient": ("yes", "no"),
    "waited": ("yes", "no"),
    "probed": ("yes", "no"),  # the record's last claim was a probe's, and the outcome is still unknown
}

# The contract's table: phase, what else matters, and what follows for the same fingerprint.
SAME: Final = [
    ("in_flight", {"patient": "yes"}, ("wait", None, None)),
    ("in_flight", {"patient": "no"}, ("refuse", 409, "in-progress")),
    ("completed", {"kept": "yes"}, ("replay", None, None)),
    ("completed", {"kept": "no"}, ("refuse", 409, "response-unavailable")),
    ("expired", {"on_expired": "refuse"}, ("refuse", 410, "key-expired")),
    ("expired", {"on_expired": "renew"}, ("reclaim", None, None)),
    ("unknown", {"on_unknown": "hold"}, ("refuse", 409, "outcome-unknown")),
    ("unknown", {"on_unknown": "retry"}, ("reclaim", None, None)),
    ("unknown", {"on_unknown": "probe", "waited": "no"}, ("probe", None, None)),
    ("unknown", {"on_unknown": "probe", "waited": "yes", "probed": "no"}, ("probe", None, None)),
    ("unknown", {"on_unknown": "probe", "waited": "yes", "probed": "yes"}, ("refuse", 409, "outcome-unknown")),
]
OTHER: Final = ("refuse", 422, "key-reused")


def worlds(fixed: dict[str, str]) -> Iterator[dict[str, str]]:
    """Every combination of the axes in which these hold."""
    for values in product(*AXES.values()):
        world = dict(zip(AXES, values, strict=True))
        if fixed.items() <= world.items():
            yield world


def met(phase: str, fingerprint: str, world: dict[str, str]) -> tuple[Record, Policy, dict[str, bool]]:
    """The record that was found, the route's policy, and what matters of the caller."""
    answer = b"kept" if world["kept"] == "yes" else None
    # A probe claims what has been unknown for some time, and gives it back with that time.
    claimed_at = 5 if world["probed"] == "yes" else 1
    record = Record(Phase(phase), fingerprint, 7, "owner", "route", claimed_at, 6, settled_at=3, answer=answer)
    policy = Policy(on_unknown=OnUnknown(world["on_unknown"]), on_expired=OnExpired(world["on_expired"]))
    return record, policy, {name: world[name] == "yes" for name in ("patient", "waited")}


def decided(phase: str, fingerprint: str, world: dict[str, str]) -> tuple[str, int | None, str | None]:
    """What follows from finding this, as the contract writes it: the verb, and a refusal's status and slug."""
    record, policy, caller = met(phase, fingerprint, world)
    rule = decide(Found(record), ASKED, policy, **caller)
    if rule.slug is None:
        return rule.verb.value, None, None
    return rule.verb.value, problem(rule.slug, "why").status, rule.slug.value


@pytest.mark.parametrize(
    ("phase", "fixed", "expected"),
    SAME,
    ids=[", ".join((phase, *(f"{name} {value}" for name, value in fixed.items()))) for phase, fixed, _ in SAME],
)
def test_same_fingerprint(phase: str, fixed: dict[str, str], expected: tuple[str, int | None, str | None]) -> None:
    """A retry gets what the contract says for this phase, and what the row does not name changes nothing."""
    assert {expected} == {decided(phase, ASKED, world) for world in worlds(fixed)}


@pytest.mark.parametrize("phase", ["in_flight", "completed", "expired", "unknown"])
@pytest.mark.parametrize("fingerprint", ["v1:other", "", "v1:ASKED", "v2:asked", "v1:asked "])
def test_other_fingerprint(phase: str, fingerprint: str) -> None:
    """The same key for anything else is refused as reused, in every phase and under every policy, and nobody waits."""
    assert {OTHER} == {decided(phase, fingerprint, world) for world in worlds({})}


def test_granted() -> None:
    """A granted claim is forwarded, under every policy and whatever the patience."""
    granted = Granted(Hold(7, "owner", ASKED, "route", 1))
    rules = {
        decide(granted, fingerprint, policy, **caller)
        for fingerprint in (ASKED, "v1:other")
        for world in worlds({})
        for _, policy, caller in [met("in_flight", ASKED, world)]
    }
    assert [("forward", None)] == [(rule.verb.value, rule.slug) for rule in rules]


def test_only_a_grant_forwards() -> None:
    """Nothing that can be found, in any phase, world and fingerprint, is ever forwarded."""
    found = {
        decided(phase.value, fingerprint, world)[0]
        for phase in Phase
        for fingerprint in (ASKED, "v1:other")
        for world in worlds({})
    }
    assert {"wait", "replay", "reclaim", "probe", "refuse"} == found


def test_rows_cover_every_world() -> None:
    """The rows above leave no phase and no world out, and none is in two rows."""
    rows = [(phase, tuple(world.items())) for phase, fixed, _ in SAME for world in worlds(fixed)]
    everything = {(phase.value, tuple(world.items())) for phase in Phase for world in worlds({})}
    assert (everything, len(everything)) == (set(rows), len(rows))


# The table in the code


def test_every_situation_occurs() -> None:
    """Each situation is one that a claim can meet: the table has no dead rows."""
    occurring = {Situation.GRANTED}
    for phase, world in product(Phase, worlds({})):
        record, policy, caller = met(phase.value, ASKED, world)
        occurring.add(situation(record, policy, **caller))
    assert set(Situation) == occurring


def test_table_is_complete() -> None:
    """The table has a rule for each situation and match, but for a grant with another fingerprint, which cannot be."""
    assert {*product(Situation, Match)} - {(Situation.GRANTED, Match.OTHER)} == set(TABLE)


def module_without(row: int) -> ast.Module:
    """The source of the machine with one row of its table taken out; counted from 0."""
    module = ast.parse(Path(decision.__file__).read_text("utf-8"))
    [table] = [
        statement.value.args[0]
        for statement in module.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == "TABLE"
        and isinstance(statement.value, ast.Call)
    ]
    assert isinstance(table, ast.Dict)
    del table.keys[row], table.values[row]
    return module


@pytest.mark.parametrize("row", range(len(TABLE)))
def test_a_missing_row_is_noticed(row: int) -> None:
    """A machine that lacks any one of its rows cannot be imported, and says which."""
    code = compile(module_without(row), "decision.py", "exec")
    with pytest.raises(AssertionError, match="the table of the machine has no rule for") as raised:
        exec(code, {"__name__": decision.__name__})  # noqa: S102 - the module itself, less a row
    lost, _ = [*TABLE][row]
    assert lost.name in str(raised.value)
