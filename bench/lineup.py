"""Who runs, what is asked of whom, and what is compared: add a server to SERVERS, and a comparison to RATIOS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.load import Work
from bench.stage import Stage, answers_ok, found_in_path, free_port, listens


@dataclass(frozen=True, slots=True)
class Standing:
    """A server that runs: its port, its process, and the processes that work for it."""

    port: int
    pid: int
    support: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test. `start` raises MissingError when this machine lacks something."""

    name: str
    works: tuple[Work, ...]
    start: Callable[[Stage], Standing]


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
    """Requests per second of one series by those of another, at the most connections measured; `target` is the least wanted."""

    name: str
    of: Series
    against: Series
    target: float | None = None


def _direct(stage: Stage) -> Standing:
    port, pid = stage.upstream
    return Standing(port, pid, ())


def _passthrough(stage: Stage) -> Standing:
    port, (upstream, upstream_pid) = free_port(), stage.upstream
    words = ("bench.passthrough", str(port), f"http://127.0.0.1:{upstream}")
    pid = stage.start_python("passthrough", *words, cores=stage.cores.server, is_ready=lambda: listens(port))
    return Standing(port, pid, (upstream_pid,))


_NGINX: Final = """
daemon off; master_process off; pid nginx.pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    upstream behind {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


def _nginx(stage: Stage) -> Standing:
    program = found_in_path("nginx")
    port, (upstream, upstream_pid) = free_port(), stage.upstream
    configuration = stage.directory / "nginx.conf"
    configuration.write_text(_NGINX.format(upstream=upstream, port=port))
    words = [program, "-p", str(stage.directory), "-c", str(configuration), "-e", "stderr"]
    return Standing(port, stage.start("nginx", words, stage.cores.server, lambda: listens(port)), (upstream_pid,))


def _on_redis(stage: Stage) -> Standing:
    store, store_pid = stage.redis
    return _idemproxy(stage, "redis", f"redis://127.0.0.1:{store}/0", store_pid)


def _on_sqlite(stage: Stage) -> Standing:
    return _idemproxy(stage, "sqlite", f"sqlite:///{stage.directory / 'sqlite.db'}")


def _on_naive_sqlite(stage: Stage) -> Standing:
    return _idemproxy(stage, "naive-sqlite", f"sqlite:///{stage.directory / 'naive-sqlite.db'}", module="bench.naive_sqlite")


def _idemproxy(stage: Stage, name: str, store: str, *support: int, module: str = "idemproxy") -> Standing:
    """As users run it: the access log is on, and standard output leads to a file."""
    port, admin, (upstream, upstream_pid) = free_port(), free_port(), stage.upstream
    addresses = (
        "--listen",
        f"127.0.0.1:{port}",
        "--admin-listen",
        f"127.0.0.1:{admin}",
        "--upstream",
        f"http://127.0.0.1:{upstream}",
    )
    pid = stage.start_python(
        name, module, "run", *addresses, "--store", store, "--access-log", "on",
        cores=stage.cores.server, is_ready=lambda: answers_ok(f"http://127.0.0.1:{admin}/readyz"),
    )  # fmt: skip
    return Standing(port, pid, (upstream_pid, *support))


SERVERS: Final = (
    Server("direct", ("write", "read"), _direct),
    Server("passthrough", ("write", "read"), _passthrough),
    Server("nginx", ("write", "read"), _nginx),
    Server("redis", ("first", "replay", "read"), _on_redis),
    Server("sqlite", ("first", "replay"), _on_sqlite),
    Server("naive-sqlite", ("first",), _on_naive_sqlite),
)
ALL: Final = tuple(Series(server.name, work) for server in SERVERS for work in server.works)

RATIOS: Final = (
    Ratio("first_vs_passthrough", Series("redis", "first"), Series("passthrough", "write"), 2.0),
    Ratio("first_sqlite_vs_passthrough", Series("sqlite", "first"), Series("passthrough", "write")),
    Ratio("replay_vs_passthrough", Series("redis", "replay"), Series("passthrough", "write")),
    Ratio("read_vs_passthrough", Series("redis", "read"), Series("passthrough", "read"), 1.5),
    Ratio("sqlite_first_vs_naive", Series("sqlite", "first"), Series("naive-sqlite", "first"), 4.0),
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
