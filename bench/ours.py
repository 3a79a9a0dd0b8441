"""idemproxy as users run it, on each store: the access log is on, and standard output leads to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.machine import family
from bench.stage import Stage, Standing, answers_ok, free_port


def on_redis(stage: Stage, name: str = "redis", upstream: int | None = None) -> Standing:
    """On Redis, which shares a core with the upstream; `upstream`: the port of another one than the stage's."""
    store, store_pid = stage.redis
    return _start(stage, name, f"redis://127.0.0.1:{store}/0", store_pid, upstream=upstream)


def two_workers(stage: Stage) -> Standing:
    """Two workers on Redis; on two cores they share one with the load, the upstream and Redis."""
    store, store_pid = stage.redis
    url, cores = f"redis://127.0.0.1:{store}/0", stage.cores.two_servers
    standing = _start(stage, "two-workers", url, store_pid, more=("--workers", "2"), cores=cores)
    return replace(standing, more=tuple(family(standing.pid)[1:]))


def on_sqlite(stage: Stage, name: str = "sqlite", upstream: int | None = None) -> Standing:
    """On SQLite, whose file is on the disk that the checkout is on; `upstream` as above."""
    return _start(stage, name, f"sqlite:///{stage.directory / f'{name}.db'}", upstream=upstream)


def on_naive_sqlite(stage: Stage) -> Standing:
    """On SQLite with one transaction for each operation."""
    return _start(stage, "naive-sqlite", f"sqlite:///{stage.directory / 'naive-sqlite.db'}", module="bench.naive_sqlite")


def _start(
    stage: Stage,
    name: str,
    store: str,
    *support: int,
    module: str = "idemproxy",
    more: Sequence[str] = (),
    cores: frozenset[int] | None = None,
    upstream: int | None = None,
) -> Standing:
    """Start one in front of that upstream, or of the stage's."""
    port, admin = free_port(), free_port()
    if upstream is None:
        upstream, upstream_pid = stage.upstream
        support = (upstream_pid, *support)
    addresses = (
        *("--listen", f"127.0.0.1:{port}"),
        *("--admin-listen", f"127.0.0.1:{admin}"),
        *("--upstream", f"http://127.0.0.1:{upstream}"),
    )
    pid = stage.start_python(
        name, module, "run", *addresses, "--store", store, "--access-log", "on", *more,
        cores=cores or stage.cores.server, is_ready=lambda: answers_ok(f"http://127.0.0.1:{admin}/readyz"),
    )  # fmt: skip
    return Standing(port, pid, support)
