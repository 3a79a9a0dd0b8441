"""FastAPI with the idempotency middlewares of PyPI, on Redis, each in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench.peers import install
from bench.stage import Stage, Standing, free_port, listens

_PROGRAM: Final = Path(__file__).with_name("python_app.py")
_COMMON: Final = (
    "fastapi==0.165.0",
    "uvicorn==0.54.0",
    "uvloop==0.23.0",
    "httptools==0.9.0",
    "aiohttp==3.14.5",
    "redis[hiredis]==8.1.0",
)


def fetch(middleware: str) -> Path:
    """The interpreter of its environment; `middleware` as a requirement with its version. Raises MissingError."""
    return install.python(middleware.partition("==")[0], (*_COMMON, middleware))


def behind(middleware: str) -> Callable[[Stage], Standing]:
    """How to start the application behind it."""
    return partial(_start, middleware)


def _start(middleware: str, stage: Stage) -> Standing:
    name = middleware.partition("==")[0]
    port, (upstream, upstream_pid), (redis, redis_pid) = free_port(), stage.upstream, stage.redis
    words = [
        str(fetch(middleware)),
        str(_PROGRAM),
        name,
        str(port),
        f"http://127.0.0.1:{upstream}",
        f"redis://127.0.0.1:{redis}/0",
    ]
    return Standing(port, stage.start(name, words, stage.cores.server, lambda: listens(port)), (upstream_pid, redis_pid))
