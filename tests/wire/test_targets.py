"""The form of a target decides nothing about where a request goes: a target that names any other server is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.combination import current
from tests.wire.upstream import Upstream, answers
from tests.wire.watched import Watched, watched

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
BAD = (400, "bad-request", "no", "new_key")


@pytest.fixture(scope="module")
def routed(scripted: Upstream) -> Iterator[Watched]:
    """A proxy with a route for one host, with a base path upstream and a prefix that goes, and one for the rest."""
    settings = {
        "upstreams": {"based": {"url": f"{scripted.url}/base"}, "api": {"url": scripted.url}},
        "routes": [
            {"name": "own", "match": {"host": "own.example", "path": "/a/**"}, "upstream": "based", "strip_prefix": "/a"},
            {"name": "rest", "upstream": "api"},
        ],
    }
    with watched(settings) as running:
        yield running


def _sent(upstream: Upstream, port: int, data: bytes) -> bytes:
    """The target that the upstream got."""
    upstream.plays(answers(OK))
    assert 200 == status(ask(port, data))
    (arrived,) = upstream.requests
    assert arrived.values("host") == [b"127.0.0.1:%d" % upstream.port]
    return arrived.start.split(b" ")[1]


def _here(text: str) -> str:
    """The text with `own`, the scheme of the listener, its `port`, and the `other` ones, of which Host says nothing."""
    plain, tls = ("http", "80"), ("https", "443")
    (own, port), (other, other_port) = (tls, plain) if current().client_tls else (plain, tls)
    return text.format(own=own, OWN=own.upper(), port=port, other=other, other_port=other_port)


def _key(*, keyed: bool) -> str | None:
    return new_key() if keyed else None


@HOW
@pytest.mark.parametrize(
    ("target", "host", "path"),
    [
        ("{own}://me.example/x", "me.example", "/x"),
        ("{own}://me.example/%7E/../a//b?c=%2f&d", "me.example", "/%7E/../a//b?c=%2f&d"),
        ("{OWN}://ME.example:{port}/x", "me.EXAMPLE", "/x"),
        ("{own}://me.example/x", "me.example:{port}", "/x"),
        ("{other}://me.example:{port}/x", "me.example", "/x"),
        ("{other}://me.example/x", "me.example:{other_port}", "/x"),
        ("http://me.example:8080/x", "me.example:8080", "/x"),
        ("{own}://me.example:/x", "me.example", "/x"),
        ("http://[::1]:8080/x", "[::1]:8080", "/x"),
        ("{own}://me.example", "me.example", "/"),
        ("{own}://me.example?q=1", "me.example", "/?q=1"),
        ("{own}://me.example//other.example/x", "me.example", "//other.example/x"),
        ("{own}://me.example/http://other.example/", "me.example", "/http://other.example/"),
    ],
)
def test_an_absolute_target_is_its_path(upstream: Upstream, port: int, target: str, host: str, path: str, *, keyed: bool) -> None:
    """Where it names the server that Host names, the request is the one with the path alone, byte for byte."""
    asked = request("POST", _here(target), f"Host: {_here(host)}", body=b"1", key=_key(keyed=keyed))

    assert path.encode() == _sent(upstream, port, asked)


def test_both_forms_are_one_operation(upstream: Upstream, port: int) -> None:
    """A retry through a client that writes absolute targets is the same request, and is replayed."""
    upstream.plays(answers(OK))
    key = new_key()
    first = ask(port, request("POST", "/x?y", "Host: me.example", body=b"1", key=key))
    again = ask(port, request("POST", _here("{own}://me.example/x?y"), "Host: me.example", body=b"1", key=key))

    assert ["executed", "replayed"] == [outcome(first), outcome(again)]
    assert 1 == len(upstream.requests)


@HOW
@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ("{own}://other.example/x", ["Host: me.example"]),
        ("{own}://me.example:8080/x", ["Host: me.example"]),
        ("{own}://me.example/x", ["Host: me.example:8080"]),
        ("{other}://me.example/x", ["Host: me.example"]),
        ("{other}://me.example:{other_port}/x", ["Host: me.example"]),
        ("{own}://me.example:{other_port}/x", ["Host: me.example"]),
        ("{own}://me.example/x", ["Host: me.example:{other_port}"]),
        ("{own}://me.example.evil.example/x", ["Host: me.example"]),
        ("{own}://me@me.example/x", ["Host: me.example"]),
        ("{own}://me:secret@me.example/x", ["Host: me.example"]),
        ("{own}://me.example%2fevil/x", ["Host: me.example"]),
        ("{own}://me.example\\@evil.example/x", ["Host: me.example"]),
        ("{own}://:80/x", ["Host: me.example"]),
        ("ftp://me.example/x", ["Host: me.example"]),
        ("me.example/x", ["Host: me.example"]),
        ("http:/me.example/x", ["Host: me.example"]),
        ("{own}:///x", ["Host: me.example"]),
        ("*", ["Host: me.example"]),
        ("x", ["Host: me.example"]),
        ("?x", ["Host: me.example"]),
        ("/x#y", ["Host: me.example"]),
        ("{own}://me.example#y", ["Host: me.example"]),
    ],
)
def test_what_names_another_server_or_none_is_refused(
    upstream: Upstream, port: int, target: str, lines: list[str], *, keyed: bool
) -> None:
    """This is no forward proxy, and no place to find out how somebody else would read such a target."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        client.send(request("POST", _here(target), *map(_here, lines), body=b"1", key=_key(keyed=keyed)))
        answer = client.message()

    assert (BAD, "refused", [b"close"]) == (problem(answer), outcome(answer), answer.values("connection"))
    assert [] == upstream.lines


