"""What the number of connections costs that all write at once."""

from __future__ import annotations

from typing import Final

from bench.growth import proxy
from bench.growth.curves import Curve
from bench.load import Plan, measured
from bench.machine import allow_files
from bench.stage import MissingError, Stage

QUESTION: Final = "connections"
AXIS: Final = "number of connections"

_COUNTS: Final = (1, 10, 100, 1_000, 5_000)
_FILES: Final = 12_000
"""That a process must be allowed to have open: a connection from each client and one to the upstream, and some."""


def measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    """First writes on a store in memory. Raises WrongAnswerError, and MissingError where so many files may not be open."""
    if not allow_files(_FILES):
        raise MissingError(f"a process may not have {_FILES} files open here, which 5,000 connections need")
    standing = proxy.start(stage, "connections", {})
    cpu, memory = [], []
    for count in (each for each in _COUNTS if each <= most):
        # Not less than two requests for each connection, at some thousands in a second.
        span = max(seconds, count / 1_000)
        figures = measured(Plan(standing.port, "first", count, span / 2, span, standing.processes, standing.support))
        cpu.append((count, figures.server_cpu / figures.requests * 1e6))
        memory.append((count, figures.server_mib))
    return [
        Curve(QUESTION, "processor time of a first write", "µs", tuple(cpu)),
        Curve(QUESTION, "resident memory", "MiB", tuple(memory)),
    ]
