"""What befalls a Redis server that stays reachable is told in answer, log and metrics, sends nothing, and heals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from tests.process.asking import Answer, ask, configuration, counted, eventually, page, problem
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy
from tests.servers import RedisServer, free_port, redis_server

LOST = problem(503, "records-lost", "unknown", "after_check")
UNAVAILABLE = problem(503, "store-unavailable", "no", "same_key")
READY = (200, "ok\n")
MANY = 120


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that notes what arrives."""
    with upstream() as server:
        yield server


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server for one test."""
    with redis_server() as running:
        yield running


@pytest.fixture
def running(api: Upstream, server: RedisServer) -> Iterator[Program]:
    """A proxy between them."""
    with proxy("--upstream", api.url, "--store", server.url) as program:
        yield program


@pytest.fixture
def operator(server: RedisServer) -> Iterator[Redis]:
    """Whoever does it to the server, on a connection of their own."""
    with Redis(port=server.port, protocol=2) as client:
        client.ping()
        yield client


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to the server, how it is undone, and what the log says of it; `replays`: records can still be read."""

    cause: Callable[[Redis], object]
    cure: Callable[[Redis], object]
    code: str
    advice: str
    replays: bool


def _change_password(client: Redis) -> None:
    client.config_set("requirepass", "another")
    client.client_kill_filter(_type="normal", skipme=True)


FAULTS = [
    pytest.param(
        Fault(
            _change_password,
            lambda client: client.config_set("requirepass", ""),
            "NOAUTH",
            "the server asks for a password: put it into store.url",
            replays=False,
        ),
        id="a wrong password",
    ),
    pytest.param(
        Fault(
            lambda client: client.config_set("maxmemory", "1"),
            lambda client: client.config_set("maxmemory", "0"),
            "OOM",
            "the server's memory is full: raise maxmemory",
            replays=True,
        ),
        id="a full memory",
    ),
    pytest.param(
        Fault(
            lambda client: client.replicaof("127.0.0.1", free_port()),
            lambda client: client.replicaof("NO", "ONE"),
            "READONLY",
            "the server is a replica: let store.url name the primary",
            replays=True,
        ),
        id="a replica",
    ),
]


def told(answer: Answer) -> tuple[int, str]:
    """Status of an answer, and what became of the operation."""
    return answer.status, answer.told


def failed_claims(running: Program) -> float:
    """How many claims the store has not confirmed."""
    return counted(running.admin, "idemproxy_store_operations_total", operation="claim", result="error")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_refuses(api: Upstream, running: Program, operator: Redis, key: str, fault: Fault) -> None:
    """A new operation gets store-unavailable and is not sent; readiness, log and metrics say why; later it is carried out."""
    first = ask(running.url, key)
    fault.cause(operator)
    refused, again = ask(running.url, f"{key}-new"), ask(running.url, key)
    arrived = len(api.arrived)
    failed, up = failed_claims(running), counted(running.admin, "idemproxy_store_up")
    status, why = page(f"{running.admin}/readyz")
    fault.cure(operator)
    eventually(lambda: page(f"{running.admin}/readyz") == READY)
    later, known = ask(running.url, f"{key}-new"), ask(running.url, key)

    assert (UNAVAILABLE, "refused", "1") == (refused.problem, refused.told, refused.field("Retry-After"))
    assert ((201, "replayed") if fault.replays else (503, "refused")) == told(again)
    assert 1 == arrived
    assert ((1, 1) if fault.replays else (2, 0)) == (failed, up)
    assert (503, True) == (status, fault.code in why and fault.advice in why)
    assert any(f"{fault.code} " in line and fault.advice in line for line in running.told)
    assert [(201, "executed"), (201, "replayed")] == [told(later), told(known)]
    assert (2, first.body) == (len(api.arrived), known.body)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda client: client.client_kill_filter(_type="normal", skipme=True), id="CLIENT KILL"),
        pytest.param(lambda client: client.script_flush(), id="SCRIPT FLUSH"),
    ],
)
def test_what_heals_before_anyone_notices(
    api: Upstream, running: Program, operator: Redis, key: str, harm: Callable[[Redis], object]
) -> None:
    """Connections that the server closes, and scripts that it forgets, under load: every operation is carried out, once."""
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, running.url, f"{key}-{number}") for number in range(MANY)]
        for part in range(1, 4):
            eventually(lambda part=part: len(api.arrived) >= part * MANY // 4)  # type: ignore[misc]  # bound at once
            harm(operator)
        answers = [each.result() for each in asked]

    assert [(201, "executed")] * MANY == [told(answer) for answer in answers]
    assert MANY == len(api.arrived)
    assert 0 == failed_claims(running)


def test_a_flushed_record_in_flight_is_written_anew(api: Upstream, running: Program, operator: Redis, key: str) -> None:
    """FLUSHALL while the upstream works: the answer is recorded all the same, since its effect is a fact, and that is counted."""
    ask(running.url, f"{key}-before")
    api.hold()
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, running.url, key)
        eventually(lambda: len(api.arrived) == 2)
        operator.flushall()
        api.let_go()
        first = under_way.result()
    again = ask(running.url, key)
    rewritten = counted(running.admin, "idemproxy_settlements_total", operation="complete", result="rewritten")

    assert [(201, "executed"), (201, "replayed")] == [told(first), told(again)]
    assert first.body == again.body
    assert (1, 2) == (rewritten, len(api.arrived))