@HOW
@pytest.mark.parametrize("target", ["*", "{own}://me.example"])
def test_what_asks_about_a_server_is_refused(upstream: Upstream, port: int, target: str, *, keyed: bool) -> None:
    """`OPTIONS *`, and the absolute target that stands for it (RFC 9112, section 3.2.4), do not become a question about `/`."""
    answer = ask(port, request("OPTIONS", _here(target), "Host: me.example", key=_key(keyed=keyed)))

    assert (BAD, [b"close"]) == (problem(answer), answer.values("connection"))
    assert [] == upstream.lines


@HOW
@pytest.mark.parametrize(
    ("host", "target", "forwarded"),
    [
        ("any", "//other.example/x", "//other.example/x"),
        ("any", "//other.example:1@x", "//other.example:1@x"),
        ("any", "///x", "///x"),
        ("own.example", "/a//other.example/x", "/base//other.example/x"),
        ("own.example", "/a/@other.example/x", "/base/@other.example/x"),
        ("own.example", "/a?http://other.example", "/base/?http://other.example"),
        ("OWN.example:8443", "/a/x", "/base/x"),
    ],
)
def test_no_path_changes_the_upstream(
    upstream: Upstream, routed: Watched, host: str, target: str, forwarded: str, *, keyed: bool
) -> None:
    """Two slashes are a path, before a prefix is taken away and after: the server is the configured one."""
    sent = _sent(upstream, routed.port, request("POST", target, f"Host: {host}", body=b"1", key=_key(keyed=keyed)))

    assert forwarded.encode() == sent


def test_an_absolute_target_is_routed_and_told_as_its_path(upstream: Upstream, routed: Watched) -> None:
    """The route's host and path are those of the target, and the access log has the path alone."""
    sent = _sent(upstream, routed.port, request("GET", _here("{own}://own.example/a/told?q=1"), "Host: own.example"))
    (told,) = routed.told("/a/told")

    assert (b"/base/told?q=1", "own") == (sent, told["route"])


@HOW
@pytest.mark.parametrize(
    "lines",
    [
        ["Host:"],
        ["Host: a b"],
        ["Host: a;b c"],
        ["Host: a/b"],
        ["Host: me@a"],
        ["Host: a:b"],
        ["Host: a:123456"],
        ["Host: [::1"],
        ["Host: ::1"],
        ["Host: http://a"],
        ["Host: a?b"],
        ["Host: a%zz"],
        ["Host: a", "host: a"],
        ["Host: a", "Host: b"],
    ],
    ids=str,
)
def test_a_request_names_one_host(upstream: Upstream, port: int, lines: list[str], *, keyed: bool) -> None:
    """No second Host field and none that is no host with a port (RFC 9112, section 3.2): 400, and the end of the connection."""
    upstream.plays(answers(OK))
    with Client(port) as client:
        client.send(request("POST", "/x", *lines, body=b"1", key=_key(keyed=keyed)))
        answer = client.message()

    assert (BAD, [b"close"]) == (problem(answer), answer.values("connection"))
    assert [] == upstream.lines


@pytest.mark.parametrize(
    "host", ["a", "A_b-c.example", "a,b", "a.example.", "a:", "a:65535", "[::1]", "[::1]:80", "127.0.0.1:80", "%61"]
)
def test_a_host_may_be_any_name(upstream: Upstream, port: int, host: str) -> None:
    """What is a host by RFC 3986, section 3.2.2, is one here, too: names in a private network do not keep to those of the DNS."""
    assert b"/x" == _sent(upstream, port, request("GET", "/x", f"Host: {host}"))
