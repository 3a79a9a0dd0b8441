"""Which store a URL means, and what tells it from the others of this host."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from idemproxy.config.settings import StoreSettings
from idemproxy.store.base import Store, StoreError
from idemproxy.store.base_host import host_clock


def open_store(settings: StoreSettings) -> Store:
    """The store of a URL; only its own library is imported, and nothing is connected to. Raises StoreError."""
    scheme, _, rest = settings.url.partition("://")
    match scheme:
        case "sqlite":
            from idemproxy.store.sqlite import SqliteStore  # noqa: PLC0415

            return SqliteStore(rest.removeprefix("/"), clock=host_clock())
        case "redis" | "unix":
            from idemproxy.store.redis import RedisStore  # noqa: PLC0415

            return RedisStore(settings.url, prefix=settings.prefix)
        case "memory":
            from idemproxy.store.memory import MemoryStore  # noqa: PLC0415

            return MemoryStore(_now)
        case _:
            raise StoreError(f"store.url: no store is called {scheme!r}")


def store_name(settings: StoreSettings) -> str:
    """What tells a store from others of this host: its URL without credentials, in one spelling, and the prefix."""
    parts = urlsplit(settings.url)
    database = parse_qs(parts.query).get("db", [""])[0]
    match parts.scheme:
        case "sqlite":
            place = str(Path(settings.url.partition("://")[2].removeprefix("/")).absolute())
        case "redis":
            place = f"{parts.hostname}:{parts.port or 6379}/{int(database or parts.path.strip('/') or 0)}"
        case _:
            place = f"{parts.path}/{int(database or 0)}"
    return f"{parts.scheme}://{place}#{settings.prefix}"


def _now() -> int:
    """The wall clock in microseconds, for the store in memory."""
    return time.time_ns() // 1000
