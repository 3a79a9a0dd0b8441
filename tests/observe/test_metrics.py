"""What /metrics says: which series there are, which of them each event moves, and what that costs."""

from __future__ import annotations

import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from time import thread_time
from typing import Any, Final

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from idemproxy.core.problem import Slug
from idemproxy.core.transition import Settled
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.observation import Observation, Outcome, Result

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name and its labels in order of their names."""

ROUTES: Final = ["charges", "search"]
ALLOWED_LABELS: Final = {"route", "outcome", "result", "store", "operation"}
OUTCOMES: Final = ["executed", "replayed", "recovered", "unknown", "in-progress", "refused", "bypassed", "read", "own"]
OPERATIONS: Final = [
    *("check", "claim", "renew", "complete", "release", "mark_unknown", "read"),
    *("list", "resolve", "forget", "audit"),
    *("note", "journal", "save"),
]
FINDINGS: Final = ["accepted", "unverified", "warning", "error"]
SLUGS: Final = [
    *("key-missing", "key-invalid", "bad-request", "key-reused", "in-progress", "outcome-unknown", "response-unavailable"),
    *("key-expired", "not-sent", "store-unavailable", "records-lost", "body-too-large", "no-route", "draining"),
    *("workflow-unknown", "key-unknown", "memory-changed", "method-not-allowed"),
]
WRITE: Final = Observation(
    route="charges",
    method="POST",
    path="/v1/charges",
    status=201,
    outcome=Outcome.EXECUTED,
    seconds=0.004,
    request_bytes=300,
    response_bytes=500,
    result=Result.ANSWERED,
    attempt_seconds=0.003,
)
EVERYTHING: Final = Observation(
    route="search",
    method="POST",
    path="/v1/search",
    status=504,
    outcome=Outcome.UNKNOWN,
    seconds=130.0,
    request_bytes=1,
    response_bytes=2,
    result=Result.UNKNOWN,
    attempt_seconds=120.0,
    waited=3.0,
    slug=Slug.OUTCOME_UNKNOWN,
    unrecorded=True,
)


@pytest.fixture(name="metrics")
def fixture_metrics() -> Metrics:
    """Metrics of two routes on a store called sqlite."""
    return Metrics(ROUTES, "sqlite")


def series(name: str, **labels: str) -> Series:
    """A series as `samples` names it."""
    return name, tuple(sorted(labels.items()))


def samples(metrics: Metrics) -> dict[Series, float]:
    """Every sample of the proxy's own metrics, as Prometheus' parser reads the page."""
    page, _ = metrics.render()
    return {
        series(sample.name, **sample.labels): sample.value
        for family in text_string_to_metric_families(page.decode("utf-8"))
        for sample in family.samples
        if sample.name.startswith("idemproxy_")
    }


def moved(metrics: Metrics, event: Callable[[], None]) -> dict[Series, float]:
    """By how much `event` moved each series that it moved, buckets left out."""
    before = samples(metrics)
    event()
    after = samples(metrics)
    return {key: after[key] - before[key] for key in after if after[key] != before[key] and not key[0].endswith("_bucket")}


def histogram(name: str, bounds: list[str], **labels: str) -> Iterator[Series]:
    """Every series of one histogram."""
    yield from (series(f"{name}_bucket", le=bound, **labels) for bound in [*bounds, "+Inf"])
    yield series(f"{name}_sum", **labels)
    yield series(f"{name}_count", **labels)


def test_page_follows_the_text_format_to_the_letter(metrics: Metrics) -> None:
    """Each family has one HELP and one TYPE before its samples, counters end in _total, and no series comes twice."""
    page, content_type = metrics.render()
    lines = page.decode("utf-8").splitlines()
    suffixes = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    kinds: dict[str, str] = {}
    faults, allowed, help_of = [], set[str](), ""
    for line in lines:
        match line.split(" ", 3):
            case ["#", "HELP", name, str(text)] if text:
                help_of = name
            case ["#", "TYPE", name, kind]:
                if name != help_of or name in kinds or (kind == "counter") != name.endswith("_total"):
                    faults.append(line)
                kinds[name] = kind
                allowed = {name + suffix for suffix in suffixes[kind]}
            case _:
                if line.partition(" ")[0].partition("{")[0] not in allowed:
                    faults.append(line)
    twice = [key for key, times in Counter(line.rpartition(" ")[0] for line in lines if line[0] != "#").items() if times > 1]

    assert [] == faults
    assert [] == twice
    assert page.endswith(b"\n")
    assert "text/plain; version=0.0.4; charset=utf-8" == content_type
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "python_info"} <= kinds.keys()


def test_every_series_is_there_from_the_start_at_0_and_no_other(metrics: Metrics) -> None:
    """A fresh proxy shows each combination of labels at 0, so that a rate over it is 0 and not absent."""
    waits = ["0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0"]
    long = [*waits, "10.0", "30.0", "60.0", "120.0"]
    short = ["0.0001", "0.00025", "0.0005", *waits, "10.0"]
    expected = {
        series("idemproxy_leases_lost_total"),
        series("idemproxy_worker_restarts_total"),
        series("idemproxy_in_flight"),
        series("idemproxy_drain_deadline_timestamp_seconds"),
        series("idemproxy_reload_failed"),
        series("idemproxy_tls_handshakes_failed_total"),
        series("idemproxy_spool_bytes"),
        series("idemproxy_spool_entries"),
        series("idemproxy_store_up", store="sqlite"),
        *(series("idemproxy_store_findings", store="sqlite", result=level) for level in FINDINGS),
    }
    for route in [*ROUTES, "-", "_idemproxy"]:
        expected |= {series(f"idemproxy_{name}_total", route=route) for name in ("request_bytes", "response_bytes", "unrecorded")}
        expected |= {series("idemproxy_problems_total", route=route, result=slug) for slug in SLUGS}
        expected |= {
            series("idemproxy_attempts_total", route=route, result=result) for result in ("never_sent", "answered", "unknown")
        }
        expected |= {*histogram("idemproxy_attempt_seconds", long, route=route)}
        expected |= {*histogram("idemproxy_waited_seconds", long, route=route)}
        for outcome in OUTCOMES:
            expected |= {series("idemproxy_requests_total", route=route, outcome=outcome)}
            expected |= {*histogram("idemproxy_request_seconds", long, route=route, outcome=outcome)}
    for operation in OPERATIONS:
        expected |= {*histogram("idemproxy_store_seconds", short, store="sqlite", operation=operation)}
        expected |= {
            series("idemproxy_store_operations_total", store="sqlite", operation=operation, result=result)
            for result in ("ok", "error")
        }
    for operation, result in product(("complete", "release", "mark_unknown"), ("written", "rewritten", "stale")):
        expected |= {series("idemproxy_settlements_total", store="sqlite", operation=operation, result=result)}

    assert dict.fromkeys(expected, 0.0) == samples(metrics)


def test_labels_are_only_those_that_are_promised(metrics: Metrics) -> None:
    """No label but route, outcome, result, store and operation is on a metric of the proxy, besides a bucket's bound."""
    names = {name for (metric, labels) in samples(metrics) for name, _ in labels if (metric[-7:], name) != ("_bucket", "le")}

    assert names == ALLOWED_LABELS


