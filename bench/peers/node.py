"""Express and Fastify with the idempotency middlewares of npm, on Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.peers import install
from bench.stage import Stage, Standing, free_port, listens

_HERE: Final = Path(__file__).parent
_EXPRESS: Final = ("express@5.3.0", "express-idempotency@1.0.6", "express-idempotency-redis-adapter@1.0.8", "undici@7.30.2")
_FASTIFY: Final = (
    "fastify@5.12.8",
    "@node-idempotency/core@1.0.11",
    "@node-idempotency/storage-adapter-redis@1.0.2",
    "undici@7.30.2",
)


def fetch_express() -> tuple[str, Path]:
    """Where node is, and the program. Raises MissingError."""
    return install.node("express", _EXPRESS, _HERE / "express_app.mjs")


def fetch_fastify() -> tuple[str, Path]:
    """Where node is, and the program. Raises MissingError."""
    return install.node("fastify", _FASTIFY, _HERE / "fastify_app.mjs")


def express(stage: Stage) -> Standing:
    """Express with express-idempotency."""
    return _start(stage, "express", *fetch_express())


def fastify(stage: Stage) -> Standing:
    """Fastify with @node-idempotency."""
    return _start(stage, "fastify", *fetch_fastify())


def _start(stage: Stage, name: str, runtime: str, program: Path) -> Standing:
    port, (upstream, upstream_pid), (redis, redis_pid) = free_port(), stage.upstream, stage.redis
    words = [runtime, str(program), str(port), f"http://127.0.0.1:{upstream}", f"redis://127.0.0.1:{redis}/0"]
    return Standing(port, stage.start(name, words, stage.cores.server, lambda: listens(port)), (upstream_pid, redis_pid))
