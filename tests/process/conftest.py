"""What the tests of held and killed proxies share: a store of each kind at which a proxy can be held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.gate import gate
from tests.process.points import Place, RedisPlace, SqlitePlace
from tests.servers import redis_server


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A store of the module's own, of each kind in turn."""
    if request.param == "sqlite":
        yield SqlitePlace(tmp_path_factory.mktemp("store") / "records.db")
    else:
        with redis_server() as server, gate(server.port) as between:
            yield RedisPlace(server.port, between)
