"""The map of a cluster whose nodes do not tell, or do not know, where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from idemproxy.core.transition import Found
from idemproxy.store.redis_form import Keys
from tests.servers import free_port, redis_server
from tests.store.redis_steps import COMPLETION, granted, identity, opened, recovered
from tests.store.steps import ask
from tests.topologies import Cluster, client, migrating

KEYS = 24
"""So many that each node of the cluster has some."""


@pytest.fixture(params=["unknown-endpoint", "hostname"])
def hidden(request: pytest.FixtureRequest, nodes: Cluster) -> Iterator[Cluster]:
    """The shared cluster, whose nodes for the moment tell null as their host, or "?", since they have no name."""
    _prefer(nodes, request.param)
    yield nodes
    _prefer(nodes, "ip")


def _prefer(nodes: Cluster, endpoint: str) -> None:
    for server in nodes.servers:
        with client(server.port) as node:
            node.config_set("cluster-preferred-endpoint-type", endpoint)


async def test_nodes_that_do_not_tell_their_host(hidden: Cluster, request: pytest.FixtureRequest) -> None:
    """Null means the host that was asked, and "?" the address beside it: every key is claimed on its own node."""
    with client(hidden.servers[0].port) as node:
        told = node.execute_command("CLUSTER", "SLOTS")
    async with opened(hidden.url, prefix=f"hidden-{request.node.name}:") as store:
        holds = await asyncio.gather(*(granted(store, number) for number in range(KEYS)))

    assert KEYS == len(holds)
    assert {None} | {b"?"} >= {entry[2][0] for entry in told}


async def test_a_node_that_does_not_know_its_host() -> None:
    """A cluster of one node has never met another and tells "" as its host: the one that was asked."""
    with redis_server(cluster_enabled="yes", cluster_port=str(free_port())) as server:
        with client(server.port) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            told = node.execute_command("CLUSTER", "SLOTS")
        async with opened(f"redis+cluster://127.0.0.1:{server.port}") as store:
            await recovered(store.check)  # it takes writes two seconds after its start
            hold = await granted(store)

    assert (b"", "owner") == (told[0][2][0], hold.owner)


async def test_a_slot_that_moves_to_a_node_that_does_not_tell_its_host(hidden: Cluster, request: pytest.FixtureRequest) -> None:
    """A redirection to "?" or to no host leads to the node of the map that has its port: what has moved is found there."""
    keys = Keys(f"moving-{request.node.name}:")
    record, answer = keys.of(identity())
    witness = keys.witness(keys.bucket(identity()))
    async with opened(hidden.url, prefix=f"moving-{request.node.name}:") as store:
        await store.complete(identity(), await granted(store), COMPLETION)
        with migrating(hidden, witness) as (source, target):
            port = target.connection_pool.connection_kwargs["port"]
            source.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 2000, "KEYS", witness, record, answer)  # type: ignore[no-untyped-call]  # redis-py leaves it bare
            found = await store.claim(identity(), ask())

    assert isinstance(found, Found)
    assert COMPLETION.answer == found.record.answer
