"""Which store a URL means, and what tells it from the others of this host."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

from idemproxy.config.settings import StoreSettings
from idemproxy.store.base import Store
from idemproxy.store.base_host import host_clock


def open_store(settings: StoreSettings, *, only_looks: bool = False) -> Store:
    """The store of a URL; only its own library is imported, and nothing is connected to. Raises StoreError.

    Where zstandard is installed, long answers are kept compressed. `only_looks`: for who claims nothing, and only looks at it.
    """
    store = _opened(settings, only_looks=only_looks)
    if store.name == "memory" or find_spec("zstandard") is None:
        return store
    from idemproxy.store.compressed import CompressedStore  # noqa: PLC0415 - it needs what may not be installed

    return CompressedStore(store)


def _opened(settings: StoreSettings, *, only_looks: bool) -> Store:
    scheme, _, rest = settings.url.partition("://")
    match scheme:
        case "sqlite":
            from idemproxy.store.sqlite import SqliteStore  # noqa: PLC0415

            return SqliteStore(rest.removeprefix("/"), clock=host_clock())
        case "memory":
            from idemproxy.store.memory import MemoryStore  # noqa: PLC0415

            return MemoryStore(_now)
        case _:
            return _redis(settings, only_looks=only_looks)


def _redis(settings: StoreSettings, *, only_looks: bool) -> Store:
    from idemproxy.store.redis import RedisStore  # noqa: PLC0415
    from idemproxy.store.redis_durability import Durability  # noqa: PLC0415
    from idemproxy.store.redis_endpoint import TlsFiles  # noqa: PLC0415

    asked, tls = settings.durability, settings.tls
    return RedisStore(
        settings.url,
        prefix=settings.prefix,
        durability=Durability(asked.replicas, asked.aof, asked.timeout),
        tls=TlsFiles(tls.ca_file, tls.certificate_file, tls.key_file),
        accepts_loss=not settings.accepted_risks.isdisjoint({"eviction", "loss"}),  # what evicts records evicts witnesses
        only_looks=only_looks,
    )


def is_still_to_be_made(settings: StoreSettings) -> bool:
    """Whether starting this store would make a file, whose owner is whoever does."""
    scheme, _, rest = settings.url.partition("://")
    return scheme == "sqlite" and not Path(rest.removeprefix("/")).exists()


def store_name(settings: StoreSettings) -> str:
    """What tells a store from others of this host: its URL without credentials, in one spelling, and the prefix."""
    scheme, _, rest = settings.url.partition("://")
    match scheme:
        case "sqlite":
            place = str(Path(rest.removeprefix("/")).absolute())
        case "memory":
            place = ""
        case _:
            from idemproxy.store.redis_url import read_url  # noqa: PLC0415

            found = read_url(settings.url)
            place = f"{found.shown}/{found.database}"
    return f"{scheme}://{place}#{settings.prefix}"


def _now() -> int:
    """The wall clock in microseconds, for the store in memory."""
    return time.time_ns() // 1000