def test_series_do_not_grow_with_what_happens(metrics: Metrics) -> None:
    """Whatever is observed, no series is added: labels come from the configuration and from fixed tables."""
    before = samples(metrics).keys()

    for route, outcome, result, slug in product([*ROUTES, "-", "_idemproxy"], Outcome, Result, Slug):
        metrics.observe(
            Observation(
                route, "M", "/p", 200, outcome, 1.0, 1, 1, result, 1.0, 1.0, slug, "scope", "up", "hash", 1, unrecorded=True
            )
        )

    assert before == samples(metrics).keys()


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        pytest.param(
            WRITE,
            {
                series("idemproxy_requests_total", route="charges", outcome="executed"): 1,
                series("idemproxy_request_seconds_count", route="charges", outcome="executed"): 1,
                series("idemproxy_request_seconds_sum", route="charges", outcome="executed"): 0.004,
                series("idemproxy_request_bytes_total", route="charges"): 300,
                series("idemproxy_response_bytes_total", route="charges"): 500,
                series("idemproxy_attempts_total", route="charges", result="answered"): 1,
                series("idemproxy_attempt_seconds_count", route="charges"): 1,
                series("idemproxy_attempt_seconds_sum", route="charges"): 0.003,
            },
            id="first-write",
        ),
        pytest.param(
            Observation("charges", "POST", "/v1/charges", 201, Outcome.REPLAYED, 2.5, 0, 500, waited=2.0),
            {
                series("idemproxy_requests_total", route="charges", outcome="replayed"): 1,
                series("idemproxy_request_seconds_count", route="charges", outcome="replayed"): 1,
                series("idemproxy_request_seconds_sum", route="charges", outcome="replayed"): 2.5,
                series("idemproxy_response_bytes_total", route="charges"): 500,
                series("idemproxy_waited_seconds_count", route="charges"): 1,
                series("idemproxy_waited_seconds_sum", route="charges"): 2.0,
            },
            id="replay-after-a-wait",
        ),
        pytest.param(
            Observation("-", "POST", "/x", 404, Outcome.REFUSED, 0.001, 0, 0, slug=Slug.NO_ROUTE),
            {
                series("idemproxy_requests_total", route="-", outcome="refused"): 1,
                series("idemproxy_request_seconds_count", route="-", outcome="refused"): 1,
                series("idemproxy_request_seconds_sum", route="-", outcome="refused"): 0.001,
                series("idemproxy_problems_total", route="-", result="no-route"): 1,
            },
            id="no-route",
        ),
        pytest.param(
            EVERYTHING,
            {
                series("idemproxy_requests_total", route="search", outcome="unknown"): 1,
                series("idemproxy_request_seconds_count", route="search", outcome="unknown"): 1,
                series("idemproxy_request_seconds_sum", route="search", outcome="unknown"): 130.0,
                series("idemproxy_request_bytes_total", route="search"): 1,
                series("idemproxy_response_bytes_total", route="search"): 2,
                series("idemproxy_attempts_total", route="search", result="unknown"): 1,
                series("idemproxy_attempt_seconds_count", route="search"): 1,
                series("idemproxy_attempt_seconds_sum", route="search"): 120.0,
                series("idemproxy_waited_seconds_count", route="search"): 1,
                series("idemproxy_waited_seconds_sum", route="search"): 3.0,
                series("idemproxy_problems_total", route="search", result="outcome-unknown"): 1,
                series("idemproxy_unrecorded_total", route="search"): 1,
            },
            id="everything",
        ),
    ],
)
def test_observation_moves_its_series_and_no_other(
    metrics: Metrics, observation: Observation, expected: dict[Series, float]
) -> None:
    """Each fact of a request moves the one series that stands for it, by its amount."""
    assert expected == moved(metrics, lambda: metrics.observe(observation))


