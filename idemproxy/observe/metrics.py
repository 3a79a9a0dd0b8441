"""What is counted: each observation, settlement and store operation, in the text format of Prometheus.

Every series is on the page from the start, at 0: a rate over a label that has not happened yet is 0 and not absent. Each is found
by one or two dict look-ups, and counting is arithmetic (metrics_series). A route, an operation or a result that is not of the
tables is a fault of the program and raises KeyError: labels never come from what a client sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from idemproxy.core.outcome import Settlement
from idemproxy.core.problem import Slug
from idemproxy.core.transition import Settled
from idemproxy.observe.metrics_series import Families, Histogram, Known, Number, Series
from idemproxy.observe.observation import Observation, Outcome, Result

NO_ROUTE: Final = "-"
"""The label `route` of a request that no route takes; no configured route may be called so."""

OWN_ROUTE: Final = "_idemproxy"
"""That of a request for one of the proxy's own pages; no configured route may be called so either."""

STORE_OPERATIONS: Final = (
    *("check", "claim", "renew", *Settlement, "read", "list", "resolve", "forget", "audit"),
    *("note", "journal", "save"),
)

RESTARTS: Final = "idemproxy_worker_restarts"
"""The metric that a worker does not count but is told."""

STORE_FINDINGS: Final = ("error", "warning", "unverified", "accepted")
"""What was found of the store's server or file, other than that it is fine, by how much it matters."""

