"""The order of things: start who is needed, measure, show, write down, end everybody."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench import memory
from bench.lineup import RATIOS, SERVERS, Series, Server, chosen, needed
from bench.load import WrongAnswerError
from bench.machine import Cores
from bench.measure import Cell, Effort, FailedError, Row, compared, measure, row
from bench.picture import bars
from bench.report import Memory, document, memory_lines, ratio_lines, table, warnings
from bench.stage import MissingError, NotStartedError, Stage, Standing

_ROOT: Final = Path(__file__).parents[1]
_LATEST: Final = _ROOT / "bench" / "results" / "latest.json"
_SCRATCH: Final = _ROOT / "build"
"""Not /tmp, which may be memory, where SQLite's flushes would cost nothing."""

_MEMORY: Final = "memory"
"""What --only calls what is no series."""

_FULL: Final = Effort(rounds=3, connections=(1, 16, 64), warm_up=0.5, seconds=2.0)
_QUICK: Final = Effort(rounds=3, connections=(1, 64), warm_up=0.1, seconds=0.25)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit codes: 0 measured, 1 something failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="idemproxy beside its neighbours: see bench/__init__.py."
    )
    parser.add_argument("--quick", action="store_true", help="short rounds, and only what the ratios need: under 50 s")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a server, a work, SERVER/WORK, or memory; repeatable"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often all is measured (default: 3)")
    parser.add_argument(
        "--output",
        type=Path,
        default=_LATEST,
        metavar="FILE",
        help="default: bench/results/latest.json; the picture is put beside it",
    )
    parsed = parser.parse_args(arguments)
    named = [name for name in parsed.only if name != _MEMORY]
    try:
        wanted = chosen(named) if named or not parsed.only else []
    except ValueError as exc:
        parser.error(str(exc))
    if parsed.rounds is not None and parsed.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    usual = _QUICK if parsed.quick else _FULL
    effort = Effort(parsed.rounds or usual.rounds, usual.connections, usual.warm_up, usual.seconds)
    cells = [(series, connections) for connections in effort.connections for series in wanted]
    if parsed.quick and not parsed.only:
        cells = [(series, connections) for series, connections in cells if needed(series, connections, effort.connections)]
    amounts = memory.Amounts() if not parsed.only or _MEMORY in parsed.only else None
    try:
        _run(effort, cells, amounts, parsed.output)
    except (FailedError, NotStartedError, WrongAnswerError) as exc:
        sys.stderr.write(f"bench: {exc}\n")
        return 1
    return 0


def _run(effort: Effort, cells: list[Cell], amounts: memory.Amounts | None, output: Path) -> None:
    """Measure cells, and memory unless `amounts` is None."""
    cores = Cores.of_this_machine()
    _SCRATCH.mkdir(exist_ok=True)
    asked = {series for series, _ in cells}
    servers = [server for server in SERVERS if any(series.server == server.name for series in asked)]
    skipped = _fetch(servers)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_SCRATCH) as directory, closing(Stage(Path(directory), cores)) as stage:
        resident = None if amounts is None else _resident(stage, amounts, skipped)
        standing = _start(stage, servers, skipped)
        present = [cell for cell in cells if cell[0] in standing]
        found, failed = measure(effort, present, standing, cores, _Progress(effort.rounds * len(present), effort.rounds))
    rows = {cell: row(cell, rounds, cores) for cell, rounds in found.items()}
    _show(rows, resident, skipped | failed)
    _write(
        document(effort, cores, rows, compared(rows, RATIOS), resident, skipped | failed, servers), bars(rows, resident), output
    )


def _resident(stage: Stage, amounts: memory.Amounts, skipped: dict[str, str]) -> Memory | None:
    """What is resident; where it cannot be told, the reason is added to `skipped`."""
    try:
        return Memory(amounts, memory.measure(stage, amounts))
    except MissingError as exc:
        skipped[_MEMORY] = str(exc)
        return None


def _fetch(servers: Sequence[Server]) -> dict[str, str]:
    """Install the peers, all at once; those that cannot be had, with the reason."""
    with ThreadPoolExecutor() as pool:
        reasons = pool.map(_fetched, servers)
        return {server.name: reason for server, reason in zip(servers, reasons, strict=True) if reason}


def _fetched(server: Server) -> str | None:
    try:
        if server.fetch is not None:
            server.fetch()
    except MissingError as exc:
        return str(exc)
    return None


def _start(stage: Stage, servers: Sequence[Server], skipped: dict[str, str]) -> dict[Series, tuple[Server, Standing]]:
    """Each series with its server; a peer that does not start, or lacks something, is added to `skipped` with the reason."""
    standing: dict[Series, tuple[Server, Standing]] = {}
    for server in servers:
        if server.name in skipped:
            continue
        try:
            started = server.start(stage)
        except (MissingError, NotStartedError) as exc:
            if not server.is_peer and isinstance(exc, NotStartedError):
                raise
            skipped[server.name] = str(exc)
        else:
            standing |= {Series(server.name, work): (server, started) for work in server.works}
    return standing


class _Progress:
    """One line on standard error that is written over, while a person watches."""

    def __init__(self, total: int, rounds: int) -> None:
        self._total = total
        self._rounds = rounds
        self._done = 0

    def __call__(self, number: int, cell: Cell) -> None:
        self._done += 1
        if sys.stderr.isatty():
            series, connections = cell
            text = f"round {number + 1}/{self._rounds}, {self._done}/{self._total}: {series} at {connections}"
            sys.stderr.write(f"\r{text:78}" if self._done < self._total else f"\r{'':78}\r")
            sys.stderr.flush()


def _show(rows: Mapping[Cell, Row], resident: Memory | None, skipped: Mapping[str, str]) -> None:
    parts = [table(rows), ratio_lines(compared(rows, RATIOS))] if rows else []
    print("", *parts, *([] if resident is None else [memory_lines(resident)]), "", sep="\n\n")
    for name, reason in skipped.items():
        print(f"not measured: {name}: {reason}")
    for warning in warnings(rows):
        print(f"note: {warning}")


def _write(results: dict[str, Any], picture: str, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2) + "\n")
    output.with_suffix(".svg").write_text(picture)
    print(f"written: {output}, {output.with_suffix('.svg').name}")
