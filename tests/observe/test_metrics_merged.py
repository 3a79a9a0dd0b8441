"""The metrics of several processes as one page: sums that no death takes back, and states of which the worst counts."""

from __future__ import annotations

from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from idemproxy.observe.metrics import Metrics
from idemproxy.observe.metrics_merged import Row, Tally, merged_page, read_row
from idemproxy.observe.observation import Observation, Outcome

READ: Final = Observation("search", "GET", "/search", 200, Outcome.READ, 0.01, 0, 512)


class Process:
    """One of several, and what it tells; `before` is what the last one on its seat has told."""

    def __init__(self, before: bytes = b"") -> None:
        self.metrics = Metrics(["search"], "sqlite")
        self._tally = Tally(self.metrics, before)

    def told(self) -> bytes:
        """As it is passed on."""
        told = self._tally.told()
        assert told is not None
        return told

    @property
    def row(self) -> Row:
        """As others read it."""
        row = read_row(self.told())
        assert row is not None
        return row


def merged(living: list[Process], gone: list[Row] = []) -> dict[str, float]:  # noqa: B006 - it is only read
    """The samples of the page that are not 0, by name and route."""
    page, _ = merged_page(Metrics(["search"], "sqlite"), [each.row for each in living], gone)
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.value and sample.labels.get("le") in {None, "+Inf"}
    }


def test_what_is_counted_is_added_up() -> None:
    """Counters, every part of a histogram, and what there is now of many things, are sums."""
    one, other = Process(), Process()
    for process in (one, one, other):
        process.metrics.observe(READ)
        process.metrics.attempt_started()

    found = merged([one, other])

    assert (3, 3, 3, 1536, 3) == tuple(
        found[f"idemproxy_{name}"]
        for name in ("requests_total", "request_seconds_count", "request_seconds_bucket", "response_bytes_total", "in_flight")
    )
    assert 0.03 == pytest.approx(found["idemproxy_request_seconds_sum"])


def test_of_states_the_worst_counts() -> None:
    """A store that one does not reach, the most findings, the last deadline, and a certificate that one could not take."""
    one, other = Process(), Process()
    one.metrics.store_operation("check", 0.1, ok=True)
    for process, findings in ((one, 1), (other, 2)):
        process.metrics.store_findings({"error": findings})
        process.metrics.draining_until(1_000.0 * findings)
    one.metrics.reloaded(taken=False)

    found = merged([one, other])

    assert "idemproxy_store_up" not in found
    assert (2, 2_000, 1) == tuple(
        found[f"idemproxy_{name}"] for name in ("store_findings", "drain_deadline_timestamp_seconds", "reload_failed")
    )
    assert merged([one])["process_start_time_seconds"] == found["process_start_time_seconds"]


def test_a_death_takes_nothing_back() -> None:
    """What a dead process has told counts on while nobody has its place, and from then on as its heir's; what it had does not."""
    dead, other = Process(), Process()
    dead.metrics.observe(READ)
    dead.metrics.attempt_started()
    other.metrics.observe(READ)
    words = dead.told()
    left = read_row(words)
    assert left is not None

    alone = merged([other], [left])
    heir = Process(words)
    heir.metrics.observe(READ)
    succeeded = merged([heir, other])

    assert (2, 3) == tuple(found["idemproxy_requests_total"] for found in (alone, succeeded))
    assert [] == [found for found in (alone, succeeded) if "idemproxy_in_flight" in found]
    assert alone["process_cpu_seconds_total"] <= succeeded["process_cpu_seconds_total"]


def test_restarts_are_what_each_was_told() -> None:
    """A process is told how many have died before it, whether they have told something or not."""
    first, second = Process(), Process()
    first.metrics.restarted(1)
    heir = Process(first.told())
    heir.metrics.restarted(2)
    second.metrics.restarted(1)

    assert 3 == merged([heir, second])["idemproxy_worker_restarts_total"]


def test_other_series_are_not_added_up() -> None:
    """Rows of which one lacks a series have no sum: there is no page, rather than a wrong one."""
    one = Process()

    with pytest.raises(ValueError, match="the series of the workers differ"):
        merged_page(one.metrics, [one.row, one.row[:-1]], [])


def test_a_page_that_cannot_be_made_takes_nothing_from_the_next() -> None:
    """Where nobody is alive to tell of now there is no page; the metrics that name the series are as they were."""
    one = Process()

    with pytest.raises(ValueError, match="shorter"):
        merged_page(one.metrics, [], [one.row])
    page, _ = merged_page(one.metrics, [one.row], [])

    assert b"\npython_info{" in page
