"""What `perf` sees of idemproxy on Redis under load: how much is kernel, interpreter and libraries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.load import Figures, Plan, Work, WrongAnswerError
from bench.machine import Cores, on
from bench.ours import on_redis
from bench.report import columns
from bench.stage import MissingError, Stage, Standing, found_in_path

_SCRATCH: Final = Path(__file__).parents[1] / "build"
_WORKS: Final[tuple[Work, ...]] = ("first", "replay", "read")
_CONNECTIONS: Final = 64
_WARM_UP: Final = 1.0
_HERTZ: Final = "1997"

_INTERPRETER: Final = r"(lib)?python3?[^|]*"
PARTS: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "kernel: sockets, epoll, scheduling": r"\[(kernel|vdso|unknown)[^|]*\|.*",
        "interpreter: running bytecode": rf"{_INTERPRETER}\|_PyEval_EvalFrameDefault",
        "interpreter: collecting garbage": rf"{_INTERPRETER}\|(gc_|visit_|deduce_|subtract_|update_|untrack_|\w*[tT]raverse).*",
        "interpreter: making and freeing objects": rf"{_INTERPRETER}\|.*([aA]lloc|Free|free|_Del|New|_Clear|UnTrack|_Track).*",
        "interpreter: the rest, calls and lookups": rf"{_INTERPRETER}\|.*",
        "event loop in C (uvloop, asyncio)": r"(loop|_asyncio)\.[^|]*\|.*",
        "parsers of HTTP and Redis in C": r"(_http_parser|parser|hiredis|_http_writer)\.[^|]*\|.*",
        "other libraries in C": r".*",
    }.items()
}
"""By part, which `library|function` is its own; the first that has one has it."""


@dataclass(frozen=True, slots=True)
class Under:
    """What a kind of request costs under load: microseconds of the server's processor time, and its parts, which add up to 1."""

    us: float
    share: dict[str, float]


def measure(cores: Cores, seconds: float) -> dict[str, Under]:
    """By work. Raises MissingError, NotStartedError and WrongAnswerError."""
    perf = found_in_path("perf")
    _SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_SCRATCH) as there, closing(Stage(Path(there), cores)) as stage:
        standing = on_redis(stage)
        return {work: _measure(perf, stage, standing, work, seconds) for work in _WORKS}


def _measure(perf: str, stage: Stage, standing: Standing, work: Work, seconds: float) -> Under:
    data = stage.directory / f"{work}.perf"
    plan = Plan(standing.port, work, _CONNECTIONS, _WARM_UP, seconds, standing.processes, standing.support)
    with (
        on(stage.cores.load),
        subprocess.Popen(
            [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as load,
    ):
        time.sleep(_WARM_UP)
        watch = [perf, "record", "-q", "-F", _HERTZ, "-p", str(standing.pid), "-o", str(data), "--", "sleep", str(seconds)]
        watched = subprocess.run(watch, check=False, capture_output=True, text=True)
        told, complaint = load.communicate()
    if load.returncode:
        raise WrongAnswerError(complaint)
    if watched.returncode:
        raise MissingError(f"perf may not watch here: {watched.stderr.strip()[-300:]}")
    figures = Figures(**json.loads(told))
    return Under(figures.server_cpu / figures.requests * 1e6, _shares(perf, data))


def _shares(perf: str, data: Path) -> dict[str, float]:
    words = [perf, "report", "-i", str(data), "--stdio", "-q", "-g", "none", "-F", "overhead,dso,symbol", "-t", "|"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise MissingError(f"perf cannot tell what it saw: {done.stderr.strip()[-300:]}")
    return parts(done.stdout)


def parts(report: str) -> dict[str, float]:
    """The share of each part by the lines `12.34% |library|[.] function` of a report, of all that is there."""
    found: Counter[str] = Counter()
    for line in (line for line in report.splitlines() if line.count("|") >= 2):
        percent, library, symbol = (each.strip() for each in line.split("|", 2))
        what = f"{library}|{symbol.partition('] ')[2]}"
        name = next(name for name, pattern in PARTS.items() if pattern.fullmatch(what))
        found[name] += float(percent.rstrip("%"))  # type: ignore[assignment]
    total = sum(found.values()) or 1.0
    return {name: round(found[name] / total, 4) for name in PARTS}


def table(found: dict[str, Under]) -> str:
    """Parts by works, in microseconds of processor time for each request."""
    lines = [("under load on Redis", *(f"{work} µs" for work in found))]
    lines += [(name, *(f"{under.us * under.share[name]:.1f}" for under in found.values())) for name in PARTS]
    lines.append(("all", *(f"{under.us:.1f}" for under in found.values())))
    return columns(lines, left=1)