def test_duration_falls_into_the_buckets_from_its_bound_on(metrics: Metrics) -> None:
    """A bucket counts what took at most its bound: an attempt of exactly 120 s is in the last one, 130 s only in +Inf."""
    metrics.observe(EVERYTHING)

    counted = samples(metrics)
    filled = sorted(key for key, value in counted.items() if value and key[0].endswith("_bucket"))
    expected = [
        *(series("idemproxy_attempt_seconds_bucket", route="search", le=bound) for bound in ("+Inf", "120.0")),
        series("idemproxy_request_seconds_bucket", route="search", outcome="unknown", le="+Inf"),
        *(
            series("idemproxy_waited_seconds_bucket", route="search", le=bound)
            for bound in ("+Inf", "10.0", "120.0", "30.0", "5.0", "60.0")
        ),
    ]
    assert sorted(expected) == filled


@pytest.mark.parametrize("operation", ["complete", "release", "mark_unknown"])
@pytest.mark.parametrize("became", Settled)
def test_settlement_is_counted_by_operation_and_result(metrics: Metrics, operation: str, became: Settled) -> None:
    """What became of a holder's write moves one counter."""
    counter = series("idemproxy_settlements_total", store="sqlite", operation=operation, result=became.value)

    assert {counter: 1} == moved(metrics, lambda: metrics.settled(operation, became))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_store_operation_is_counted_timed_and_shows_whether_the_store_is_up(metrics: Metrics, operation: str) -> None:
    """The store is up with the first operation that it confirms, and down with the first that it does not."""
    labels = {"store": "sqlite", "operation": operation}
    timed = {series("idemproxy_store_seconds_count", **labels): 1, series("idemproxy_store_seconds_sum", **labels): 0.5}
    confirmed = {series("idemproxy_store_operations_total", **labels, result="ok"): 1, **timed}
    failed = {series("idemproxy_store_operations_total", **labels, result="error"): 1, **timed}
    up = series("idemproxy_store_up", store="sqlite")

    for ok, expected in ((True, confirmed | {up: 1}), (True, confirmed), (False, failed | {up: -1}), (False, failed)):
        assert expected == moved(metrics, partial(metrics.store_operation, operation, 0.5, ok))


