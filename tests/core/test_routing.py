"""Of the routes that take a request the first gets it, and it is found without asking every one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Request
from idemproxy.core.policy import Effect, Route, comparable_path, compile_path
from idemproxy.core.routing import RouteTable

PROPERTY = settings(derandomize=True, deadline=None, max_examples=400)


def match(routes: Sequence[Route], request: Request, host: bytes) -> Route | None:
    """What a table of these routes says."""
    return RouteTable(routes).match(request, comparable_path(request.path), host)


ROUTES = (
    Route("charges", "payments", compile_path("/v1/charges"), methods=frozenset({"POST"})),
    Route("search", "payments", compile_path("/v1/search"), effect=Effect.READ),
    Route("klm", "airline", compile_path("/airline/**"), host=b"klm.test"),
    Route("seats", "airline", compile_path("/airline/**"), strip_prefix=b"/airline"),
    Route("rest", "payments", compile_path("/v1/**")),
)


@pytest.mark.parametrize(
    ("method", "target", "host", "expected"),
    [
        ("POST", b"/v1/charges", b"", "charges"),
        ("POST", b"/v1/charges?x", b"any.test", "charges"),
        ("GET", b"/v1/charges", b"", "rest"),
        ("post", b"/v1/charges", b"", "rest"),
        ("POST", b"/v1/charges/1", b"", "rest"),
        ("POST", b"/v1/search", b"", "search"),
        ("DELETE", b"/airline/seats/1", b"klm.test", "klm"),
        ("DELETE", b"/airline/seats/1", b"a.klm.test", "seats"),
        ("DELETE", b"/airline/seats/1", b"", "seats"),
        ("POST", b"/v2/charges", b"", None),
        ("POST", b"/", b"klm.test", None),
    ],
)
def test_first_route_that_takes_it(method: str, target: bytes, host: bytes, expected: str | None) -> None:
    """Routes match in order, by method, path and host; where none takes a request there is none."""
    found = match(ROUTES, Request(method, target, ()), host)
    assert expected == (found and found.name)


def test_order_decides() -> None:
    """Of two routes that take a request, the one that stands first gets it."""
    narrow, wide = Route("narrow", "u", compile_path("/a")), Route("wide", "u")
    request = Request("POST", b"/a", ())
    assert (narrow, wide) == (match((narrow, wide), request, b""), match((wide, narrow), request, b""))


def test_a_route_without_conditions_takes_all() -> None:
    """What a route does not name, it does not ask for."""
    route = Route("all", "u")
    requests = [Request(method, target, ()) for method in ("GET", "POST", "PURGE") for target in (b"/", b"/a/b?c", b"//")]
    assert [route] * 9 == [match((route,), request, b"host.test") for request in requests]


# The table and the order


def scan(routes: Sequence[Route], request: Request, host: bytes) -> Route | None:
    """What the table must say: each route is asked in its turn."""
    path = comparable_path(request.path)
    return next((route for route in routes if route.takes(request, path, host)), None)


# Few words, so that routes and requests meet; in several spellings, with and without stars.
PIECES = st.sampled_from(["a", "b", "a.b", "%61", "%2F", "%2f", "%", ""])
STARRED = st.sampled_from(["*", "a*", "*b", "%2A"])
PATTERNS = st.builds(
    lambda pieces, end: "/" + "/".join(pieces) + end, st.lists(PIECES | STARRED, max_size=3), st.sampled_from(["", "/**"])
)
HOSTS = st.sampled_from([b"one.test", b"two.test"])
METHODS = st.sampled_from(["GET", "POST"])
ROUTE = st.builds(
    lambda path, host, methods: Route("r", "u", path and compile_path(path), methods=methods, host=host),
    st.none() | PATTERNS,
    st.none() | HOSTS,
    st.none() | st.frozensets(METHODS, min_size=1),
)
TARGETS = st.builds(
    lambda pieces, query: ("/" + "/".join(pieces) + query).encode("ascii"),
    st.lists(PIECES | st.sampled_from(["*", "ab", "%2A", "c"]), max_size=5),
    st.sampled_from(["", "?", "?a/b"]),
)


@PROPERTY
@given(
    routes=st.lists(ROUTE, max_size=8),
    requests=st.lists(st.tuples(METHODS, TARGETS | st.just(b"*"), HOSTS | st.just(b"")), min_size=1, max_size=8),
)
def test_the_table_says_what_the_order_says(routes: list[Route], requests: list[tuple[str, bytes, bytes]]) -> None:
    """Whatever the routes are, a table finds the one that asking each in its turn would find."""
    numbered = [replace(route, name=str(number)) for number, route in enumerate(routes)]
    table = RouteTable(numbered)
    asked = [(Request(method, target, ()), host) for method, target, host in requests]

    expected = [scan(numbered, request, host) for request, host in asked]
    assert expected == [table.match(request, comparable_path(request.path), host) for request, host in asked]


class Asked(Route):
    """A route that keeps count of how often any such is asked."""

    times = 0

    def takes(self, request: Request, path: bytes, host: bytes) -> bool:
        """As the base has it."""
        Asked.times += 1
        return super().takes(request, path, host)


@pytest.mark.parametrize(
    ("path", "host", "target"),
    [
        ("/r{}", "any.test", b"/r999"),
        ("/v1/r{}/**", "any.test", b"/v1/r999/charges/7"),
        ("/*/r{}/**", "any.test", b"/v1/r999/charges/7"),
        ("/v1/*/r{}", "any.test", b"/v1/acme/r999"),
        ("/**", "r{}.test", b"/v1/charges"),
    ],
    ids=["by path", "by prefix", "behind a star, by prefix", "behind a star", "by host"],
)
def test_the_last_of_a_thousand_is_the_only_one_asked(path: str, host: str, target: bytes) -> None:
    """Routes that differ in a whole segment, or in their host, cost a request nothing unless they may take it."""
    names = map(str, range(1_000))
    routes = [Asked(name, "u", compile_path(path.format(name)), host=host.format(name).encode()) for name in names]
    table = RouteTable(routes)
    Asked.times = 0

    found = table.match(Request("POST", target, ()), target, host.format(999).encode())

    assert (routes[999], 1) == (found, Asked.times)
