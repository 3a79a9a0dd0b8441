"""`python -m tests.process.chaos`: the fault suite in its long form. Prints its schedule, and exits with 1 for any violation."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.process.chaos.run import Plan, run

STORES: Final = ("redis", "sqlite", "sentinel", "cluster")


def main() -> int:
    """Read the arguments, run, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=515.0, help="how long faults happen (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=2.3, help="faults of processes and links a second (default: %(default)s)")
    parser.add_argument("--pace", type=float, default=42.0, help="operations a second (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="draws everything (default: the clock)")
    parser.add_argument(
        "--stores", nargs="+", choices=STORES, default=STORES[:2], help="what keeps records (default: the first two)"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, help="store.durability.replicas with the last two (default: %(default)s)"
    )
    options = parser.parse_args()
    plan = Plan(options.seed, options.seconds, options.rate, options.pace, options.stores, replicas=options.replicas)
    print(f"seed {plan.seed}", flush=True)  # noqa: T201 - the command's result
    with tempfile.TemporaryDirectory(prefix="idemproxy-chaos-") as directory:
        report = asyncio.run(run(plan, Path(directory), tell=True))
    print(report)  # noqa: T201 - as above
    return 1 if report.verdict.violations or report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
