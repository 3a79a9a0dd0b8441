"""The admin listener's pages, asked over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, Request
from prometheus_client.parser import text_string_to_metric_families
from pytest_aiohttp.plugin import AiohttpClient

from idemproxy.admin.app import admin_app
from idemproxy.admin.health import Check, Health
from idemproxy.admin.sight import Alone
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.observation import Observation, Outcome

Ask = Callable[[str], Awaitable[tuple[int, str]]]


@dataclass
class Probed:
    """A check that fails for `reason`, if it has one, and counts how often it was run."""

    reason: str | None = None
    runs: int = 0

    async def check(self) -> None:
        """Count, and raise or return."""
        self.runs += 1
        if self.reason is not None:
            raise ConnectionError(self.reason)


@dataclass
class Bench:
    """What the listener is asked about, under a clock that stands still until it is moved."""

    store: Probed = field(default_factory=Probed)
    spool: Probed = field(default_factory=Probed)
    metrics: Metrics = field(default_factory=lambda: Metrics(["charges"], "memory"))
    now: float = 1000.0
    health: Health = field(init=False)

    def __post_init__(self) -> None:
        self.health = Health({"store": self.store.check, "spool": self.spool.check}, clock=lambda: self.now)
        self.health.started = True


@pytest.fixture(name="bench")
def fixture_bench() -> Bench:
    """A started proxy whose checks pass."""
    return Bench()


@pytest.fixture(name="client")
async def fixture_client(bench: Bench, aiohttp_client: AiohttpClient) -> TestClient[Request, Application]:
    """A client of the bench's listener."""
    return await aiohttp_client(admin_app(Alone(bench.metrics, bench.health)))


@pytest.fixture(name="ask")
def fixture_ask(client: TestClient[Request, Application]) -> Ask:
    """Status and text of a page."""

    async def ask(path: str) -> tuple[int, str]:
        async with client.get(path) as response:
            return response.status, await response.text()

    return ask


async def test_ready_says_ok(bench: Bench, ask: Ask) -> None:
    """A started proxy whose checks pass is ready, and lists its checks when asked to."""
    assert (200, "ok\n") == await ask("/readyz")
    assert (200, "[+] startup ok\n[+] shutdown ok\n[+] store ok\n[+] spool ok\nok\n") == await ask("/readyz?verbose")


async def test_failed_check_is_named_with_its_reason(bench: Bench, ask: Ask) -> None:
    """Not ready says why in one line for each check that failed, and verbosely shows the others as well."""
    bench.store.reason = "redis at 127.0.0.1:6379:\n  connection refused"

    assert (503, "[-] store: redis at 127.0.0.1:6379: connection refused\nnot ready\n") == await ask("/readyz")
    assert (
        503,
        "[+] startup ok\n[+] shutdown ok\n[-] store: redis at 127.0.0.1:6379: connection refused\n[+] spool ok\nnot ready\n",
    ) == await ask("/readyz?verbose")


async def test_reason_without_words_is_the_name_of_the_error(bench: Bench, ask: Ask) -> None:
    """An error without a message is still a reason."""
    bench.spool.reason = ""

    assert (503, "[-] spool: ConnectionError\nnot ready\n") == await ask("/readyz")


async def test_before_the_start_only_living_is_said(bench: Bench, ask: Ask) -> None:
    """Until it has started, the proxy lives, but has neither started nor is ready."""
    bench.health.started = False

    assert (200, "ok\n") == await ask("/livez")
    assert (503, "not started yet\n") == await ask("/startupz")
    assert (503, "[-] startup: not started yet\nnot ready\n") == await ask("/readyz")

    bench.health.started = True

    assert (200, "ok\n") == await ask("/startupz")
    assert (200, "ok\n") == await ask("/readyz")


async def test_draining_takes_readiness_at_once_and_nothing_else(bench: Bench, ask: Ask) -> None:
    """A proxy that drains is not ready from that moment on, whatever was found before; it lives and has started."""
    assert (200, "ok\n") == await ask("/readyz")

    bench.health.draining = True

    assert (503, "[-] shutdown: draining\nnot ready\n") == await ask("/readyz")
    assert (200, "ok\n") == await ask("/livez")
    assert (200, "ok\n") == await ask("/startupz")


async def test_failed_store_leaves_the_proxy_alive(bench: Bench, ask: Ask) -> None:
    """Liveness and startup do not look at the store: restarting the proxy would not mend it."""
    bench.store.reason = "down"

    assert (200, "ok\n") == await ask("/livez")
    assert (200, "ok\n") == await ask("/startupz")
    assert 0 == bench.store.runs


