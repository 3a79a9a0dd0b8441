"""What the length of a body costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from bench.growth import asker, proxy
from bench.growth.curves import Curve
from bench.stage import Stage

QUESTION: Final = "bodies"
AXIS: Final = "bytes of the body"

_SIZES: Final = (0, 2**10, 10 * 2**10, 100 * 2**10, 2**20, 10 * 2**20)
_ITEM: Final = b'{"sku": "a-1", "quantity": 2, "price": 19.90, "note": "to be wrapped"},'


def measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    """Through the proxy as JSON and as bytes, and directly as bytes; `seconds` for each point. Raises WrongAnswerError."""
    sizes = [size for size in _SIZES if size <= most]
    ours, (upstream, _) = proxy.on_redis(stage, "bodies"), stage.upstream
    asked = (
        ("JSON", ours.port, b"application/json", _json),
        ("bytes", ours.port, b"application/octet-stream", bytes),
        ("bytes, directly", upstream, b"application/octet-stream", bytes),
    )
    return [
        Curve(QUESTION, name, "ms", tuple((size, _point(port, kind, make(size), seconds)) for size in sizes))
        for name, port, kind, make in asked
    ]


def _point(port: int, kind: bytes, body: bytes, seconds: float) -> float:
    request: Callable[[bytes], bytes] = partial(_request, kind, body)
    return asker.p50_ms(port, request, seconds)


def _request(kind: bytes, body: bytes, key: bytes) -> bytes:
    return asker.post(b"/charges", key, kind, body)


def _json(size: int) -> bytes:
    """A JSON array of objects that is exactly so long; nothing for 0."""
    if size == 0:
        return b""
    count = (size - 4) // len(_ITEM)
    items = _ITEM * count
    return b"[" + items + b'"' + b"x" * (size - len(items) - 4) + b'"]'
