"""idemproxy as users run it, on each store: the access log is on, and standard output leads to a file."""

from __future__ import annotations

from bench.stage import Stage, Standing, answers_ok, free_port


def on_redis(stage: Stage) -> Standing:
    """On Redis, which shares a core with the upstream."""
    store, store_pid = stage.redis
    return _start(stage, "redis", f"redis://127.0.0.1:{store}/0", store_pid)


def on_sqlite(stage: Stage) -> Standing:
    """On SQLite, whose file is on the disk that the checkout is on."""
    return _start(stage, "sqlite", f"sqlite:///{stage.directory / 'sqlite.db'}")


def on_naive_sqlite(stage: Stage) -> Standing:
    """On SQLite with one transaction for each operation."""
    return _start(stage, "naive-sqlite", f"sqlite:///{stage.directory / 'naive-sqlite.db'}", module="bench.naive_sqlite")


def _start(stage: Stage, name: str, store: str, *support: int, module: str = "idemproxy") -> Standing:
    """Start one in front of the stage's upstream."""
    port, admin, (upstream, upstream_pid) = free_port(), free_port(), stage.upstream
    addresses = (
        *("--listen", f"127.0.0.1:{port}"),
        *("--admin-listen", f"127.0.0.1:{admin}"),
        *("--upstream", f"http://127.0.0.1:{upstream}"),
    )
    pid = stage.start_python(
        name, module, "run", *addresses, "--store", store, "--access-log", "on",
        cores=stage.cores.server, is_ready=lambda: answers_ok(f"http://127.0.0.1:{admin}/readyz"),
    )  # fmt: skip
    return Standing(port, pid, (upstream_pid, *support))
