"""Profiles: what each one means, who chooses it, and that explicit settings win."""

from __future__ import annotations

import pytest

from idemproxy.config.profiles import PROFILES
from idemproxy.core.key import KeyMode, KeyRule
from idemproxy.core.outcome import Settlement, judge_status
from idemproxy.core.policy import ForwardKey, OnUnknown, OutcomeRule, Policy
from idemproxy.core.scope import ScopeRule
from tests.config.conftest import Load

KEPT_500 = OutcomeRule(complete=frozenset({500}))
POLICIES = {
    "strict": Policy(),
    "ietf": Policy(key=KeyRule(mode=KeyMode.REQUIRED), outcome=KEPT_500),
    "stripe": Policy(outcome=KEPT_500, forward_key=ForwardKey.SAME, scope=ScopeRule((b"stripe-account",))),
    "acp": Policy(outcome=OutcomeRule(release=frozenset(range(500, 600)))),
    "native": Policy(forward_key=ForwardKey.SAME, on_unknown=OnUnknown.RETRY),
}


def policy_of(loaded: Load, route: str = "", upstream: str = "", url: str = "http://127.0.0.1:9000", top: str = "") -> Policy:
    """The policy of the one route of a small configuration."""
    text = f"{top}\nupstreams: {{api: {{url: '{url}'{upstream}}}}}\nroutes: [{{name: one, upstream: api{route}}}]\n"
    [built] = loaded(text).settings.routes
    return built.policy


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_is_a_policy(name: str, loaded: Load) -> None:
    """A profile, chosen by a route that says nothing else, gives exactly its policy."""
    assert POLICIES[name] == policy_of(loaded, route=f", profile: {name}")


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_judges_a_status_twice(name: str) -> None:
    """The lists of a profile have no status in common, so that their order means nothing."""
    rule = POLICIES[name].outcome

    assert frozenset() == (rule.release & rule.unknown) | (rule.release & rule.complete) | (rule.unknown & rule.complete)


@pytest.mark.parametrize(
    ("route", "upstream", "host", "told"),
    [
        ("", "", "127.0.0.1", "strict, the default"),
        ("", "", "api.stripe.com", "stripe, by the upstream's host api.stripe.com"),
        ("", ", profile: acp", "api.stripe.com", "acp, chosen by the upstream api"),
        (", profile: native", ", profile: acp", "api.stripe.com", "native, chosen by the route"),
        ("", "", "api.stripe.com.example", "strict, the default"),
    ],
)
def test_the_choice_is_told_with_its_reason(route: str, upstream: str, host: str, told: str, loaded: Load) -> None:
    """Route before upstream before host before the default, and the start-up lines can say which."""
    text = f"upstreams: {{api: {{url: 'https://{host}'{upstream}}}}}\nroutes: [{{name: one, upstream: api{route}}}]\n"

    assert {"one": told} == dict(loaded(text).settings.profiles)


def test_explicit_settings_win_over_the_profile(loaded: Load) -> None:
    """What a route or its upstream says counts; the profile fills in the rest."""
    said = ", profile: stripe, outcome: {unknown: [500]}, on_unknown: retry, scope: shared, key: {header: X-Key}"

    policy = policy_of(loaded, route=said, upstream=", forward_key: strip")

    assert (
        Policy(
            key=KeyRule(b"x-key"),
            outcome=OutcomeRule(unknown=frozenset({500})),
            on_unknown=OnUnknown.RETRY,
            forward_key=ForwardKey.STRIP,
        )
        == policy
    )


def test_a_list_is_added_to_the_profiles(loaded: Load) -> None:
    """A route's list says something of its own statuses; the profile's stay as they are, in that list and in the others."""
    outcome = policy_of(loaded, route=", profile: stripe, outcome: {release: [503], complete: [502]}").outcome

    assert OutcomeRule(release=frozenset({503}), complete=frozenset({500, 502})) == outcome


def test_a_route_wins_over_its_profile(loaded: Load) -> None:
    """A status that the route lists leaves the profile's list, so that it is judged in one way."""
    outcome = policy_of(loaded, route=", profile: acp, outcome: {unknown: [500, 502]}").outcome

    assert OutcomeRule(release=frozenset(range(500, 600)) - {500, 502}, unknown=frozenset({500, 502})) == outcome


def test_a_status_that_the_route_judges_is_judged_so(loaded: Load) -> None:
    """A status of the table can be given another meaning, whichever list is looked at first."""
    outcome = policy_of(loaded, route=", outcome: {complete: [409]}").outcome

    assert Settlement.COMPLETE is judge_status(409, outcome, has_retry_after=False)
    assert Settlement.RELEASE is judge_status(429, outcome, has_retry_after=False)


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("", (b"stripe-account",)),
        ("scope: shared", (b"stripe-account",)),
        ("scope: {headers: [x-tenant]}", (b"x-tenant", b"stripe-account")),
        ("scope: {headers: [Stripe-Account]}", (b"stripe-account",)),
    ],
)
def test_the_profiles_scope_is_added_to_that_of_the_top_level(top: str, expected: tuple[bytes, ...], loaded: Load) -> None:
    """Accounts of one platform never share keys, whatever else tells callers apart; a field is named once."""
    assert expected == policy_of(loaded, top=top, url="https://api.stripe.com").scope.headers