def test_attempts_now_and_lost_leases_are_counted(metrics: Metrics) -> None:
    """An attempt is in flight from its start to its end; a lost lease stays counted."""
    in_flight = series("idemproxy_in_flight")

    assert {in_flight: 1} == moved(metrics, metrics.attempt_started)
    assert {in_flight: 1} == moved(metrics, metrics.attempt_started)
    assert {in_flight: -1} == moved(metrics, metrics.attempt_ended)
    assert {series("idemproxy_leases_lost_total"): 1} == moved(metrics, metrics.lease_lost)


def test_drain_and_reload_are_told_as_they_are_now(metrics: Metrics) -> None:
    """A drain tells its deadline; a certificate that was not taken is told until one is."""
    deadline, failed = series("idemproxy_drain_deadline_timestamp_seconds"), series("idemproxy_reload_failed")

    assert {deadline: 1_700_000_030.5} == moved(metrics, lambda: metrics.draining_until(1_700_000_030.5))
    for taken, expected in ((True, {}), (False, {failed: 1}), (False, {}), (True, {failed: -1})):
        assert expected == moved(metrics, partial(metrics.reloaded, taken=taken))


def test_metrics_share_nothing_with_others_in_the_process(metrics: Metrics) -> None:
    """Two proxies in one process count apart, and the library's global registry stays as it was."""
    other = Metrics(ROUTES, "sqlite")
    metrics.observe(WRITE)

    assert 0.0 == sum(samples(other).values())
    assert [] == [family.name for family in prometheus_client.REGISTRY.collect() if family.name.startswith("idemproxy")]


def test_route_name_with_special_characters_comes_back_as_it_was() -> None:
    """Quotes, backslashes and letters beyond ASCII in a route's name survive the text format."""
    name = 'paiements "é\\n"'

    routes = {dict(labels).get("route") for _, labels in samples(Metrics([name], "sqlite"))}

    assert {name, "-", "_idemproxy", None} == routes


def test_unknown_route_is_an_error_and_not_a_new_series(metrics: Metrics) -> None:
    """A route that was not configured raises KeyError: otherwise clients could make series without end."""
    with pytest.raises(KeyError, match="elsewhere"):
        metrics.observe(Observation("elsewhere", "GET", "/", 200, Outcome.READ, 0.1, 0, 0))


def cost(work: Callable[[], Any], times: int) -> float:
    """Seconds of this thread's own processor time that one `work` takes, the least of several rounds."""
    return min(timeit.repeat(work, number=times, repeat=7, timer=thread_time)) / times


def test_observing_looks_no_label_up(metrics: Metrics) -> None:
    """The fullest observation costs no more than 30 counter increments (4 of 8 microseconds, where one costs 0.27)."""
    increment = cost(prometheus_client.Counter("one", "One.", registry=None).inc, 2000)

    assert cost(lambda: metrics.observe(EVERYTHING), 2000) < 30 * increment


def test_a_scrape_costs_microseconds_a_line() -> None:
    """The page of 20 routes costs no more than 100 increments a line (25 ms in all, where one costs 0.27 microseconds)."""
    metrics = Metrics([f"route-{number}" for number in range(20)], "sqlite")
    increment = cost(prometheus_client.Counter("one", "One.", registry=None).inc, 2000)
    lines = metrics.render()[0].count(b"\n")

    assert cost(metrics.render, 1) < 100 * increment * lines


def test_findings_are_those_of_the_last_look(metrics: Metrics) -> None:
    """Each look replaces the one before: a level of which nothing was found is 0 again, and what is fine is not counted."""
    metrics.store_findings({"fine": 3, "error": 1, "warning": 2})
    first = samples(metrics)
    metrics.store_findings({"accepted": 1})
    second = samples(metrics)
    each = [series("idemproxy_store_findings", store="sqlite", result=level) for level in FINDINGS]

    assert [0, 0, 2, 1] == [first[level] for level in each]
    assert [1, 0, 0, 0] == [second[level] for level in each]
