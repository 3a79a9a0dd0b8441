"""The fault suite: many operations, everything that can be killed is killed, and every promise is held to every key.

Its long form is `make chaos`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.process.chaos.broken import COMPLETION_WITHOUT_FENCE, LEASE_END_FREES, TIMEOUT_RELEASES, Edit, broken_copy
from tests.process.chaos.run import Plan, run
from tests.process.chaos.schedule import STOP, Fault

SEED: Final = 17
TROUBLED: Final = {"slow-after": 6, "slow-before": 2, "reset-after": 1}


@pytest.mark.timeout(150)
async def test_no_fault_breaks_a_promise(tmp_path: Path) -> None:
    """One effect for each key, the same answer for all who get one, and each key comes to something, whatever is killed."""
    report = await run(Plan(SEED, seconds=16, rate=2.5, pace=40), tmp_path)

    print(report)  # noqa: T201 - which pytest shows of a failed test
    assert [] == [str(violation) for violation in report.verdict.violations]
    assert [] == report.complaints
    assert report.verdict.outcomes.total() > 200
    assert {"replayed", "unknown", "recovered"} <= report.verdict.outcomes.keys()


@pytest.mark.parametrize(
    ("edits", "store", "promise"),
    [
        pytest.param(LEASE_END_FREES, "redis", "2 effects", id="a lease end that frees"),
        pytest.param(TIMEOUT_RELEASES, "sqlite", "2 effects", id="a time-out that releases"),
        pytest.param(COMPLETION_WITHOUT_FENCE, "sqlite", "was given another answer", id="a completion without its fence"),
    ],
)
async def test_a_broken_promise_is_found(edits: Sequence[Edit], store: str, promise: str, tmp_path: Path) -> None:
    """With a guard taken out of a copy of the proxy, a run finds the violation, and tells the story of the key."""
    environment = broken_copy(edits, tmp_path / "copy")
    stopped = [Fault(2.0, STOP, f"{store}-0", seconds=7.5)]  # longer than the lease: others take over what it works on
    plan = Plan(SEED, 8.0, 0, 40, (store,), stopped, TROUBLED, probed=0.9, until_twice=promise == "2 effects")

    report = await run(plan, tmp_path, environment)

    print(report)  # noqa: T201 - as above
    assert promise in " ".join(str(violation) for violation in report.verdict.violations)
    assert report.stories
