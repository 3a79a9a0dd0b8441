"""What is allowed but seldom meant is told as a warning, with its path."""

from __future__ import annotations

import pytest

from tests.config.conftest import Load

UPSTREAM = "upstreams: {api: {url: 'http://127.0.0.1:9000'%s}}\n"
OTHER = "{name: other, match: {path: /other}, upstream: api, on_unknown: hold, profile: strict}"
ROUTES = f"routes:\n- {OTHER}\n- {{name: one, upstream: api, %s}}\n"
BLIND = (
    "on_unknown: forwards what may have happened again, to an upstream that never sees the key and cannot know it again: let it "
    "through with `forward_key: same`, unless the requests of this route may act twice without harm"
)


@pytest.mark.parametrize(
    ("upstream", "route"),
    [
        ("", "on_unknown: retry"),
        (", forward_key: same", "on_unknown: retry, forward_key: strip"),
        ("", "profile: native, forward_key: strip"),
        (", profile: native, forward_key: strip", "key: optional"),
    ],
)
def test_a_retry_that_the_upstream_cannot_know_again(upstream: str, route: str, loaded: Load) -> None:
    """With the key kept from the upstream, `on_unknown: retry` is told, whoever says it: route, upstream or profile."""
    assert (f"routes[1].{BLIND}",) == loaded(UPSTREAM % upstream + ROUTES % route).settings.warnings


def test_a_retry_of_a_configuration_without_routes(loaded: Load) -> None:
    """A route that was filled in is told with the path that `print-config` shows."""
    assert (f"routes[0].{BLIND}",) == loaded(UPSTREAM % ", profile: native, forward_key: strip").settings.warnings


@pytest.mark.parametrize(
    "route",
    [
        "on_unknown: hold",
        "on_unknown: retry, forward_key: same",
        "on_unknown: retry, forward_key: 'rename:X-Ref'",
        "on_unknown: retry, stamp: {json: /ref}",
        "on_unknown: retry, effect: read",
        "profile: native",
    ],
)
def test_no_warning_without_a_reason(route: str, loaded: Load) -> None:
    """An upstream that sees the key, and a route without writes, are no news."""
    assert () == loaded(UPSTREAM % "" + ROUTES % route).settings.warnings
