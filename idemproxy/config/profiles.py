"""Profiles: named sets of policies for kinds of upstream. The table is all there is; explicit settings win over it.

A profile gives what a route does not say: `key.mode`, `forward_key`, `on_unknown`, the `outcome` of statuses that the route does
not list, and header fields that are part of the scope beside those of the top level. It is chosen by the route, else by the
upstream, else by the upstream's host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from idemproxy.core.key import KeyMode
from idemproxy.core.policy import OnUnknown, OutcomeRule

ProfileName: TypeAlias = Literal["strict", "ietf", "stripe", "acp", "native"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a route gets where it does not speak for itself. `about` says when to choose it, and what it costs."""

    about: str
    key_mode: KeyMode = KeyMode.OPTIONAL
    outcome: OutcomeRule = OutcomeRule()
    forward_key: str = "strip"
    on_unknown: OnUnknown = OnUnknown.HOLD
    scope_headers: tuple[str, ...] = ()


PROFILES: Final[Mapping[ProfileName, Profile]] = MappingProxyType(
    {
        "strict": Profile("For an upstream of which nothing is known: what may have happened is never tried again."),
        # draft-ietf-httpapi-idempotency-key-header-07, section 2.6: a missing key is an error, and the result of a completed
        # operation, "success or an error", is what a retry gets. 502 and 504 come from between and are no result.
        "ietf": Profile(
            "As the IETF draft describes a server: writes need a key, and a 500 is a result, which is kept and replayed.",
            key_mode=KeyMode.REQUIRED,
            outcome=OutcomeRule(complete=frozenset({500})),
        ),
        "stripe": Profile(
            "For Stripe's API: a 500 is kept and replayed, the upstream gets the key, and connected accounts are scopes.",
            outcome=OutcomeRule(complete=frozenset({500})),
            forward_key="same",
            # Authorization stays out: restricted and rolled keys of one account must meet the same records.
            scope_headers=("stripe-account",),
        ),
        "acp": Profile(
            "For agentic commerce: no 5xx is kept and a retry is fresh. The cost: where the upstream acted before it failed, "
            "a retry acts again.",
            outcome=OutcomeRule(release=frozenset(range(500, 600))),
        ),
        "native": Profile(
            "For an upstream that honours keys itself: it gets the key, and what is unknown is asked again.",
            forward_key="same",
            on_unknown=OnUnknown.RETRY,
        ),
    }
)

BY_HOST: Final[Mapping[str, ProfileName]] = MappingProxyType({"api.stripe.com": "stripe"})
"""Upstreams that are known by their host."""


def choose(route: ProfileName | None, upstream: ProfileName | None, upstream_name: str, host: str) -> tuple[ProfileName, str]:
    """The profile of a route, and why: `("stripe", "stripe, by the upstream's host api.stripe.com")`."""
    if route is not None:
        return route, f"{route}, chosen by the route"
    if upstream is not None:
        return upstream, f"{upstream}, chosen by the upstream {upstream_name}"
    known = BY_HOST.get(host)
    if known is not None:
        return known, f"{known}, by the upstream's host {host}"
    return "strict", "strict, the default"
