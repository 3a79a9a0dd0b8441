"""An agent that is killed at any point of any step, its proxy, or both: every effect comes to pass once, and the trip ends well.

Also where two agents go on with it at once.

These are some of the cases, each step, point and way among them; `make kill-matrix` runs all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemproxy.demo.trip import EFFECTS, STEPS
from tests.agents.killing import WAYS, Case, Outcome, Stage, Way, killed, new_name, spread, stage, unharmed

AGENT = spread("agent", range(1, len(STEPS) + 1))
PROXY = [
    Case("proxy", 12, "during", "replay"),
    Case("proxy", 12, "after", "state-machine"),
    Case("proxy", 13, "before", "state-machine"),
]
BOTH = [Case("both", 12, "during", "state-machine"), Case("both", 12, "after", "replay")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The upstream and the proxy of all trips."""
    with stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(shared: Stage) -> Outcome:
    """What comes of a trip that nothing happens to: each effect once."""
    outcome = unharmed(shared)
    assert list(EFFECTS) == [effect["kind"] for effect in outcome.effects]
    return outcome


@pytest.mark.parametrize("case", [*AGENT, *PROXY, *BOTH], ids=str)
def test_a_killed_trip_ends_like_any_other(shared: Stage, expected: Outcome, case: Case) -> None:
    """The ledger has each effect once, in the usual order, and the agent has the outputs of a trip that nothing happened to."""
    assert expected == killed(shared, case)


@pytest.mark.parametrize("way", WAYS)
def test_two_agents_at_once(shared: Stage, expected: Outcome, way: Way) -> None:
    """Both go on where the first one died, in the middle of a step: each effect comes to pass once, and both have all outputs."""
    name = new_name()
    first = shared.agent(name, way, "12:during")
    first.until_halted()
    shared.until_held(name)
    first.kill()
    pair = [shared.agent(name, way, "12:before") for _ in range(2)]
    for agent in pair:
        agent.until_halted()
    for agent in pair:
        agent.go_on()
    shared.let_go(name)
    outcomes = [shared.outcome(name, agent.outputs()) for agent in pair]
    told = {
        number: sorted(agent.how(number) for agent in pair) for number in range(12, len(STEPS) + 1) if STEPS[number - 1].effect
    }

    assert [expected, expected] == outcomes
    assert ["replayed", "replayed"] == told.pop(12)
    assert [["executed", "replayed"]] * 6 == list(told.values())