async def test_findings_stand_for_one_second(bench: Bench, ask: Ask) -> None:
    """Probes within a second do not ask the store again; the first one after it does, and sees both failure and recovery."""
    assert (200, "ok\n") == await ask("/readyz")
    bench.store.reason = "down"
    bench.now += 0.999
    assert (200, "ok\n") == await ask("/readyz")
    assert 1 == bench.store.runs

    bench.now += 0.001
    assert (503, "[-] store: down\nnot ready\n") == await ask("/readyz")
    bench.store.reason = None
    bench.now += 1.0
    assert (200, "ok\n") == await ask("/readyz")
    assert 3 == bench.store.runs


async def test_metrics_page_shows_what_was_observed(bench: Bench, client: TestClient[Request, Application]) -> None:
    """Prometheus' parser finds the observed request on /metrics, which says which format it has."""
    bench.metrics.observe(Observation("charges", "POST", "/", 201, Outcome.EXECUTED, 0.1, 1, 1))

    async with client.get("/metrics") as response:
        families = text_string_to_metric_families(await response.text())
        content_type = response.headers["Content-Type"]

    requests = [sample for family in families for sample in family.samples if sample.name == "idemproxy_requests_total"]
    assert [({"route": "charges", "outcome": "executed"}, 1.0)] == [(each.labels, each.value) for each in requests if each.value]
    assert "text/plain; version=0.0.4; charset=utf-8" == content_type


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/startupz", "/nothing"])
async def test_no_page_may_be_cached(client: TestClient[Request, Application], path: str) -> None:
    """Every answer forbids caches to keep it: yesterday's health is no health."""
    async with client.get(path) as response:
        assert "no-store" == response.headers["Cache-Control"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
async def test_health_is_plain_text(client: TestClient[Request, Application], path: str) -> None:
    """The health pages are text, for HEAD as for GET."""
    async with client.head(path) as head, client.get(path) as response:
        assert (200, "text/plain; charset=utf-8") == (head.status, head.headers["Content-Type"])
        assert (200, "text/plain; charset=utf-8") == (response.status, response.headers["Content-Type"])


async def test_unknown_path_is_a_problem_document(client: TestClient[Request, Application]) -> None:
    """A path without a page gets a problem document that names the pages, echoes nothing, and differs in `instance` alone."""
    async with client.get("/metricz?token=abc") as first, client.get("/") as second:
        statuses = [first.status, second.status]
        content_type, proxy_status = first.headers["Content-Type"], first.headers["Proxy-Status"]
        documents = [await response.json(content_type="application/problem+json") for response in (first, second)]

    instances = {document.pop("instance") for document in documents}
    expected = {
        "type": "no-route",
        "title": "No route matches the request",
        "status": 404,
        "detail": "The admin listener has no such page; it has /metrics, /livez, /readyz and /startupz.",
        "executed": "no",
        "retry": "never",
    }
    assert [404, 404] == statuses
    assert [expected, expected] == documents
    assert 2 == len(instances)
    assert "application/problem+json" == content_type
    assert 'idemproxy; error=http_request_denied; details="no-route"' == proxy_status


async def test_pages_are_only_read(client: TestClient[Request, Application]) -> None:
    """A write to a page is refused with the methods that it takes."""
    async with client.post("/metrics") as response:
        assert (405, "GET,HEAD") == (response.status, response.headers["Allow"])


def reasons(checks: dict[str, Check], health: Health) -> Callable[[], Awaitable[dict[str, str | None]]]:
    """What the checks are found to be, the flags left out."""

    async def run() -> dict[str, str | None]:
        return {finding.name: finding.reason for finding in await health.findings() if finding.name in checks}

    return run


async def test_check_that_does_not_end_fails_at_its_deadline() -> None:
    """A store that hangs makes the proxy not ready within the deadline, and hides no other check."""

    async def hanging() -> None:
        await asyncio.Event().wait()

    checks: dict[str, Check] = {"store": hanging, "spool": Probed().check}

    found = await reasons(checks, Health(checks, deadline=0.01))()

    assert {"store": "no answer within 0.01 s", "spool": None} == found


async def test_checks_run_beside_each_other() -> None:
    """Two checks that wait for each other both pass: one slow check does not use up the time of the next."""
    barrier = asyncio.Barrier(2)

    async def meeting() -> None:
        await barrier.wait()

    checks: dict[str, Check] = {"store": meeting, "spool": meeting}

    assert {"store": None, "spool": None} == await reasons(checks, Health(checks, deadline=10))()


async def test_probes_that_come_together_share_one_run() -> None:
    """Ten probes at once ask the store once."""
    store = Probed()
    checks: dict[str, Check] = {"store": store.check}
    run = reasons(checks, Health(checks, clock=lambda: 0.0))

    found = await asyncio.gather(*(run() for _ in range(10)))

    assert [{"store": None}] * 10 == found
    assert 1 == store.runs
