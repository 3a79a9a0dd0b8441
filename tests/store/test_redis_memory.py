"""What a record costs the server in memory: that it is kept in the server's compact form, as the documented figures suppose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemproxy.core.fingerprint import FingerprintRule, fingerprint
from idemproxy.core.key import hash_secretly
from idemproxy.core.message import Request
from idemproxy.core.record import Identity
from idemproxy.core.transition import Granted
from idemproxy.proxy.orphans import Owner
from tests.servers import RedisServer, redis_server
from tests.store.redis_harness import keys
from tests.store.redis_steps import opened, plain
from tests.store.steps import ask, completion


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server with the usual settings."""
    with redis_server() as running:
        yield running


async def test_a_record_is_kept_compact(server: RedisServer) -> None:
    """With all that a proxy writes into it no field is longer than 64 bytes: from there on the server needs twice the memory."""
    request = Request("POST", b"/charges", ((b"Content-Type", b"application/json"),), b'{"amount": 4200}')
    wish = ask(fingerprint(request, FingerprintRule(), max_decoded=0), owner=Owner("0123456789abcdef").draw())
    of = Identity("shared", "payments", hash_secretly(b"order-17", None))

    async with opened(server.url) as store, plain(server.url) as client:
        record, _ = keys("test:", of)
        result = await store.claim(of, wish)
        in_flight = await client.memory_usage(record) or 0
        assert isinstance(result, Granted)
        await store.complete(of, result.hold, completion())
        encoding, completed = await client.object("encoding", record), await client.memory_usage(record) or 0

    assert encoding in {b"listpack", b"ziplist"}  # the same before Redis 7
    assert 0 < in_flight < 512
    assert 0 < completed < 576
