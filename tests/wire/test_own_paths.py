"""What a request's target may not do: go where no path leads, get past this proxy's own paths, or bring secrets into the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.upstream import Upstream, answers
from tests.wire.watched import Watched, watched

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
SECRET = "only-the-caller-knows"
BAD = (400, "bad-request", "no", "new_key")
NO_ROUTE = (404, "no-route", "no", "never")


@pytest.fixture(scope="module")
def prefixed(scripted: Upstream) -> Iterator[Watched]:
    """A proxy that takes a prefix away, and lets all other paths through as they are, but for OPTIONS."""
    settings = {
        "upstreams": {"api": {"url": scripted.url}},
        "routes": [
            {"name": "a", "match": {"path": "/a/**"}, "upstream": "api", "strip_prefix": "/a"},
            {"name": "odd", "match": {"path": "/-.~/%2F/**"}, "upstream": "api", "strip_prefix": "/-.~/%2F"},
            {"name": "rest", "match": {"methods": ["GET", "POST", "PUT", "DELETE"]}, "upstream": "api"},
        ],
    }
    with watched(settings) as running:
        yield running


def test_what_no_route_takes_costs_its_connection_only_with_a_body(prefixed: Watched) -> None:
    """Without one nothing is left unread, and the next request may follow; a body that may still come is not waited for."""
    with Client(prefixed.port) as client:
        found = [client.ask(request("OPTIONS", "/x")), client.ask(request("OPTIONS", "/x", body=b"12345"))]
        ended = client.ended()

    assert ([NO_ROUTE] * 2, True) == ([problem(answer) for answer in found], ended)
    assert [[], [b"close"]] == [answer.values("connection") for answer in found]


@HOW
@pytest.mark.parametrize("target", ["api.example:443", f"me:{SECRET}@api.example:443", "/x"])
def test_connect_is_refused_at_once(upstream: Upstream, prefixed: Watched, target: str, *, keyed: bool) -> None:
    """This proxy opens no tunnels, and a body after the head does not make the client wait for the answer."""
    upstream.plays(answers(OK))
    with Client(prefixed.port) as client:
        client.send(request("CONNECT", target, body=b"abc", key=new_key() if keyed else None))
        answer = client.message()

    assert ((405, *BAD[1:]), [b"close"]) == (problem(answer), answer.values("connection"))
    assert [b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"] == answer.values("allow")
    assert [] == upstream.lines


@HOW
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("target", ["/_idemproxy/x", "/_idemproxy/", "/_idemproxy/keys/1/2?wait=1", "/%5Fidem%70roxy/x"])
def test_this_proxys_own_paths_reach_no_upstream(
    upstream: Upstream, prefixed: Watched, method: str, target: str, *, keyed: bool
) -> None:
    """Where there is nothing of ours, there is nothing: what is asked of this proxy is not handed to another server."""
    upstream.plays(answers(OK))

    answer = ask(prefixed.port, request(method, target, body=b"1", key=new_key() if keyed else None))

    assert (NO_ROUTE, "") == (problem(answer), outcome(answer))
    assert [] == upstream.lines


@HOW
@pytest.mark.parametrize(
    ("target", "forwarded"),
    [
        ("/a/x", "/x"),
        ("/%61/x", "/x"),
        ("/%61/%78?y=%61", "/%78?y=%61"),
        ("/a", "/"),
        ("/%61", "/"),
        ("/%61?x=1", "/?x=1"),
        ("/%61//x", "//x"),
        ("/%61/a/x", "/a/x"),
        ("/-.~/%2F/x", "/x"),
        ("/-.~/%2f/x", "/x"),
        ("/%2d%2E%7e/%2f/x", "/x"),
        ("/%2D.%7E/%2F", "/"),
        ("/ab/x", "/ab/x"),
        ("/A/x", "/A/x"),
    ],
)
def test_a_prefix_goes_however_it_is_spelled(
    upstream: Upstream, prefixed: Watched, target: str, forwarded: str, *, keyed: bool
) -> None:
    """A spelling by which a route takes a request is one in which its prefix is found; the rest goes byte for byte."""
    upstream.plays(answers(OK))

    answer = ask(prefixed.port, request("POST", target, body=b"1", key=new_key() if keyed else None))

    assert 200 == status(answer)
    assert [f"POST {forwarded} HTTP/1.1".encode()] == [arrived.start for arrived in upstream.requests]


@pytest.mark.parametrize(
    "target",
    [
        f"http://me:{SECRET}@api.example/x",
        f"http://{SECRET}@api.example",
        f"https://me:{SECRET}@api.example:8443/x?y#z",
        f"me:{SECRET}@api.example:443",
        f"http://me:{SECRET}@[::1/x",
        f"/x#{SECRET}",
        f"//me:{SECRET}@api.example#x",
    ],
)
def test_credentials_in_a_target_leave_no_trace(upstream: Upstream, prefixed: Watched, target: str) -> None:
    """A target that is no path, or has more than path and query, is refused, and neither log holds any of it."""
    upstream.plays(answers(OK))
    last = f"/last/{new_key()}"

    answer = ask(prefixed.port, request("POST", target, body=b"1"))
    ask(prefixed.port, request("GET", last))
    prefixed.told(last)  # and so is what came before it

    assert (BAD, []) == (problem(answer), upstream.lines[:-1])
    assert SECRET not in prefixed.log.read_text()
    assert SECRET not in "".join(prefixed.program.told)


@pytest.mark.parametrize(
    ("method", "target", "fields"),
    [
        ("GET", "/x", ("X-Request-Id: {key}",)),
        ("POST", "/x", ("X-Request-Id: {key}",)),
        ("POST", "/x", ("X-Request-Id: 1, {key}", "X-Request-Id: 2")),
        ("POST", "/x", ("Idempotency-Key: other",)),
        ("PUT", "/orders/{key}", ()),
        ("GET", "/orders/{key}", ()),
        ("PUT", "/{key}/{key}.json?{key}", ()),
        ("GET", "/_idemproxy/keys/{key}", ()),
        ("GET", "/_idemproxy/keys/{key}/response?upstream={key}", ()),
        ("PUT", "/_idemproxy/workflows/{key}/memory", ()),
        ("GET", "//me:{key}@api.example/x", ()),
        ("PUT", "/nowhere/{key}", ("Host: b/d",)),
    ],
)
@pytest.mark.parametrize("spelling", ["{}", '"{}"'], ids=["bare", "quoted"])
def test_the_plain_key_leaves_no_trace(
    upstream: Upstream, prefixed: Watched, method: str, target: str, fields: tuple[str, ...], spelling: str
) -> None:
    """Of a write or a read, forwarded or refused: neither log holds it, wherever else in the request it stands."""
    upstream.plays(answers(OK))
    key, last = new_key(), f"/last/{new_key()}"

    said = [field.replace("{key}", key) for field in fields]
    ask(prefixed.port, request(method, target.replace("{key}", key), *said, body=b"1", key=spelling.format(key)))
    ask(prefixed.port, request("GET", last))
    prefixed.told(last)

    assert key not in prefixed.log.read_text()
    assert key not in "".join(prefixed.program.told)


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        ("{}", "{}", None),
        (r'"{}\"x"', r"{}\"x", None),
        (r'"{}\"x"', '{}"x', None),
        ("{}", "other", "other"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_id_that_tells_the_key_is_left_out(
    upstream: Upstream, prefixed: Watched, method: str, key: str, name: str, expected: str | None
) -> None:
    """Also of a read, for which the key is nothing, and also where the key is quoted and has escapes."""
    upstream.plays(answers(OK))
    path, secret = f"/{new_key()}", new_key()

    ask(prefixed.port, request(method, path, f"X-Request-Id: {name.format(secret)}", body=b"1", key=key.format(secret)))

    assert [expected] == [line.get("request_id") for line in prefixed.told(path)]
