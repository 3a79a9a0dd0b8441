"""A store that is away: nothing is sent that could not be written down first, what needs no store goes on, and it heals."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process.asking import Answer, ask, configuration, counted, eventually, page, problem
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy
from tests.servers import RedisServer, redis_server

UNAVAILABLE = problem(503, "store-unavailable", "no", "same_key")
READY = (200, "ok\n")


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that notes what arrives."""
    with upstream() as server:
        yield server


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A durable Redis, to be killed, paused and started again."""
    with redis_server(appendonly=True) as running:
        yield running


def ready(running: Program) -> tuple[int, str]:
    """What the readiness probe sees."""
    return page(f"{running.admin}/readyz")


def told(answer: Answer) -> tuple[int, str]:
    """Status of an answer, and what became of the operation."""
    return answer.status, answer.told


def passed(running: Program) -> list[tuple[int, str]]:
    """What a read and a write without a key come to."""
    return [told(ask(running.url, method="GET", body=b"")), told(ask(running.url))]


def test_a_redis_that_is_down_at_the_start(api: Upstream, server: RedisServer, key: str) -> None:
    """The proxy starts, says why it is not ready, sends no covered write, passes what needs no store, and heals by itself."""
    server.stop()
    with proxy("--upstream", api.url, "--store", server.url) as running:
        status, text = ready(running)
        alive = page(f"{running.admin}/livez")
        refused = ask(running.url, key)
        arrived = len(api.arrived)
        others = passed(running)
        down = counted(running.admin, "idemproxy_store_up")
        server.start()
        eventually(lambda: ready(running) == READY)
        up = counted(running.admin, "idemproxy_store_up")
        answer = ask(running.url, key)

    assert 503 == status
    assert f"[-] store: redis at 127.0.0.1:{server.port}: " in text
    assert READY == alive
    assert (UNAVAILABLE, "refused", "1") == (refused.problem, refused.told, refused.field("Retry-After"))
    assert 0 == arrived
    assert [(201, "nothing"), (201, "bypassed")] == others
    assert [0, 1] == [down, up]
    assert (201, "executed") == told(answer)
    assert 3 == len(api.arrived)


def test_a_redis_that_is_killed_midway(api: Upstream, server: RedisServer, key: str) -> None:
    """Replays and new writes alike are refused while it is away, reads pass, and afterwards both are as they would have been."""
    with proxy("--upstream", api.url, "--store", server.url) as running:
        first = ask(running.url, key)
        server.kill()
        refused = [ask(running.url, name) for name in (key, f"{key}-new")]
        arrived = len(api.arrived)
        others = passed(running)
        eventually(lambda: ready(running)[0] == 503)
        server.start()
        eventually(lambda: ready(running) == READY)
        again, new = ask(running.url, key), ask(running.url, f"{key}-new")

    assert [UNAVAILABLE] * 2 == [answer.problem for answer in refused]
    assert ["1", "1"] == [answer.field("Retry-After") for answer in refused]
    assert 1 == arrived
    assert [(201, "nothing"), (201, "bypassed")] == others
    assert [(201, "replayed"), (201, "executed")] == [told(again), told(new)]
    assert first.body == again.body
    assert 4 == len(api.arrived)


def test_a_redis_that_hangs(api: Upstream, server: RedisServer, key: str) -> None:
    """A server that keeps its connections and answers nothing is away too, and the refusal does not wait for it for ever."""
    with proxy("--upstream", api.url, "--store", server.url) as running:
        first = ask(running.url, key)
        server.pause()
        refused = ask(running.url, key)
        others = passed(running)
        eventually(lambda: ready(running)[0] == 503)
        server.resume()
        eventually(lambda: ready(running) == READY)
        again = ask(running.url, key)

    assert (UNAVAILABLE, "1") == (refused.problem, refused.field("Retry-After"))
    assert [(201, "nothing"), (201, "bypassed")] == others
    assert ((201, "replayed"), first.body) == (told(again), again.body)
    assert 3 == len(api.arrived)


def answered_without_store(running: Program, api: Upstream, server: RedisServer, key: str) -> Answer:
    """The answer to a request whose store is killed while the upstream works on it."""
    api.hold()
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, running.url, key)
        eventually(lambda: len(api.arrived) == 1)
        server.kill()
        api.let_go()
        return under_way.result()


def test_an_answer_that_cannot_be_recorded_yet(api: Upstream, server: RedisServer, key: str) -> None:
    """When the store goes while the upstream works, the caller gets the real answer, marked, and the store when it is back."""
    with proxy("--upstream", api.url, "--store", server.url) as running:
        first = answered_without_store(running, api, server, key)
        unrecorded = counted(running.admin, "idemproxy_unrecorded_total")
        away = ask(running.url, key)
        server.start()
        eventually(lambda: ask(running.url, key, wait=0).told == "replayed")
        again = ask(running.url, key)

    assert (201, b'{"id": "op_1"}') == (first.status, first.body)
    marks = (first.field("Idempotency-Status") or "").split("; ")
    assert ["executed", "unrecorded"] == [marks[0], marks[-1]]
    assert 1 == unrecorded
    assert UNAVAILABLE == away.problem
    assert ((201, "replayed"), first.body) == (told(again), again.body)
    assert 1 == len(api.arrived)


def test_an_unrecorded_answer_outlives_the_proxy(api: Upstream, server: RedisServer, key: str, tmp_path: Path) -> None:
    """After kill -9 of the store and then of the proxy, its heir records the answer that the caller was given."""
    run = ("--upstream", api.url, "--store", server.url, "--spool", str(tmp_path / "spool"))
    with proxy(*run) as running:
        first = answered_without_store(running, api, server, key)
        running.kill()
    with proxy(*run) as running:
        server.start()
        eventually(lambda: ask(running.url, key, wait=0).told == "replayed")
        again = ask(running.url, key)

    assert ((201, "executed"), first.body) == (told(first), again.body)
    assert 1 == len(api.arrived)


def test_an_answer_that_was_lost_with_the_proxy(api: Upstream, server: RedisServer, key: str, tmp_path: Path) -> None:
    """Without the spool nobody knows of the answer: the key is in flight, then unknown, and is never sent again."""
    settings = {"upstreams": {"api": {"url": api.url}}, "defaults": {"lease": "3s"}, "store": {"url": server.url}}
    run = configuration(tmp_path, settings)
    with proxy(*run) as running:
        first = answered_without_store(running, api, server, key)
        running.kill()
    server.start()
    with proxy(*run) as running:
        later = ask(running.url, key, wait=30)

    assert (201, "executed") == told(first)
    assert problem(409, "outcome-unknown", "unknown", "after_check") == later.problem
    assert 1 == len(api.arrived)


def test_a_claim_whose_reply_was_lost_is_given_back(api: Upstream, server: RedisServer, key: str) -> None:
    """A claim that a hanging store carries out after the refusal does not keep its key: nothing was sent, and a retry is."""
    with proxy("--upstream", api.url, "--store", server.url) as running:
        ask(running.url, f"{key}-before")  # connects
        server.pause()
        refused = ask(running.url, key)
        server.resume()  # which takes the claim out of its socket, and grants it
        eventually(lambda: ask(running.url, key, wait=0).told == "executed")
        again = ask(running.url, key)

    assert UNAVAILABLE == refused.problem
    assert (201, "replayed") == told(again)
    assert 2 == len(api.arrived)