def lost_lines(running: Program) -> list[str]:
    """What the log says of a loss, with its level."""
    return [line.partition(" (")[0] for line in running.told if "has lost records" in line]


def test_after_a_flush_nothing_is_sent(api: Upstream, running: Program, server: RedisServer, operator: Redis, key: str) -> None:
    """After FLUSHALL what was completed, or is new, is refused; log (once), metrics and readiness tell it; a restart ends it."""
    first = ask(running.url, key)
    operator.flushall()
    refused = [ask(running.url, key), ask(running.url, f"{key}-new"), ask(running.url, key)]
    arrived, failed = len(api.arrived), failed_claims(running)
    eventually(lambda: counted(running.admin, "idemproxy_store_findings", result="error") == 1)
    status, why = page(f"{running.admin}/readyz")
    with proxy("--upstream", api.url, "--store", server.url) as later:
        ready = page(f"{later.admin}/readyz")
        executed = ask(later.url, key)
        still = ask(running.url, f"{key}-new")
        known = ask(running.url, key)

    assert [LOST] * 3 == [answer.problem for answer in refused]
    assert [True] * 3 == [b"nobody knows whether this operation has already happened" in answer.body for answer in refused]
    assert (1, 3) == (arrived, failed)
    assert (503, True) == (status, "the store has lost records since this proxy started" in why)
    assert ["ERROR store: records: the store has lost records since this proxy started"] == lost_lines(running)
    assert (READY, (201, "executed"), False) == (ready, told(executed), first.body == executed.body)
    assert [(503, "unknown"), (201, "replayed")] == [told(still), told(known)]
    assert 2 == len(api.arrived)


def test_a_server_that_comes_back_empty(api: Upstream, server: RedisServer, running: Program, key: str) -> None:
    """A Redis is restarted without persistence: what was completed is not sent again, what waits in the spool is written."""
    ask(running.url, f"{key}-before")
    api.hold()
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, running.url, key)
        eventually(lambda: len(api.arrived) == 2)
        server.kill()
        api.let_go()
        first = under_way.result()
    server.start()
    eventually(lambda: counted(running.admin, "idemproxy_spool_entries") == 0)
    again, before = ask(running.url, key), ask(running.url, f"{key}-before")

    assert [(201, "replayed"), (503, "unknown")] == [told(again), told(before)]
    assert (True, 2) == (first.body == again.body, len(api.arrived))


def test_an_accepted_loss_goes_on(api: Upstream, server: RedisServer, operator: Redis, key: str, tmp_path: Path) -> None:
    """With `accept_risk: [loss]` a flushed store is begun anew, with an error in the log, and the retry is carried out."""
    store = {"url": server.url, "accept_risk": ["loss"]}
    run = configuration(tmp_path, {"upstreams": {"api": {"url": api.url}}, "store": store})
    with proxy(*run) as running:
        ask(running.url, key)
        operator.flushall()
        again, ready = ask(running.url, key), page(f"{running.admin}/readyz")
        said = [line.split()[0] for line in running.told if "has lost records" in line]

    assert ((201, "executed"), READY, 2, ["ERROR"]) == (told(again), ready, len(api.arrived), said)
