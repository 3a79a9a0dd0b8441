"""The machine explored: every history within its bounds keeps every promise, and without any one guard some history does not."""

from __future__ import annotations

import pytest

from tests.model.explore import explore
from tests.model.rules import Guard
from tests.model.setting import OPEN_WINDOW, SHORT_WINDOW, TO_THE_END, UNGUARDED, Setting, guarded


def named(setting: Setting) -> str:
    """A setting as the id of a test: two of them may lack the same guard."""
    return setting.name if setting.without is None else f"{setting.without.name.lower()}-{setting.mode.value}"


@pytest.mark.parametrize("setting", guarded(), ids=named)
def test_all_guards_together_keep_every_promise(setting: Setting) -> None:
    """Two requests to the end of all histories, three to a depth: whatever stops, dies, or is lost or late, no promise breaks."""
    explored = explore(setting)
    print(explored)  # noqa: T201 - what was seen, for `pytest -rP`
    assert ("", setting.depth == TO_THE_END) == (explored.broken, explored.whole), str(explored)


@pytest.mark.parametrize("setting", UNGUARDED, ids=named)
def test_each_guard_is_needed(setting: Setting) -> None:
    """Without this guard the explorer finds two effects, a replaced answer, or a lie: it would see if the guard were missing."""
    explored = explore(setting)
    print(explored)  # noqa: T201 - the shortest history
    assert {promise.value for promise in setting.watched} == {explored.broken}


def test_no_guard_is_left_out() -> None:
    """Every guard that can be taken away is taken away once."""
    assert set(Guard) == {setting.without for setting in UNGUARDED}


def test_a_stop_between_look_and_first_byte_is_the_one_way_to_two_effects() -> None:
    """A process that is stopped there for longer than lease and `settle` sends late: the case that contract 13 leaves open."""
    explored = explore(OPEN_WINDOW)
    print(explored)  # noqa: T201 - the shortest history
    assert {promise.value for promise in OPEN_WINDOW.watched} == {explored.broken}


def test_a_stop_there_that_is_shorter_than_settle_does_no_harm() -> None:
    """When its bytes arrive before `settle` has passed, the probe sees them: so it takes a longer stop to break the promise."""
    explored = explore(SHORT_WINDOW)
    print(explored)  # noqa: T201 - what was seen
    assert ("", True) == (explored.broken, explored.whole)


def test_a_history_reads_as_lines() -> None:
    """What broke a promise is told step by step: when, who, what happened, and what the store and the upstream had then."""
    timeout = next(setting for setting in UNGUARDED if setting.without is Guard.TIMEOUT)
    expected = """
        tick who what happens                                            the store then  effects
        0 a it asks for its claim, at proxy 0                            -               0
        0 b it asks for its claim, at proxy 1                            -               0
        0 a its claim is granted                                         in_flight 100 a 0
        0 a its first byte leaves                                        in_flight 100 a 0
        0 a no answer came; its release is written: it tells executed: no -              0
        0 a its bytes arrive, and the upstream acts                      -               1
        0 b its claim is granted                                         in_flight 101 b 1
        0 b its first byte leaves                                        in_flight 101 b 1
        0 b its bytes arrive, and the upstream acts                      in_flight 101 b 2
    """
    assert [line.split() for line in expected.strip().splitlines()] == [line.split() for line in explore(timeout).history]
