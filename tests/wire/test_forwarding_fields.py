"""What an upstream is told of who asked, and how the request came: on what route which fields, and whose word is believed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.wire.bytestream import Message
from tests.wire.client import ask, new_key, outcome, request, status
from tests.wire.combination import Combination
from tests.wire.upstream import Upstream, answers
from tests.wire.watched import Watched, watched

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOW = pytest.mark.parametrize(
    ("method", "keyed"), [("POST", True), ("POST", False), ("GET", False)], ids=["covered", "passed through", "read"]
)
VIA: Final = b"Via: 1.1 idemproxy"
ID: Final = b"X-Request-Id: r-1"
CLAIMS: Final = (
    b"Forwarded: for=10.0.0.1",
    b"x-forwarded-for: 10.0.0.1",
    b"X-Forwarded-For:  10.0.0.2, 10.0.0.3",
    b"X-Forwarded-Host: inner.example",
    b"X-Forwarded-Proto: ftp",
    b"X-Forwarded-Port: 443",
    b"X-Forwarded-Prefix: /shop",
    b"X-Forwarded-Server: edge",
    b"X-Real-IP: 10.0.0.1",
)


def _settings(upstream: Upstream, **more: object) -> dict[str, Any]:
    routes: dict[str, dict[str, object]] = {
        "custom": {"forwarded": "x-forwarded"},
        "standard": {"forwarded": "forwarded"},
        "preserved": {"preserve_host": True},
        "named": {"key": {"header": "X-Request-Id"}, "forward_key": "same"},
    }
    rules = [{"name": name, "match": {"host": name}, "upstream": "api", **rule} for name, rule in routes.items()]
    return {"upstreams": {"api": {"url": upstream.url}}, "routes": [*rules, {"name": "rest", "upstream": "api"}], **more}


@pytest.fixture(scope="module")
def friend(scripted: Upstream, combination: Combination) -> Iterator[Watched]:
    """A proxy that believes what a neighbour on its own machine says, as it does unless it is told otherwise."""
    with watched(_settings(scripted)) as running:
        yield running


@pytest.fixture(scope="module")
def stranger(scripted: Upstream, combination: Combination) -> Iterator[Watched]:
    """A proxy that believes proxies of another network only."""
    with watched(_settings(scripted, trusted_proxies=["192.0.2.0/24"])) as running:
        yield running


def _lines(upstream: Upstream, proxy: Watched, data: bytes) -> list[bytes]:
    """The field lines that the upstream got for a request, which is carried out."""
    upstream.plays(answers(OK))
    answer = ask(proxy.port, data)
    assert (200, b"ok") == (status(answer), answer.body), answer
    (arrived,) = upstream.requests
    return arrived.lines_without("content-length")


def _told(upstream: Upstream, proxy: Watched, *lines: bytes, method: str, keyed: bool) -> list[bytes]:
    """What it got of a request with a name, less the host, and the line of `Via` that is at the end."""
    data = request(method, "/x", *lines, ID, body=b"1", key=new_key() if keyed else None)
    *rest, via = [line for line in _lines(upstream, proxy, data) if not line.lower().startswith(b"host:")]
    assert VIA == via
    return rest


def _ids(message: Message) -> list[bytes]:
    return message.values("x-request-id")


# By default


@HOW
def test_only_the_way_and_a_name_are_told(upstream: Upstream, friend: Watched, method: str, *, keyed: bool) -> None:
    """`Via` and `X-Request-Id` stand at the end; of the client and its host the upstream, a third party, learns nothing."""
    *rest, via, name = _lines(upstream, friend, request(method, "/x", "A: 1", body=b"1", key=new_key() if keyed else None))

    assert [b"Host: " + upstream.url.partition("//")[2].encode(), b"A: 1"] == rest
    assert VIA == via
    assert re.fullmatch(rb"X-Request-Id: [0-9a-f]{32}", name)


@HOW
def test_via_says_what_the_client_spoke(upstream: Upstream, friend: Watched, method: str, *, keyed: bool) -> None:
    """HTTP/1.0 is called so, and earlier lines stay as they are (RFC 9110, section 7.6.3)."""
    data = request(method, "/x", "via: 1.0 first,1.1  second", ID, body=b"1", key=new_key() if keyed else None)

    lines = _lines(upstream, friend, data.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"))

    assert [b"via: 1.0 first,1.1  second", ID, b"Via: 1.0 idemproxy"] == lines[1:]


@HOW
def test_a_trace_goes_on_as_it_came(upstream: Upstream, friend: Watched, method: str, *, keyed: bool) -> None:
    """Byte for byte and line for line: this proxy is no part of it."""
    trace = (b"TraceParent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"tracestate: a=b", b"tracestate: c=d,e=f")

    assert [*trace, b"baggage: x=1;y", ID] == _told(upstream, friend, *trace, b"baggage: x=1;y", method=method, keyed=keyed)


# Whose word is believed


@HOW
def test_a_trusted_proxy_is_passed_on(upstream: Upstream, friend: Watched, method: str, *, keyed: bool) -> None:
    """What it says of a client goes on in order, with case and repeats."""
    expected = [*CLAIMS[:2], b"X-Forwarded-For: 10.0.0.2, 10.0.0.3", *CLAIMS[3:], ID]

    assert expected == _told(upstream, friend, *CLAIMS, method=method, keyed=keyed)


@HOW
@pytest.mark.parametrize("host", ["rest", "custom", "standard"])
def test_a_stranger_is_not_believed(upstream: Upstream, stranger: Watched, host: str, method: str, *, keyed: bool) -> None:
    """Its word on others is as if it had not been said, also in the spelling that a gateway would take for the same."""
    claims = (*CLAIMS, b"X_Forwarded_For: 10.0.0.1", b"X-Forwarded-User: root")
    named = b"Host: " + host.encode()

    with_claims = _told(upstream, stranger, named, *claims, method=method, keyed=keyed)

    assert _told(upstream, stranger, named, method=method, keyed=keyed) == with_claims
    assert b"10.0.0" not in b"".join(with_claims)


# Who asked


@HOW
def test_x_forwarded_begins_with_a_client_of_ours(
    upstream: Upstream, stranger: Watched, combination: Combination, method: str, *, keyed: bool
) -> None:
    """Its address, the host as it asked for it, and how, after its own fields."""
    scheme = b"https" if combination.client_tls else b"http"
    expected = [ID, b"X-Forwarded-For: 127.0.0.1", b"X-Forwarded-Host: Custom:81", b"X-Forwarded-Proto: " + scheme]

    assert expected == _told(upstream, stranger, b"Host: Custom:81", method=method, keyed=keyed)


@HOW
def test_x_forwarded_goes_on_where_a_trusted_proxy_left_off(
    upstream: Upstream, friend: Watched, method: str, *, keyed: bool
) -> None:
    """Addresses become one list, which most servers read; what that proxy has set is kept."""
    expected = [CLAIMS[0], b"X-Forwarded-For: 10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1", *CLAIMS[3:], ID]

    assert expected == _told(upstream, friend, b"Host: custom", *CLAIMS, method=method, keyed=keyed)


@HOW
def test_forwarded_is_one_element_more(
    upstream: Upstream, friend: Watched, combination: Combination, method: str, *, keyed: bool
) -> None:
    """As RFC 7239 writes it: a value that is no token in quotes, this proxy under a name that tells no address."""
    proto = b"https" if combination.client_tls else b"http"
    ours = b'for=127.0.0.1;host="standard:81";proto=%b;by=_idemproxy' % proto
    before = (b"Host: standard:81", b'forwarded: for="[::1]:1";proto=http')

    first = _told(upstream, friend, before[0], method=method, keyed=keyed)
    further = _told(upstream, friend, *before, method=method, keyed=keyed)

    assert [ID, b"Forwarded: " + ours] == first
    assert [before[1] + b", " + ours, ID] == further


@HOW
@pytest.mark.parametrize("host", ["custom", "standard"])
def test_nobody_can_have_it_taken_away(upstream: Upstream, friend: Watched, host: str, method: str, *, keyed: bool) -> None:
    """A client that lists the fields in `Connection` changes nothing: an upstream must not take the proxy for who asked."""
    listed = (
        b"Connection: close, Via, X-Request-Id, Forwarded, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, X-Real-IP",
        b"Host: " + host.encode(),
        b"X-Real-IP: 10.0.0.1",
    )

    assert _told(upstream, friend, *listed[1:], method=method, keyed=keyed) == _told(
        upstream, friend, *listed, method=method, keyed=keyed
    )


# Host


@HOW
def test_a_host_is_preserved_where_the_route_says_so(upstream: Upstream, friend: Watched, method: str, *, keyed: bool) -> None:
    """As the client wrote it, with case and port, where it stood."""
    data = request(method, "/x", "A: 1", "hOst: PRESERVED:81", ID, body=b"1", key=new_key() if keyed else None)

    assert [b"A: 1", b"hOst: PRESERVED:81", ID, VIA] == _lines(upstream, friend, data)


# The name of a request


@HOW
@pytest.mark.parametrize(
    "names", [(b"r-1",), (b"r-1", b"r-2"), (b"",), (b"r " * 100 + b'"',)], ids=["one", "two", "empty", "odd"]
)
def test_a_name_is_kept(upstream: Upstream, friend: Watched, names: tuple[bytes, ...], method: str, *, keyed: bool) -> None:
    """Whatever it is and however often it is there."""
    lines = [b"x-request-ID: " + name for name in names]

    found = _lines(upstream, friend, request(method, "/x", *lines, body=b"1", key=new_key() if keyed else None))

    assert [*lines, VIA] == found[1:]


@HOW
@pytest.mark.parametrize("name", [None, "r-1"], ids=["made", "sent"])
def test_the_log_knows_the_request_by_the_name_that_the_upstream_got(
    upstream: Upstream, friend: Watched, name: str | None, method: str, *, keyed: bool
) -> None:
    """So that a line of ours can be found beside one of theirs."""
    upstream.plays(answers(OK))
    path = f"/{new_key()}"
    fields = [] if name is None else [f"X-Request-Id: {name}"]

    ask(friend.port, request(method, path, *fields, body=b"1", key=new_key() if keyed else None))

    ([arrived], [line]) = upstream.requests, friend.told(path)
    assert [line["request_id"].encode()] == _ids(arrived)
    assert name in (None, line["request_id"])


def test_every_try_has_a_name_of_its_own(upstream: Upstream, friend: Watched) -> None:
    """A retry is another request for the same operation: replayed whatever is said of who asks, and logged by its own name."""
    upstream.plays(answers(OK))
    path, key = f"/{new_key()}", new_key()

    found = [
        ask(friend.port, request("POST", path, *fields, body=b"1", key=key))
        for fields in ((), ("X-Request-Id: r-2", "X-Forwarded-For: 10.0.0.1", "Via: 1.1 other"), ())
    ]

    first, second, third = (line["request_id"] for line in friend.told(path, 3))
    assert ["executed", "replayed", "replayed"] == [outcome(answer) for answer in found]
    assert [first.encode()] == _ids(upstream.requests[0])
    assert ("r-2", 3) == (second, len({first, second, third}))


def test_a_key_is_not_logged_as_a_name(upstream: Upstream, friend: Watched) -> None:
    """Neither where the route's keys stand in that field, nor where a client uses one value for both."""
    path, key, other = f"/{new_key()}", new_key(), new_key()
    both = request("POST", path, f"X-Request-Id: {key}", body=b"1", key=key)
    named = request("POST", path, "Host: named", f"X-Request-Id: {other}", body=b"1")

    found = [_lines(upstream, friend, data) for data in (both, named)]

    names = [line for lines in found for line in lines if line.startswith(b"X-Request-Id")]
    assert [b"X-Request-Id: " + name.encode() for name in (key, other)] == names
    assert [False, False] == ["request_id" in line for line in friend.told(path, 2)]
    assert [False, False] == [name.encode() in friend.log.read_bytes() for name in (key, other)]


def test_where_keys_stand_in_the_field_no_name_is_made(upstream: Upstream, friend: Watched) -> None:
    """An upstream must not take a name of ours for a key that the caller does not know."""
    assert [VIA] == _lines(upstream, friend, request("POST", "/x", "Host: named", body=b"1"))[1:]
