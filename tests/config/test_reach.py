"""A route that those before it leave nothing is told, and no other, however many there are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.config.check import check
from idemproxy.config.fit import fit
from idemproxy.config.source import Document
from tests.config.conftest import Load

PROPERTY = settings(derandomize=True, deadline=None, max_examples=300)

PATHS = st.sampled_from(["/**", "/", "/a", "/a/**", "/a/b", "/a/b/**", "/a/*/**", "/a/*/b", "/*/b/**", "/ab", "//"])
MATCH = st.fixed_dictionaries(
    {"path": PATHS},
    optional={
        "host": st.sampled_from(["one.test", "ONE.test", "two.test"]),
        "methods": st.lists(st.sampled_from(["GET", "get", "POST", "PUT"]), min_size=1, max_size=2, unique=True),
    },
)


def takes_all_of(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether no request of the match `two` passes the match `one`; an unclear case counts as no."""
    a, b = one["path"], two["path"]
    is_below = a.endswith("/**") and "*" not in a[:-3] and (b == a[:-3] or b.startswith(a[:-2]))
    host = "host" not in one or one["host"].lower() == two.get("host", "").lower()
    methods = "methods" not in one or (
        "methods" in two and {name.upper() for name in two["methods"]} <= {name.upper() for name in one["methods"]}
    )
    return (a == b or is_below) and host and methods


@PROPERTY
@given(matches=st.lists(MATCH, min_size=2, max_size=6))
def test_what_is_never_reached_is_told(matches: list[dict[str, Any]]) -> None:
    """Comparing each route with all before it would find the same ones, and name the same first route for each."""
    routes = [{"name": f"r{number}", "upstream": "a", "match": match} for number, match in enumerate(matches)]
    document = Document({"upstreams": {"a": {"url": "http://127.0.0.1:9000"}}, "routes": routes})

    fitted = fit(document)
    check(fitted, document)

    text = "this route is never reached: 'r{}' before it takes all its requests; move it up, or delete it"
    first = [next((n for n in range(later) if takes_all_of(matches[n], match)), None) for later, match in enumerate(matches)]
    expected = [(("routes", later), text.format(number)) for later, number in enumerate(first) if number is not None]
    assert expected == [(problem.trail, problem.text) for problem in document.problems if "reached" in problem.text]


def test_routes_with_one_policy_hold_it_once(loaded: Load) -> None:
    """However many routes there are, what is promised on them is kept once for all that promise the same."""
    lines = (f"- {{name: r{n}, upstream: a, match: {{path: /r{n}}}, lease: {15 + n % 2}s}}\n" for n in range(6))

    found = loaded("upstreams: {a: {url: 'http://127.0.0.1:9000'}}\nroutes:\n" + "".join(lines)).settings.routes

    assert (6, 2) == (len(found), len({id(route.policy) for route in found}))
