"""The proxy that these tests share: one process, one SQLite file, and routes by host to one scripted upstream."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes import Program, proxy, scratch
from tests.servers import free_port
from tests.wire.upstream import Upstream, nothing

CONFIGURATION = """
upstreams:
  patient: {{url: "http://127.0.0.1:{port}"}}
  impatient: {{url: "http://127.0.0.1:{port}", timeouts: {{connect: 300ms, first_byte: 300ms, idle: 300ms, total: 3s}}}}
  absent: {{url: "http://127.0.0.1:{absent}", timeouts: {{connect: 500ms}}}}
  nameless: {{url: "http://no-such-host.invalid"}}
store: {{url: "sqlite:///{file}"}}
access_log: false
routes:
- {{name: impatient, match: {{host: impatient}}, upstream: impatient}}
- {{name: absent, match: {{host: absent}}, upstream: absent}}
- {{name: nameless, match: {{host: nameless}}, upstream: nameless}}
- {{name: small, match: {{host: small}}, upstream: patient, max_request_body: 1KiB, max_stored_body: 1KiB}}
- {{name: same, match: {{host: same}}, upstream: patient, forward_key: same}}
- {{name: renamed, match: {{host: renamed}}, upstream: patient, forward_key: "rename:X-Operation"}}
- {{name: required, match: {{host: required}}, upstream: patient, key: required}}
- {{name: brief, match: {{host: brief}}, upstream: patient, lease: 3s}}
- {{name: rest, upstream: patient}}
"""
"""Which route a test takes is what it says as Host."""


class Records:
    """The records of a SQLite file, as another process sees them."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def phase(self, key: str) -> str | None:
        """The phase of the record of a key; None when there is none."""
        with closing(sqlite3.connect(self.file)) as connection:
            row = connection.execute(
                "SELECT phase FROM record WHERE key_hash = ?", [hashlib.sha256(key.encode()).hexdigest()]
            ).fetchone()
        return None if row is None else str(row[0])

    def lock(self) -> sqlite3.Connection:
        """Let nobody else write, until `rollback` or `close`; may be called from any thread."""
        connection = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False, timeout=5)
        connection.execute("BEGIN IMMEDIATE")
        return connection


@pytest.fixture(scope="session")
def scripted() -> Iterator[Upstream]:
    """The upstream of the shared proxy."""
    upstream = Upstream()
    yield upstream
    upstream.close()


@pytest.fixture
def upstream(scripted: Upstream) -> Iterator[Upstream]:
    """The upstream of the shared proxy, with no connection and nothing recorded yet."""
    scripted.plays(nothing)
    yield scripted
    scripted.hang_up()


@pytest.fixture(scope="session")
def absent_port() -> int:
    """A port on which nobody listens, unless a test does; upstream `absent`."""
    return free_port()


@pytest.fixture(scope="session")
def directory() -> Iterator[Path]:
    """Where the shared proxy keeps its file."""
    with scratch() as path:
        yield path


@pytest.fixture(scope="session")
def records(directory: Path) -> Records:
    """What the shared proxy has stored."""
    return Records(directory / "records.db")


@pytest.fixture(scope="session")
def shared_proxy(directory: Path, scripted: Upstream, absent_port: int, records: Records) -> Iterator[Program]:
    """A proxy for all tests that do not look at the process."""
    file = directory / "idemproxy.yaml"
    file.write_text(CONFIGURATION.format(port=scripted.port, absent=absent_port, file=records.file))
    # A resolver that cannot be reached is as good as one that knows no such name, but tells it later.
    with proxy("--config", str(file), environment={"RES_OPTIONS": "timeout:1 attempts:1"}) as program:
        yield program
    assert [] == [line for line in program.told if not line.startswith("INFO")], "whatever was done to it, it had no complaint"


@pytest.fixture(scope="session")
def port(shared_proxy: Program) -> int:
    """Where the shared proxy listens."""
    return shared_proxy.port
