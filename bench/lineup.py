"""Who runs, what is asked of whom, and what is compared: add a server to SERVERS, and a comparison to RATIOS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench import ours
from bench.load import OURS, Signs, Work
from bench.peers import nginx, node, python
from bench.stage import Stage, Standing, free_port, listens
from bench.targets import Target


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test. `start` and `fetch` raise MissingError when this machine lacks something.

    `about`: what it is, with its version, for the results. `fetch`: installs a peer, where that is needed. `signs`: by which an
    executed answer and a replay are told apart. A peer that fails is reported; one of ours that fails ends the run.
    """

    name: str
    works: tuple[Work, ...]
    start: Callable[[Stage], Standing]
    about: str
    fetch: Callable[[], object] | None = None
    signs: Signs = OURS
    is_peer: bool = True


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """One kind of work on one server, as SERVER/WORK."""

    server: str
    work: Work

    def __str__(self) -> str:
        return f"{self.server}/{self.work}"

    @property
    def direct(self) -> Series:
        """The same request without anything in between."""
        return Series("direct", "read" if self.work == "read" else "write")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One series by another: requests per second at the most connections or, if `of_added_p50`, the added p50 at the fewest.

    `against`: the best that was measured of these. `in_quick`: whether it is part of the short form.
    """

    name: str
    of: Series
    against: tuple[Series, ...]
    target: Target | None = None
    of_added_p50: bool = False
    in_quick: bool = True

    @property
    def involved(self) -> frozenset[Series]:
        """Every series that it is made of."""
        return frozenset((self.of, *self.against, *((self.of.direct,) if self.of_added_p50 else ())))


def _direct(stage: Stage) -> Standing:
    port, pid = stage.upstream
    return Standing(port, pid, ())


def _passthrough(stage: Stage) -> Standing:
    port, (upstream, upstream_pid) = free_port(), stage.upstream
    words = ("bench.passthrough", str(port), f"http://127.0.0.1:{upstream}")
    pid = stage.start_python("passthrough", *words, cores=stage.cores.server, is_ready=lambda: listens(port))
    return Standing(port, pid, (upstream_pid,))


def _behind(middleware: str, signs: Signs) -> Server:
    """FastAPI behind a middleware; `middleware` as a requirement with its version."""
    name, _, version = middleware.partition("==")
    about = f"FastAPI on uvicorn behind {name} {version} on Redis, passing on by aiohttp"
    fetch = partial(python.fetch, middleware)
    return Server(name, ("first", "replay"), python.behind(middleware), about, fetch, signs)


_TWO_WORKERS: Final = "idemproxy on Redis with --workers 2, on the server's core and on one more: the load's, where there are two"
_LUA: Final = "nginx with Lua and Redis: hash, lock, compare, store, replay (bench/peers/idempotency.lua)"
_EXPRESS: Final = "Express behind express-idempotency 1.0.6 on Redis, passing on by undici"
_FASTIFY: Final = "Fastify with @node-idempotency 1.0.11 on Redis, passing on by undici"

SERVERS: Final = (
    Server("direct", ("write", "read"), _direct, "the upstream itself", is_peer=False),
    Server("passthrough", ("write", "read"), _passthrough, "aiohttp's server and client, tuned, no idempotency", is_peer=False),
    Server("nginx", ("write", "read"), nginx.plain, "nginx proxy_pass, no idempotency: the limit"),
    Server("redis", ("first", "replay", "read"), ours.on_redis, "idemproxy on Redis", is_peer=False),
    Server("redis-2-workers", ("first",), ours.two_workers, _TWO_WORKERS, is_peer=False),
    Server("sqlite", ("first", "replay", "read"), ours.on_sqlite, "idemproxy on SQLite", is_peer=False),
    Server("naive-sqlite", ("first",), ours.on_naive_sqlite, "idemproxy on SQLite, one transaction an operation", is_peer=False),
    Server("nginx-lua", ("first", "replay"), nginx.with_lua, _LUA, nginx.fetch),
    _behind("idemkit==1.0.2", Signs("", "idempotency-replayed: true")),
    _behind("asgi-idempotency-header==0.2.0", Signs("", "idempotent-replayed: true")),
    _behind("fastapi-idempotency-key==0.1.1", Signs("", "idempotency-replayed: true")),
    Server("express", ("first", "replay"), node.express, _EXPRESS, node.fetch_express, Signs("x-executed: yes", "")),
    Server("fastify", ("first", "replay"), node.fastify, _FASTIFY, node.fetch_fastify, Signs("", "idempotent-replayed: true")),
)
ALL: Final = tuple(Series(server.name, work) for server in SERVERS for work in server.works)

_FIRST: Final = Series("redis", "first")
_LUA_FIRST: Final = (Series("nginx-lua", "first"),)
_PYTHON_PEERS: Final = ("idemkit", "asgi-idempotency-header", "fastapi-idempotency-key")
"""By first writes, which all of them carry out. fastapi-idempotency-key 0.1.1 refuses every retry on Redis (422), since it keeps
no fingerprint with an answer: its replays are told as a failure."""
_NODE_PEERS: Final = ("express", "fastify")

RATIOS: Final = (
    Ratio("first_vs_nginx_lua", _FIRST, _LUA_FIRST, Target(0.7, 1.2)),
    Ratio("replay_vs_nginx_lua", Series("redis", "replay"), (Series("nginx-lua", "replay"),), Target(0.6, 1.4)),
    Ratio("first_vs_passthrough", _FIRST, (Series("passthrough", "write"),), Target(2.0, 4.0)),
    Ratio("first_vs_python_peer", _FIRST, tuple(Series(name, "first") for name in _PYTHON_PEERS), Target(7.0, 12.0)),
    Ratio("first_vs_node_peer", _FIRST, tuple(Series(name, "first") for name in _NODE_PEERS)),
    Ratio("p50_added_vs_nginx_lua", _FIRST, _LUA_FIRST, Target(2.0, 1.3, less_is_better=True), of_added_p50=True),
    Ratio("sqlite_first_vs_naive", Series("sqlite", "first"), (Series("naive-sqlite", "first"),), Target(4.0, 6.0)),
    Ratio("read_vs_passthrough", Series("redis", "read"), (Series("passthrough", "read"),), Target(1.5, 4.0)),
    Ratio("two_workers_vs_one", Series("redis-2-workers", "first"), (_FIRST,), in_quick=False),
)


def chosen(patterns: list[str]) -> list[Series]:
    """The series named by server, work, or SERVER/WORK, and the direct calls that they are held against; all for no pattern.

    Raises ValueError for a pattern that names none.
    """
    named = {series for pattern in patterns for series in _named(pattern)} or set(ALL)
    return [series for series in ALL if series in named | {series.direct for series in named}]


def _named(pattern: str) -> list[Series]:
    found = [series for series in ALL if pattern in {series.server, series.work, str(series)}]
    if not found:
        raise ValueError(f"no series is named {pattern!r}; there are {', '.join(map(str, ALL))}, and each half of these names")
    return found


def needed(series: Series, connections: int, of: Iterable[int]) -> bool:
    """Whether a ratio of the short form needs this cell, where `of` are all numbers of connections."""
    marks = {False: max(of), True: min(of)}
    asked = (ratio for ratio in RATIOS if ratio.in_quick)
    return any(series in ratio.involved and connections == marks[ratio.of_added_p50] for ratio in asked)
