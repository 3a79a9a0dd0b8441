"""What the number of routes costs."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, Final

from bench.growth import asker, proxy
from bench.growth.curves import Curve
from bench.machine import resident_mib
from bench.stage import Stage
from bench.wire import REQUEST_BODY

QUESTION: Final = "routes"
AXIS: Final = "number of routes"

_COUNTS: Final = (1, 10, 100, 1_000, 10_000)


def measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    """A write that the last route takes, and one that the first takes. Raises WrongAnswerError."""
    last, first, memory, began = [], [], [], []
    for count in (each for each in _COUNTS if each <= most):
        before = perf_counter()
        standing = proxy.start(stage, f"routes-{count}", {"routes": [_route(number) for number in range(count)]})
        began.append((count, perf_counter() - before))
        last.append((count, asker.p50_ms(standing.port, partial(_request, count - 1), seconds)))
        first.append((count, asker.p50_ms(standing.port, partial(_request, 0), seconds)))
        memory.append((count, resident_mib(standing.pid)))
        stage.end(standing.pid)
    return [
        Curve(QUESTION, "the last one takes it", "ms", tuple(last)),
        Curve(QUESTION, "the first one takes it", "ms", tuple(first)),
        Curve(QUESTION, "resident memory", "MiB", tuple(memory)),
        Curve(QUESTION, "until it is ready", "s", tuple(began)),
    ]


def _route(number: int) -> dict[str, Any]:
    return {"name": f"r{number}", "match": {"path": f"/v1/r{number}/charges", "methods": ["POST"]}, "upstream": "behind"}


def _request(number: int, key: bytes) -> bytes:
    return asker.post(b"/v1/r%d/charges" % number, key, b"application/json", REQUEST_BODY)
