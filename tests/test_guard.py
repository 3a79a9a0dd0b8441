"""What a request costs in instructions does not grow unseen: see bench.guard."""

from __future__ import annotations

import pytest

from bench.guard import PYTHON, baselines, figures, grown

BEFORE = {"first": {"calls": 1000, "instructions": 10_000}}


@pytest.mark.skipif(PYTHON not in baselines(), reason=f"there is no baseline for Python {PYTHON}: python -m bench.guard --write")
def test_no_request_costs_more_than_a_tenth_over_the_baseline() -> None:
    """A first write, a replay and a read cost what they did; where more is meant: `python -m bench.guard --write`."""
    assert {} == grown(figures(), baselines()[PYTHON])


def test_a_request_is_counted_the_same_every_time() -> None:
    """Counts come from the program alone, and not from the time or the machine: a difference is a change of the program."""
    assert figures() == figures()


def test_what_grows_by_more_than_a_tenth_is_told() -> None:
    """The guard can fail, and says of what there is more: a tenth is let through."""
    at_the_limit = {"first": {"calls": 1100, "instructions": 11_000}}
    above = {"first": {"calls": 1101, "instructions": 9_000}}

    assert {} == grown(at_the_limit, BEFORE)
    assert {"first calls": "1000 -> 1101"} == grown(above, BEFORE)
