"""The proxy that these tests share: one process, one SQLite file, and routes by host to one scripted upstream.

Every test here runs in each of the combinations that `--wire` names. A fixture that outlives a test, and on which it depends
whether a side speaks TLS, asks for `combination`, so that it is made anew for the next one.
"""

from __future__ import annotations

import hashlib
import sqlite3
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.processes import Program, scratch
from tests.servers import free_port
from tests.wire.combination import ABOUT_MESSAGES, ALL, USUAL, Combination, new_event_loop, using, wired
from tests.wire.upstream import Upstream, nothing

CONFIGURATION = """
upstreams:
  patient: {{url: "{upstream}"}}
  impatient: {{url: "{upstream}", timeouts: {{connect: 300ms, first_byte: 300ms, idle: 300ms, total: 3s}}}}
  absent: {{url: "{absent}", timeouts: {{connect: 500ms}}}}
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
- {{name: derived, match: {{host: derived}}, upstream: patient, key: derive, forward_key: same}}
- {{name: derived-too, match: {{host: derived-too}}, upstream: patient, key: derive}}
- {{name: rest, upstream: patient}}
"""
"""Which route a test takes is what it says as Host."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test in each of the combinations that were asked for."""
    module = metafunc.module.__name__.rpartition(".")[2]
    names = metafunc.config.getoption("wire") or (USUAL[:1] if module in ABOUT_MESSAGES else USUAL)
    metafunc.parametrize("combination", [ALL[name] for name in names], ids=str, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """While a test runs, with the fixtures that it is the first to ask for, its combination is in use."""
    if not isinstance(item, pytest.Function) or "combination" not in item.fixturenames:
        return (yield)
    chosen = item.callspec.params["combination"]
    assert isinstance(chosen, Combination)
    with using(chosen):
        return (yield)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    """Where a test is a coroutine, it runs on the event loop of its combination too."""
    return {"of the combination": new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def combination(request: pytest.FixtureRequest) -> Combination:
    """The one in use."""
    found: Combination = request.param
    return found


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
def scripted(combination: Combination) -> Iterator[Upstream]:
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
def directory(combination: Combination) -> Iterator[Path]:
    """Where the shared proxy keeps its file."""
    with scratch() as path:
        yield path


@pytest.fixture(scope="session")
def records(directory: Path) -> Records:
    """What the shared proxy has stored."""
    return Records(directory / "records.db")


@pytest.fixture(scope="session")
def shared_proxy(combination: Combination, scripted: Upstream, absent_port: int, records: Records) -> Iterator[Program]:
    """A proxy for all tests that do not look at the process."""
    settings = CONFIGURATION.format(
        upstream=scripted.url, absent=f"{combination.scheme}://127.0.0.1:{absent_port}", file=records.file
    )
    # A resolver that cannot be reached is as good as one that knows no such name, but tells it later.
    with wired(yaml.safe_load(settings), environment={"RES_OPTIONS": "timeout:1 attempts:1"}) as program:
        yield program
    said = "".join(complaints(program))
    assert "" == said, f"whatever was done to it, it had no complaint:\n{said}"


def complaints(program: Program) -> list[str]:
    """What a proxy has told that is no plain news; but not that the tests have its store open, too."""
    return [line for line in program.told if not line.startswith("INFO") and "this one included" not in line]


@pytest.fixture(scope="session")
def port(shared_proxy: Program) -> int:
    """Where the shared proxy listens."""
    return shared_proxy.port
