"""The command: arguments, table, verdict."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.soak.run import Plan, Report, soak
from bench.soak.samples import HEADING, Sample
from bench.stage import MissingError, NotStartedError

_SHOWN: Final = 20
"""How many faults are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print the series as it comes. Exit codes: 0 nothing grew, 1 something did or went wrong, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description="Whether anything grows: see bench/soak/__init__.py."
    )
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long traffic flows (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=60.0, metavar="N", help="pieces of traffic a second (default: %(default)s)")
    parser.add_argument("--store", choices=("sqlite", "redis"), default="sqlite", help="default: %(default)s")
    parser.add_argument("--tls", action="store_true", help="clients come by TLS")
    parser.add_argument("--seed", type=int, default=17, metavar="N", help="draws the traffic (default: %(default)s)")
    parsed = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    seconds = 60 * parsed.minutes
    plan = Plan(
        seconds, min(60.0, seconds / 5), max(1.0, min(10.0, seconds / 30)), parsed.rate,
        store=parsed.store, tls=parsed.tls, seed=parsed.seed,
    )  # fmt: skip
    print(HEADING)
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as directory:
            report = asyncio.run(soak(plan, Path(directory), _print))
    except (MissingError, NotStartedError) as exc:
        sys.stderr.write(f"soak: {exc}\n")
        return 1
    print(text(report))
    return 1 if report.faults else 0


def _print(sample: Sample) -> None:
    print(sample.line(), flush=True)


def text(report: Report) -> str:
    """What came of it."""
    done = ", ".join(f"{name} {count}" for name, count in sorted(report.kinds.items()))
    more = len(report.faults) - _SHOWN
    return "\n".join([
        "",
        f"done: {done}",
        *map(str, report.growths),
        *report.faults[:_SHOWN],
        *([f"and {more} more"] if more > 0 else []),
        "FAILED" if report.faults else "nothing grew",
    ])  # fmt: skip
