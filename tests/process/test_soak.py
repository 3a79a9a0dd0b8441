"""Nothing grows and nothing stays under mixed traffic: the short form of `make soak`, and what makes the long one fail."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bench.soak.command import text
from bench.soak.run import Plan, Report, soak
from bench.soak.samples import Sample
from bench.soak.traffic import KINDS
from bench.soak.verdict import growths, held

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")

IDLE: Final = Sample(
    seconds=0, mib=60, workers=40, fds=25, clients=0, upstreams=0, sockets=5, threads=10, tasks=5, objects=60_000, attempts=0,
    done=0, quiet=True,
)  # fmt: skip


def series(*, grows: float = 0.0, held: float = 0.0) -> list[Sample]:
    """Two pauses, and samples for ten minutes, in which memory grows by so many MiB, and what is held."""
    under_way = [replace(IDLE, seconds=10 * n, mib=60 + grows * n / 60, fds=60, clients=30, quiet=False) for n in range(1, 60)]
    return [replace(IDLE, seconds=5), *under_way, replace(IDLE, seconds=600, mib=60 + held)]


@pytest.mark.timeout(120)
async def test_mixed_traffic_leaves_nothing_behind(tmp_path: Path) -> None:
    """After some seconds of all that clients and upstreams do, sockets, descriptors, tasks, threads and memory are back."""
    shown: list[Sample] = []

    report = await soak(Plan(seconds=7, first=2, every=1, rate=40, growth=20, share=0.3), tmp_path, shown.append)

    print(*(sample.line() for sample in shown), text(report), sep="\n")  # noqa: T201 - which pytest shows of a failed test
    assert [] == report.faults
    assert KINDS.keys() == report.kinds.keys()


@pytest.mark.parametrize(
    ("grows", "holds", "found"),
    [(0.0, 0.0, []), (2.5, 2.5, []), (0.0, 3.5, ["mib held"]), (3.5, 0.0, ["mib under way"]), (200, 0.0, ["mib under way"])],
)
def test_memory_that_grows_is_found(grows: float, holds: float, found: Sequence[str]) -> None:
    """More than 5 MiB or 5 % between the pauses, or by a line through the series, is growth; less is not."""
    assert found == [growth.name for growth in growths(series(grows=grows, held=holds)) if growth.exceeds(5, 0.05)]


@pytest.mark.parametrize(
    ("last", "found"),
    [
        pytest.param(IDLE, [], id="nothing"),
        pytest.param(replace(IDLE, fds=24, tasks=4, threads=16), [], id="no more than before"),
        pytest.param(replace(IDLE, tasks=6), ["tasks: 6 in the last pause, 5 in the first"], id="a task"),
        pytest.param(
            replace(IDLE, fds=26, clients=1),
            ["fds: 26 in the last pause, 25 in the first", "clients: 1 in the last pause, 0 in the first"],
            id="a client's connection",
        ),
    ],
)
def test_what_is_left_is_found(last: Sample, found: Sequence[str]) -> None:
    """Whatever there is more of in the last pause than in the first is named."""
    assert found == held([*series()[:-1], last])


def test_a_failed_run_says_so() -> None:
    """What was found is shown, up to a limit, and the last line is the verdict."""
    faults = [f"fault {number}" for number in range(25)]
    found = growths(series())

    told = [text(Report([], found, Counter(read=3), each)).splitlines() for each in ([], faults)]

    heading = [
        "",
        "done: read 3",
        "mib held: about 60.0 MiB, growth +0.00 MiB",
        "mib under way: about 60.0 MiB, growth +0.00 MiB",
    ]
    heading += ["workers under way: about 40.0 MiB, growth +0.00 MiB"]
    assert [[*heading, "nothing grew"], [*heading, *faults[:20], "and 5 more", "FAILED"]] == told
