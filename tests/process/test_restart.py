"""Ends of a process: what was answered is answered again, what was sent is not sent again, and an orderly end finishes first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGTERM
from typing import Final

import pytest

from tests.process.asking import Caller, ask, configuration, eventually, page, problem, request_bytes
from tests.process.upstream import Upstream, upstream
from tests.processes import DemoApi, demo_api, proxy
from tests.servers import redis_server

LEASE: Final = "6s"
"""Long enough that some of it is left when the next request comes, on a busy machine too; a test waits for its end."""


@pytest.fixture(scope="module")
def ledger() -> Iterator[DemoApi]:
    """The sample upstream, which keeps a ledger."""
    with demo_api() as running:
        yield running


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that answers when it may."""
    with upstream() as server:
        yield server


def test_an_answer_outlives_the_proxy(ledger: DemoApi, store_url: str, key: str) -> None:
    """After kill -9 and a restart the same answer comes from the store, and the upstream is not asked."""
    charges = ledger.charges()
    with proxy("--upstream", ledger.url, "--store", store_url) as running:
        first = ask(running.url, key)
        running.kill()
    with proxy("--upstream", ledger.url, "--store", store_url) as running:
        second = ask(running.url, key)

    assert (201, "executed") == (first.status, first.told)
    assert (201, "replayed", first.body) == (second.status, second.told, second.body)
    assert first.field("Location") == second.field("Location")
    assert charges + 1 == ledger.charges()


def test_an_answer_outlives_redis(ledger: DemoApi, key: str) -> None:
    """After kill -9 of a durable Redis, and of the proxy, the same answer comes from the store."""
    charges = ledger.charges()
    with redis_server(appendonly=True) as server:
        with proxy("--upstream", ledger.url, "--store", server.url) as running:
            first = ask(running.url, key)
            server.kill()
            running.kill()
        server.start()
        with proxy("--upstream", ledger.url, "--store", server.url) as running:
            second = ask(running.url, key)

    assert (201, "executed") == (first.status, first.told)
    assert (201, "replayed", first.body) == (second.status, second.told, second.body)
    assert charges + 1 == ledger.charges()


def test_what_was_under_way_is_never_sent_again(ledger: DemoApi, store_url: str, key: str, tmp_path: Path) -> None:
    """After kill -9 while the upstream works, the key is in flight until the lease ends, then unknown; there is one effect.

    This is what every proxy sees that is not the heir of the killed one: one beside it, or after the loss of the spool.
    """
    settings = {"upstreams": {"api": {"url": ledger.url}}, "defaults": {"lease": LEASE}}
    run = (*configuration(tmp_path, settings), "--store", store_url)
    charges = ledger.charges()
    ledger.fault("delay_after=30")
    with proxy(*run) as killed, proxy(*run) as beside, ThreadPoolExecutor(1) as pool:
        lost = pool.submit(ask, killed.url, key)
        eventually(lambda: ledger.charges() == charges + 1)
        killed.kill()
        soon = ask(beside.url, key, wait=0)
        later = ask(beside.url, key, wait=30)  # which ends with the lease, and not with the patience
        again = ask(beside.url, key)
        other = ask(beside.url, key, body=b'{"amount": 1}')

        assert isinstance(lost.exception(), ConnectionError)
    assert problem(409, "in-progress", "in_progress", "same_key") == soon.problem
    assert [problem(409, "outcome-unknown", "unknown", "after_check")] * 2 == [later.problem, again.problem]
    assert ["in-progress", "unknown", "unknown"] == [soon.told, later.told, again.told]
    assert problem(422, "key-reused", "no", "new_key") == other.problem
    assert charges + 1 == ledger.charges()


def test_an_heir_knows_that_its_predecessor_is_dead(ledger: DemoApi, store_url: str, key: str, tmp_path: Path) -> None:
    """Who takes over the spool of a killed proxy need not wait for its leases: what was under way is unknown at once."""
    settings = {"upstreams": {"api": {"url": ledger.url}}, "defaults": {"lease": "1h"}}
    run = (*configuration(tmp_path, settings), "--store", store_url, "--spool", str(tmp_path / "spool"))
    charges = ledger.charges()
    ledger.fault("delay_after=30")
    with ThreadPoolExecutor(1) as pool:
        with proxy(*run) as running:
            lost = pool.submit(ask, running.url, key)
            eventually(lambda: ledger.charges() == charges + 1)
            running.kill()
        with proxy(*run) as running:
            eventually(lambda: ask(running.url, key, wait=0).told == "unknown")
            again = ask(running.url, key)

        assert isinstance(lost.exception(), ConnectionError)
    assert problem(409, "outcome-unknown", "unknown", "after_check") == again.problem
    assert charges + 1 == ledger.charges()


def test_a_stop_lets_the_attempt_end(api: Upstream, store_url: str, key: str) -> None:
    """After SIGTERM the proxy is not ready and takes nothing new; the client gets its answer, it is stored, and the exit is 0."""
    run = ("--upstream", api.url, "--store", store_url)
    with ThreadPoolExecutor(1) as pool:
        with proxy(*run) as running, Caller(running.url) as caller:
            caller.exchange(request_bytes(method="GET", body=b""), "GET")
            api.hold()
            under_way = pool.submit(ask, running.url, key)
            eventually(lambda: len(api.arrived) == 2)
            running.send(SIGTERM)
            eventually(lambda: any("draining" in line for line in running.told))
            ready = page(f"{running.admin}/readyz")
            with pytest.raises(ConnectionRefusedError):
                ask(running.url, f"{key}-new")
            refused = caller.exchange(request_bytes(f"{key}-new"))
            api.let_go()
            first = under_way.result()
            status = running.process.wait(20)
        with proxy(*run) as running:
            second = ask(running.url, key)

    assert (503, "[-] shutdown: draining\nnot ready\n") == ready
    assert problem(503, "draining", "no", "same_key") == refused.problem
    assert (201, "executed") == (first.status, first.told)
    assert 0 == status
    assert (201, "replayed", first.body) == (second.status, second.told, second.body)
    assert ["GET", "POST"] == [arrival.method for arrival in api.arrived]
