"""What the length of a body costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

from bench.growth import asker, proxy
from bench.growth.curves import Curve
from bench.stage import Stage

QUESTION: Final = "bodies"
AXIS: Final = "bytes of the body"

_SIZES: Final = (0, 2**10, 10 * 2**10, 100 * 2**10, 2**20, 10 * 2**20)
_ROUNDS: Final = 3
_ITEM: Final = b'{"sku": "a-1", "quantity": 2, "price": 19.90, "note": "to be wrapped"},'


def measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    """Through the proxy as JSON and as bytes, and directly as bytes; `seconds` for each point, in rounds.

    Raises WrongAnswerError.
    """
    sizes = [size for size in _SIZES if size <= most]
    ours, (upstream, _) = proxy.on_redis(stage, "bodies"), stage.upstream
    asked: dict[str, tuple[int, bytes, Callable[[int], bytes]]] = {
        "JSON": (ours.port, b"application/json", _json),
        "bytes": (ours.port, b"application/octet-stream", bytes),
        "bytes, directly": (upstream, b"application/octet-stream", bytes),
    }
    found: dict[tuple[str, int], list[float]] = {(name, size): [] for name in asked for size in sizes}
    for _ in range(_ROUNDS):
        for (name, size), medians in found.items():
            port, kind, make = asked[name]
            medians.append(asker.p50_ms(port, partial(_request, kind, make(size)), seconds / _ROUNDS))
    return [Curve(QUESTION, name, "ms", tuple((size, median(found[name, size])) for size in sizes)) for name in asked]


def _request(kind: bytes, body: bytes, key: bytes) -> bytes:
    return asker.post(b"/charges", key, kind, body)


def _json(size: int) -> bytes:
    """A JSON array of objects that is exactly so long; nothing for 0."""
    if size == 0:
        return b""
    count = (size - 4) // len(_ITEM)
    items = _ITEM * count
    return b"[" + items + b'"' + b"x" * (size - len(items) - 4) + b'"]'
