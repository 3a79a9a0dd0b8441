"""The judgement: the table of the contract, section 7, for every status and for attempts without an answer."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.outcome import Answered, AttemptResult, NeverSent, Settlement, Unsure, judge, judge_status
from idemproxy.core.policy import OutcomeRule

EVERY: Final = range(100, 600)
REFUSED: Final = {401, 403, 407, 408, 409, 421, 425, 429}
COMPLETED: Final = {*range(200, 400), *(set(range(400, 500)) - REFUSED), 501, 505}

PLAIN: Final = {
    status: "complete" if status in COMPLETED else "release" if status in REFUSED else "mark_unknown" for status in EVERY
}
"""What the contract says of a whole answer without `Retry-After`. A 1xx is in none of its rows: it proves nothing."""
FOR_NOW: Final = PLAIN | {503: "release"}
"""The same with `Retry-After`."""
SETTLED: Final = {"release": "release", "unknown": "mark_unknown", "complete": "complete"}
"""What a list of a route settles, by its name."""


def judged(rule: OutcomeRule, *, has_retry_after: bool) -> dict[int, str]:
    """The settlement of every status."""
    return {status: judge(Answered(status, has_retry_after), rule).value for status in EVERY}


def test_every_status() -> None:
    """An answer without `Retry-After` completes, releases or leaves unknown as the contract's table says, for 100 to 599."""
    assert PLAIN == judged(OutcomeRule(), has_retry_after=False)


def test_every_status_with_retry_after() -> None:
    """`Retry-After` makes a 503 a refusal, and changes nothing for any other status."""
    assert FOR_NOW == judged(OutcomeRule(), has_retry_after=True)


@pytest.mark.parametrize(
    ("status", "has_retry_after", "expected"),
    [
        (200, False, "complete"),
        (303, False, "complete"),
        (400, False, "complete"),
        (404, True, "complete"),
        (409, False, "release"),
        (422, False, "complete"),
        (429, True, "release"),
        (429, False, "release"),
        (500, False, "mark_unknown"),
        (500, True, "mark_unknown"),
        (501, False, "complete"),
        (502, False, "mark_unknown"),
        (503, False, "mark_unknown"),
        (503, True, "release"),
        (504, True, "mark_unknown"),
        (505, False, "complete"),
        (507, False, "mark_unknown"),
        (600, False, "mark_unknown"),
        (999, True, "mark_unknown"),
    ],
)
def test_statuses_by_name(status: int, expected: str, *, has_retry_after: bool) -> None:
    """The statuses that matter most, written out, and those beyond HTTP's, which prove nothing."""
    assert expected == judge_status(status, OutcomeRule(), has_retry_after=has_retry_after).value


RESULTS: Final[list[tuple[NeverSent | Unsure, str]]] = [
    (NeverSent("refused"), "release"),
    (NeverSent("no address", "dns_error", 502), "release"),
    (NeverSent("pool full", "connection_limit_reached", 503), "release"),
    (NeverSent("timed out", "connection_timeout", 504), "release"),
    (Unsure("reset"), "mark_unknown"),
    (Unsure("timed out", "http_response_timeout", 504), "mark_unknown"),
    (Unsure("cut short", "http_response_incomplete"), "mark_unknown"),
]


@pytest.mark.parametrize(("result", "expected"), RESULTS, ids=[result.error for result, _ in RESULTS])
@pytest.mark.parametrize(
    "rule",
    [OutcomeRule(), OutcomeRule(frozenset(EVERY)), OutcomeRule(unknown=frozenset(EVERY)), OutcomeRule(complete=frozenset(EVERY))],
    ids=["default", "release all", "all unknown", "complete all"],
)
def test_no_whole_answer(result: AttemptResult, expected: str, rule: OutcomeRule) -> None:
    """Nothing written releases and anything written without a whole answer is unknown, whatever the route's lists say."""
    assert expected == judge(result, rule).value


@pytest.mark.parametrize(("name", "expected"), SETTLED.items(), ids=str)
@pytest.mark.parametrize("has_retry_after", [False, True], ids=["plain", "with Retry-After"])
def test_a_list_of_the_route_wins(name: str, expected: str, *, has_retry_after: bool) -> None:
    """Whatever the table says of a status, a route that puts it in a list is followed, also for a 503 with `Retry-After`."""
    assert dict.fromkeys(EVERY, expected) == judged(OutcomeRule(**{name: frozenset(EVERY)}), has_retry_after=has_retry_after)


def test_the_route_of_the_contract() -> None:
    """`release: [429, 503], unknown: [500, 502, 504]` judge these five; the table judges the rest, 401, 408 and 409 too."""
    rule = OutcomeRule(release=frozenset({429, 503}), unknown=frozenset({500, 502, 504}))
    expected = PLAIN | {503: "release"}
    assert (expected, expected) == (judged(rule, has_retry_after=False), judged(rule, has_retry_after=True))


@settings(derandomize=True, deadline=None)
@given(lists=st.dictionaries(st.sampled_from(EVERY), st.sampled_from(list(SETTLED))))
def test_lists_do_not_reach_further(lists: dict[int, str]) -> None:
    """Lists change the judgement of the statuses in them, and of no other."""
    by_name = {name: frozenset(status for status, listed in lists.items() if listed == name) for name in SETTLED}
    said = {status: SETTLED[listed] for status, listed in lists.items()}
    rule = OutcomeRule(**by_name)
    expected = (PLAIN | said, FOR_NOW | said)
    assert expected == (judged(rule, has_retry_after=False), judged(rule, has_retry_after=True))


def test_settlements_are_the_verbs() -> None:
    """What can be written about an attempt are three of the contract's verbs."""
    assert {"complete", "release", "mark_unknown"} == {settlement.value for settlement in Settlement}
