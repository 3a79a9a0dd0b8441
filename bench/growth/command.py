"""The order of things: ask the four questions, show, write down."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Final

from redis.exceptions import RedisError

from bench.growth import bodies, connections, records, routes
from bench.growth.curves import Curve, picture
from bench.load import WrongAnswerError
from bench.machine import Cores
from bench.report import columns, described
from bench.stage import MissingError, NotStartedError, Stage
from idemproxy.store.base import StoreError

_ROOT: Final = Path(__file__).parents[2]
_LATEST: Final = _ROOT / "bench" / "results" / "growth.json"
_QUESTIONS: Final[dict[str, ModuleType]] = {module.QUESTION: module for module in (bodies, routes, records, connections)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the results. Exit codes: 0 measured, 1 something failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="How cost grows: see bench/growth/__init__.py.")
    parser.add_argument("--only", action="append", choices=list(_QUESTIONS), metavar="QUESTION", help=", ".join(_QUESTIONS))
    parser.add_argument("--seconds", type=float, default=1.5, metavar="S", help="for each point (default: 1.5)")
    parser.add_argument("--most", type=int, default=sys.maxsize, metavar="N", help="leave out the amounts beyond")
    parser.add_argument("--output", type=Path, default=_LATEST, metavar="FILE", help="default: bench/results/growth.json")
    parsed = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    cores, scratch = Cores.of_this_machine(), _ROOT / "build"  # not /tmp, which may be memory
    scratch.mkdir(exist_ok=True)
    curves: list[Curve] = []
    failed = False
    os.sched_setaffinity(0, cores.load)
    for name in parsed.only or _QUESTIONS:
        try:
            with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch) as there, closing(Stage(Path(there), cores)) as stage:
                curves += _QUESTIONS[name].measure(stage, parsed.seconds, parsed.most)
        except (MissingError, NotStartedError, WrongAnswerError, StoreError, RedisError, OSError) as exc:
            sys.stderr.write(f"bench: {name}: {exc}\n")
            failed = True
    if curves:
        print(_table(curves))
        _write(curves, cores, parsed.output)
    return int(failed)


def _table(curves: Sequence[Curve]) -> str:
    """For each curve its points, as amount and cost, and how it grows."""
    lines = []
    for curve in curves:
        points = "  ".join(f"{amount:,}: {cost:.3g}" for amount, cost in curve.points)
        told = "" if curve.target is None else curve.target.told(curve.growth)
        lines.append((curve.question, curve.name, f"{curve.growth:.2f}", told, f"{curve.steepest:.2f}", curve.unit, points))
    return columns([("by", "what", "growth", "wanted", "steepest", "unit", "points"), *lines], left=2)


def _write(curves: Sequence[Curve], cores: Cores, output: Path) -> None:
    document = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": described(cores),
        "curves": [curve.values() for curve in curves],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n")
    axes = {name: str(module.AXIS) for name, module in _QUESTIONS.items()}
    output.with_suffix(".svg").write_text(picture(curves, axes))
    print(f"\nwritten: {output}, {output.with_suffix('.svg').name}")
