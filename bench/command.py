"""The order of things: start who is needed, measure, show, write down, end everybody."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.lineup import RATIOS, SERVERS, Series, Standing, chosen
from bench.load import Figures
from bench.machine import Cores
from bench.measure import Cell, Effort, FailedError, compared, measure, row
from bench.report import document, ratio_lines, table, warnings
from bench.stage import MissingError, NotStartedError, Stage

_ROOT: Final = Path(__file__).parents[1]
_LATEST: Final = _ROOT / "bench" / "results" / "latest.json"
_SCRATCH: Final = _ROOT / "build"
"""Not /tmp, which may be memory, where SQLite's flushes would cost nothing."""

_FULL: Final = Effort(rounds=3, connections=(1, 16, 64), warm_up=0.5, seconds=2.0)
_QUICK: Final = Effort(rounds=3, connections=(1, 64), warm_up=0.1, seconds=0.3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit codes: 0 measured, 1 something failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="idemproxy beside its neighbours: see bench/__init__.py."
    )
    parser.add_argument("--quick", action="store_true", help="short rounds at 1 and 64 connections, under 50 s in all")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a server, a work, or SERVER/WORK; repeatable"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often all is measured (default: 3)")
    parser.add_argument("--output", type=Path, default=_LATEST, metavar="FILE", help="default: bench/results/latest.json")
    parsed = parser.parse_args(arguments)
    try:
        wanted = chosen(parsed.only)
    except ValueError as exc:
        parser.error(str(exc))
    if parsed.rounds is not None and parsed.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    effort = _QUICK if parsed.quick else _FULL
    try:
        _run(Effort(parsed.rounds or effort.rounds, effort.connections, effort.warm_up, effort.seconds), wanted, parsed.output)
    except (FailedError, NotStartedError) as exc:
        sys.stderr.write(f"bench: {exc}\n")
        return 1
    return 0


def _run(effort: Effort, wanted: list[Series], output: Path) -> None:
    cores = Cores.of_this_machine()
    _SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_SCRATCH) as directory, closing(Stage(Path(directory), cores)) as stage:
        standing, skipped = _start(stage, wanted)
        found = measure(effort, standing, cores, _Progress(effort, len(standing)))
    _show(effort, cores, found, skipped, output)


def _start(stage: Stage, wanted: list[Series]) -> tuple[dict[Series, Standing], dict[str, str]]:
    """The wanted series with their servers, and the servers that this machine cannot run, with the reason."""
    standing: dict[Series, Standing] = {}
    skipped: dict[str, str] = {}
    for server in SERVERS:
        mine = [series for series in wanted if series.server == server.name]
        if not mine:
            continue
        try:
            started = server.start(stage)
        except MissingError as exc:
            skipped[server.name] = str(exc)
            print(f"skipped: {server.name}: {exc}")
        else:
            standing |= dict.fromkeys(mine, started)
    return standing, skipped


class _Progress:
    """One line on standard error that is written over, while a person watches."""

    def __init__(self, effort: Effort, series: int) -> None:
        self._total = effort.rounds * len(effort.connections) * series
        self._rounds = effort.rounds
        self._done = 0

    def __call__(self, number: int, cell: Cell) -> None:
        self._done += 1
        if sys.stderr.isatty():
            series, connections = cell
            text = f"round {number + 1}/{self._rounds}, {self._done}/{self._total}: {series} at {connections}"
            sys.stderr.write(f"\r{text:78}" if self._done < self._total else f"\r{'':78}\r")
            sys.stderr.flush()


def _show(effort: Effort, cores: Cores, found: dict[Cell, list[Figures]], skipped: dict[str, str], output: Path) -> None:
    rows = {cell: row(cell, rounds, cores) for cell, rounds in found.items()}
    against = compared(rows, RATIOS)
    print(f"\n{table(rows)}\n\n{ratio_lines(against)}\n")
    for warning in warnings(rows):
        print(f"note: {warning}")
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document(effort, cores, rows, against, skipped, finished), indent=2) + "\n")
    print(f"written: {output}")
