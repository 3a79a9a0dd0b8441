"""What tests with real programs share: a store of each kind, and keys that nobody has used."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator

import pytest

from tests.servers import redis_server
from tests.wire.combination import ALL


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the wire tests run over other sockets and event loops than usual."""
    parser.addoption(
        "--wire", action="append", choices=sorted(ALL), help="for tests/wire: clients, upstreams, event loop; may be repeated"
    )


def pytest_configure() -> None:
    """Keep what is sent to loopback on this machine: several clients honour a forward proxy that the environment names."""
    os.environ |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    # Where this runs in the background of a shell, SIGINT is ignored, and the programs that are started here would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of the module's own, of each kind in turn, as `--store` takes it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store')}/records.db"
    else:
        with redis_server() as server:
            yield server.url


@pytest.fixture
def key() -> str:
    """A key of the test's own."""
    return f"order-{uuid.uuid4()}"
