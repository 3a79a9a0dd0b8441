"""What is counted: each observation, settlement and store operation, in the text format of Prometheus.

Every series exists from the start, at 0: a rate over a label that has not happened yet is 0 and not absent. Its handle is made
once and found by one or two dict look-ups; `labels()` costs more than the counting itself. A route, an operation or a result
that is not of the tables is a fault of the program and raises KeyError: labels never come from what a client sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from idemproxy.core.outcome import Settlement
from idemproxy.core.problem import Slug
from idemproxy.core.transition import Settled
from idemproxy.observe.observation import Observation, Outcome, Result

NO_ROUTE: Final = "-"
"""The label `route` of a request that no route takes; no configured route may be called so."""

OWN_ROUTE: Final = "_idemproxy"
"""That of a request for one of the proxy's own pages; no configured route may be called so either."""

STORE_OPERATIONS: Final = (
    *("check", "claim", "renew", *Settlement, "read", "list", "resolve", "forget", "audit"),
    *("note", "journal", "save"),
)

STORE_FINDINGS: Final = ("error", "warning", "unverified", "accepted")
"""What was found of the store's server or file, other than that it is fine, by how much it matters."""

# Seconds. Requests: from a replay out of a near store to the default of the total time-out. The store: from one coalesced command
# to a wait for an outage to end.
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_STORE_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of one process, on a registry of their own."""

    def __init__(self, routes: Iterable[str], store: str) -> None:
        """Make every series: `routes` are the configured names, `store` the store's name."""
        self._registry = CollectorRegistry()
        names = [*routes, NO_ROUTE, OWN_ROUTE]
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._routes = self._make_routes(names)
        self._store = _StoreSeries.make(self._registry, store)
        self._store_up = False
        self._leases_lost = self._counter("leases_lost", "Leases that were over, or another's, when their holder renewed them.")
        self._spool_entries = self._gauge("spool_entries", "Endings that wait in the spool for the store.")
        self._spool_bytes = self._gauge("spool_bytes", "Bytes of answers that wait in the spool.")
        self._in_flight = self._gauge("in_flight", "Attempts that are being forwarded now.")
        self._drain_deadline = self._gauge(
            "drain_deadline_timestamp_seconds", "When a drain that is under way ends what is still forwarded; 0 without one."
        )
        self._reload_failed = self._gauge("reload_failed", "1 when the last SIGHUP could not take the certificate, else 0.")

    def observe(self, observation: Observation) -> None:
        """Count one finished request."""
        route = self._routes[observation.route]
        requests, seconds = route.requests[observation.outcome]
        requests.inc()
        seconds.observe(observation.seconds)
        route.request_bytes.inc(observation.request_bytes)
        route.response_bytes.inc(observation.response_bytes)
        if observation.result is not None:
            route.attempts[observation.result].inc()
        if observation.attempt_seconds is not None:
            route.attempt_seconds.observe(observation.attempt_seconds)
        if observation.waited is not None:
            route.waited_seconds.observe(observation.waited)
        if observation.slug is not None:
            route.problems[observation.slug].inc()
        if observation.unrecorded:
            route.unrecorded.inc()

    def settled(self, operation: str, settled: Settled) -> None:
        """Count what became of a holder's write; `operation` is a value of core.outcome.Settlement."""
        self._store.settlements[operation, settled].inc()

    def store_operation(self, operation: str, seconds: float, ok: bool) -> None:  # noqa: FBT001 - as each operation has it
        """Count one operation of the store, one of STORE_OPERATIONS; `ok` says that the store confirmed it."""
        self._store.operations[operation, ok].inc()
        self._store.seconds[operation].observe(seconds)
        if ok is not self._store_up:
            self._store_up = ok
            self._store.up.set(ok)

    def store_findings(self, counts: Mapping[str, int]) -> None:
        """How many findings of each of STORE_FINDINGS the last look at the store has made."""
        for level, gauge in self._store.findings.items():
            gauge.set(counts.get(level, 0))

    def spool(self, entries: int, size: int) -> None:
        """What waits in the spool now; `size` in bytes."""
        self._spool_entries.set(entries)
        self._spool_bytes.set(size)

    def lease_lost(self) -> None:
        """Count a lease that its holder could not renew, because the hold was no longer in flight."""
        self._leases_lost.inc()

    def attempt_started(self) -> None:
        """One more attempt is being forwarded."""
        self._in_flight.inc()

    def attempt_ended(self) -> None:
        """One attempt fewer is being forwarded."""
        self._in_flight.dec()

    def draining_until(self, deadline: float) -> None:
        """A drain has begun; at `deadline`, in seconds since 1970, what is still forwarded becomes unknown."""
        self._drain_deadline.set(deadline)

    def reloaded(self, *, taken: bool) -> None:
        """Whether the last SIGHUP took the certificate as it is now; where not, that from before serves on."""
        self._reload_failed.set(not taken)

    def render(self) -> tuple[bytes, str]:
        """The whole page and its content type; takes some 6 microseconds a line, in whichever thread calls it."""
        return generate_latest(_WithoutCreated(self._registry)), CONTENT_TYPE_PLAIN_0_0_4

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"idemproxy_{name}", documentation, labels, registry=self._registry)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(f"idemproxy_{name}", documentation, registry=self._registry)

    def _histogram(self, name: str, documentation: str, *labels: str) -> Histogram:
        return Histogram(f"idemproxy_{name}", documentation, labels, registry=self._registry, buckets=_REQUEST_BUCKETS)

    def _make_routes(self, names: list[str]) -> dict[str, _RouteSeries]:
        """The series of each route; `documentation` becomes the line HELP."""
        requests = self._counter("requests", "Requests that were finished, by what they came to.", "route", "outcome")
        seconds = self._histogram(
            "request_seconds", "From the head of a request to the last byte of its reply.", "route", "outcome"
        )
        attempts = self._counter("attempts", "Requests forwarded under a claim, by what the attempt proved.", "route", "result")
        problems = self._counter("problems", "Problem documents that the proxy answered with, by slug.", "route", "result")
        attempt_seconds = self._histogram("attempt_seconds", "Duration of an attempt.", "route")
        waited = self._histogram("waited_seconds", "Time spent waiting for another request with the same key.", "route")
        request_bytes = self._counter("request_bytes", "Bytes of request bodies received.", "route")
        response_bytes = self._counter("response_bytes", "Bytes of response bodies sent.", "route")
        unrecorded = self._counter("unrecorded", "Answers given although the store did not confirm their record.", "route")
        return {
            name: _RouteSeries(
                requests={outcome: (requests.labels(name, outcome), seconds.labels(name, outcome)) for outcome in Outcome},
                attempts={result: attempts.labels(name, result) for result in Result},
                problems={slug: problems.labels(name, slug) for slug in Slug},
                attempt_seconds=attempt_seconds.labels(name),
                waited_seconds=waited.labels(name),
                request_bytes=request_bytes.labels(name),
                response_bytes=response_bytes.labels(name),
                unrecorded=unrecorded.labels(name),
            )
            for name in names
        }