# Seconds. Requests: from a replay out of a near store to the default of the total time-out. The store: from one coalesced command
# to a wait for an outage to end.
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_STORE_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of one process, on a registry of their own."""

    def __init__(self, routes: Iterable[str], store: str) -> None:
        """Every series at 0: `routes` are the configured names, `store` the store's name."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        families = Families()
        self._routes = _Routes(families, [*routes, NO_ROUTE, OWN_ROUTE])
        self._store = _StoreSeries.make(families, store)
        self._store_up = False
        self._leases_lost = _alone(
            families.counters, "leases_lost", "Leases that were over, or another's, when their holder renewed them."
        )
        self._spool_entries = _alone(families.gauges, "spool_entries", "Endings that wait in the spool for the store.")
        self._spool_bytes = _alone(families.gauges, "spool_bytes", "Bytes of answers that wait in the spool.")
        self._in_flight = _alone(families.gauges, "in_flight", "Attempts that are being forwarded now.")
        self._drain_deadline = _alone(
            families.gauges,
            "drain_deadline_timestamp_seconds",
            "When a drain that is under way ends what is still forwarded; 0 without one.",
        )
        self._reload_failed = _alone(
            families.gauges, "reload_failed", "1 when the last SIGHUP could not take the certificate, else 0."
        )
        self._handshakes_failed = _alone(
            families.counters,
            "tls_handshakes_failed",
            "TLS handshakes of clients that failed, as when they refuse the certificate; not those broken off without a word.",
        )
        self._worker_restarts = _alone(families.counters, "worker_restarts", "Workers that have died and were started again.")
        self._registry.register(families)

    def observe(self, observation: Observation) -> None:
        """Count one finished request."""
        route = self._routes[observation.route]
        requests, seconds = route.requests[observation.outcome]
        requests.value += 1
        seconds.observe(observation.seconds)
        route.request_bytes.value += observation.request_bytes
        route.response_bytes.value += observation.response_bytes
        if observation.result is not None:
            route.attempts[observation.result].value += 1
        if observation.attempt_seconds is not None:
            route.attempt_seconds.observe(observation.attempt_seconds)
        if observation.waited is not None:
            route.waited_seconds.observe(observation.waited)
        if observation.slug is not None:
            route.problems[observation.slug].value += 1
        if observation.unrecorded:
            route.unrecorded.value += 1

    def settled(self, operation: str, settled: Settled) -> None:
        """Count what became of a holder's write; `operation` is a value of core.outcome.Settlement."""
        self._store.settlements[operation, settled].value += 1

    def store_operation(self, operation: str, seconds: float, ok: bool) -> None:  # noqa: FBT001 - as each operation has it
        """Count one operation of the store, one of STORE_OPERATIONS; `ok` says that the store confirmed it."""
        self._store.operations[operation, ok].value += 1
        self._store.seconds[operation].observe(seconds)
        if ok is not self._store_up:
            self._store_up = ok
            self._store.up.value = ok

    def store_findings(self, counts: Mapping[str, int]) -> None:
        """How many findings of each of STORE_FINDINGS the last look at the store has made."""
        for level, gauge in self._store.findings.items():
            gauge.value = counts.get(level, 0)

    def spool(self, entries: int, size: int) -> None:
        """What waits in the spool now; `size` in bytes."""
        self._spool_entries.value = entries
        self._spool_bytes.value = size

    def lease_lost(self) -> None:
        """Count a lease that its holder could not renew, because the hold was no longer in flight."""
        self._leases_lost.value += 1

    def attempt_started(self) -> None:
        """One more attempt is being forwarded."""
        self._in_flight.value += 1

    def attempt_ended(self) -> None:
        """One attempt fewer is being forwarded."""
        self._in_flight.value -= 1

    def draining_until(self, deadline: float) -> None:
        """A drain has begun; at `deadline`, in seconds since 1970, what is still forwarded becomes unknown."""
        self._drain_deadline.value = deadline

    def reloaded(self, *, taken: bool) -> None:
        """Whether the last SIGHUP took the certificate as it is now; where not, that from before serves on."""
        self._reload_failed.value = not taken

    def handshake_refused(self) -> None:
        """Count a client with whom no TLS could be agreed on."""
        self._handshakes_failed.value += 1

    def restarted(self, times: int) -> None:
        """This process has taken the place of so many that have died, one after the other."""
        self._worker_restarts.value = times

    def families(self) -> Iterable[Metric]:
        """Every metric with its samples; always the same ones, in the same order."""
        return self._registry.collect()

    def render(self) -> tuple[bytes, str]:
        """The whole page and its content type; takes some 6 microseconds a line, in whichever thread calls it."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


def _alone(make: Callable[[str, str, Sequence[str], Known], Series[Number]], name: str, text: str) -> Number:
    """The series of a family that has no labels."""
    return make(f"idemproxy_{name}", text, (), lambda: [()])[()]


@dataclass(frozen=True, slots=True)
class _RouteSeries:
    """The series of one route."""

    requests: dict[Outcome, tuple[Number, Histogram]]
    attempts: dict[Result, Number]
    problems: dict[Slug, Number]
    attempt_seconds: Histogram
    waited_seconds: Histogram
    request_bytes: Number
    response_bytes: Number
    unrecorded: Number


class _Routes(dict[str, _RouteSeries]):
    """The series of each route by its name, made when it is first asked for."""

    def __init__(self, families: Families, names: list[str]) -> None:
        super().__init__()
        self._names = frozenset(names)

        def known(values: Iterable[str] | None) -> Known:
            return lambda: ((name,) for name in names) if values is None else product(names, values)

        def counters(name: str, text: str, label: str | None = None, values: Iterable[str] | None = None) -> Series[Number]:
            return families.counters(f"idemproxy_{name}", text, ("route", label) if label else ("route",), known(values))

        def histograms(name: str, text: str, label: str | None = None, values: Iterable[str] | None = None) -> Series[Histogram]:
            labels = ("route", label) if label else ("route",)
            return families.histograms(f"idemproxy_{name}", text, labels, _REQUEST_BUCKETS, known(values))

        self._requests = counters("requests", "Requests that were finished, by what they came to.", "outcome", Outcome)
        self._seconds = histograms(
            "request_seconds", "From the head of a request to the last byte of its reply.", "outcome", Outcome
        )
        self._attempts = counters("attempts", "Requests forwarded under a claim, by what the attempt proved.", "result", Result)
        self._problems = counters("problems", "Problem documents that the proxy answered with, by slug.", "result", Slug)
        self._attempt_seconds = histograms("attempt_seconds", "Duration of an attempt.")
        self._waited = histograms("waited_seconds", "Time spent waiting for another request with the same key.")
        self._request_bytes = counters("request_bytes", "Bytes of request bodies received.")
        self._response_bytes = counters("response_bytes", "Bytes of response bodies sent.")
        self._unrecorded = counters("unrecorded", "Answers given although the store did not confirm their record.")

    def __missing__(self, name: str) -> _RouteSeries:
        if name not in self._names:
            raise KeyError(name)
        made = self[name] = _RouteSeries(
            requests={outcome: (self._requests[name, outcome], self._seconds[name, outcome]) for outcome in Outcome},
            attempts={result: self._attempts[name, result] for result in Result},
            problems={slug: self._problems[name, slug] for slug in Slug},
            attempt_seconds=self._attempt_seconds[name,],
            waited_seconds=self._waited[name,],
            request_bytes=self._request_bytes[name,],
            response_bytes=self._response_bytes[name,],
            unrecorded=self._unrecorded[name,],
        )
        return made


@dataclass(frozen=True, slots=True)
class _StoreSeries:
    """The series of the store; `operations` by operation and whether it was confirmed."""

    settlements: dict[tuple[str, Settled], Number]
    operations: dict[tuple[str, bool], Number]
    seconds: dict[str, Histogram]
    up: Number
    findings: dict[str, Number]

    @classmethod
    def make(cls, families: Families, store: str) -> _StoreSeries:
        """Make every series of `store`."""
        settlements = families.counters(
            "idemproxy_settlements",
            "Writes of holders, by what became of them: rewritten after the store lost the record, stale when nothing changed.",
            ("store", "operation", "result"),
            lambda: product((store,), Settlement, Settled),
        )
        operations = families.counters(
            "idemproxy_store_operations",
            "Operations of the store; error: not confirmed.",
            ("store", "operation", "result"),
            lambda: product((store,), STORE_OPERATIONS, ("ok", "error")),
        )
        seconds = families.histograms(
            "idemproxy_store_seconds",
            "Duration of an operation of the store.",
            ("store", "operation"),
            _STORE_BUCKETS,
            lambda: product((store,), STORE_OPERATIONS),
        )
        up = families.gauges(
            "idemproxy_store_up", "1 when the store confirmed its last operation, else 0.", ("store",), lambda: [(store,)]
        )
        findings = families.gauges(
            "idemproxy_store_findings",
            "What the last look at the store's server or file found, as `idemproxy doctor` prints it; error: records may go.",
            ("store", "result"),
            lambda: product((store,), STORE_FINDINGS),
        )
        return cls(
            settlements={(name, became): settlements[store, name, became] for name, became in product(Settlement, Settled)},
            operations={
                (name, ok): operations[store, name, "ok" if ok else "error"]
                for name, ok in product(STORE_OPERATIONS, (True, False))
            },
            seconds={name: seconds[store, name] for name in STORE_OPERATIONS},
            up=up[store,],
            findings={level: findings[store, level] for level in STORE_FINDINGS},
        )