@dataclass(frozen=True, slots=True)
class _RouteSeries:
    """The handles of one route."""

    requests: dict[Outcome, tuple[Counter, Histogram]]
    attempts: dict[Result, Counter]
    problems: dict[Slug, Counter]
    attempt_seconds: Histogram
    waited_seconds: Histogram
    request_bytes: Counter
    response_bytes: Counter
    unrecorded: Counter


@dataclass(frozen=True, slots=True)
class _StoreSeries:
    """The handles of the store; `operations` by operation and whether it was confirmed."""

    settlements: dict[tuple[str, Settled], Counter]
    operations: dict[tuple[str, bool], Counter]
    seconds: dict[str, Histogram]
    up: Gauge
    findings: dict[str, Gauge]

    @classmethod
    def make(cls, registry: CollectorRegistry, store: str) -> _StoreSeries:
        """Make every series of `store`."""
        settlements = Counter(
            "idemproxy_settlements",
            "Writes of holders, by what became of them: rewritten after the store lost the record, stale when nothing changed.",
            ("store", "operation", "result"),
            registry=registry,
        )
        operations = Counter(
            "idemproxy_store_operations",
            "Operations of the store; error: not confirmed.",
            ("store", "operation", "result"),
            registry=registry,
        )
        seconds = Histogram(
            "idemproxy_store_seconds",
            "Duration of an operation of the store.",
            ("store", "operation"),
            registry=registry,
            buckets=_STORE_BUCKETS,
        )
        up = Gauge("idemproxy_store_up", "1 when the store confirmed its last operation, else 0.", ("store",), registry=registry)
        findings = Gauge(
            "idemproxy_store_findings",
            "What the last look at the store's server or file found, as `idemproxy doctor` prints it; error: records may go.",
            ("store", "result"),
            registry=registry,
        )
        return cls(
            settlements={
                (name, became): settlements.labels(store, name, became) for name, became in product(Settlement, Settled)
            },
            operations={
                (name, ok): operations.labels(store, name, "ok" if ok else "error")
                for name, ok in product(STORE_OPERATIONS, (True, False))
            },
            seconds={name: seconds.labels(store, name) for name in STORE_OPERATIONS},
            up=up.labels(store),
            findings={level: findings.labels(store, level) for level in STORE_FINDINGS},
        )


class _WithoutCreated(Collector):
    """A registry less the `_created` samples: a second series beside each one, which process_start_time_seconds makes needless.

    The library's own switch for them is global, and would reach every registry of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
