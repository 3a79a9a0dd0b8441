"""A request reaches the upstream as the client wrote it, but for what belongs to one hop, to this proxy, or to its framing."""

from __future__ import annotations

import gzip
import re
from itertools import chain

import pytest

from tests.wire.client import ask, new_key, outcome, problem, request, status
from tests.wire.upstream import Upstream, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOW = pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
EVERY_BYTE = bytes(range(256)) * 5
TARGETS = (
    b"/",
    b"/a%2fb%2F",
    b"/%7Euser/%41",
    b"/a/../b/./c/..",
    b"/x[1]?y[2]=3",
    b"/x?",
    b"/x??a&&b=c=d&",
    b"//host/x",
    b"/a//b///",
    b"/%zz?q=%",
    b"/x;p=1?a=b&a=c+d%20e",
    b"/x?to=http://other.example/%3F",
    b'/a\\b|c{d}^`"<>',
    b"/@:80/..;/",
    b"/?",
    b"/%2e%2E/.%2e/%2F%2f",
    b"/%00%0d%0a%ff%C3%A9",
    b"/x?a[b]=1&a[b]=2&%7E=%7e&;",
    b"/:80/http://other.example/",
    b"/" + b"a" * 8000,
)


# What says how the request came, and what it is called: test_forwarding_fields.py looks at it.
_OF_THE_WAY = re.compile(rb"\r\n(?:Via: 1\.[01] idemproxy|X-Request-Id: [0-9a-f]{32})(?=\r\n)")


def _sent(upstream: Upstream, port: int, data: bytes) -> bytes:
    """What the upstream got for `data`, which is carried out: less what says how it came, and with a name for the upstream."""
    upstream.plays(answers(OK))
    answer = ask(port, data)
    assert (200, b"ok") == (status(answer), answer.body), answer
    (arrived,) = upstream.requests
    head, end, body = arrived.raw.partition(b"\r\n\r\n")
    return _without_the_way(head + end).replace(b"127.0.0.1:%d" % upstream.port, b"the upstream") + body


def _without_the_way(head: bytes) -> bytes:
    return _OF_THE_WAY.sub(b"", head)


def _key(*, keyed: bool) -> str | None:
    return new_key() if keyed else None


@HOW
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[:20].decode())
def test_the_target_goes_byte_for_byte(upstream: Upstream, port: int, target: bytes, *, keyed: bool) -> None:
    """Nothing in a path or query is decoded, resolved, merged or quoted anew."""
    sent = _sent(upstream, port, request("POST", target, body=b"1", key=_key(keyed=keyed)))

    assert b"POST " + target + b" HTTP/1.1\r\nHost: the upstream\r\nContent-Length: 1\r\n\r\n1" == sent


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "DELETE", "QUERY", "PROPFIND"])
def test_no_field_is_added(upstream: Upstream, port: int, method: str) -> None:
    """No Accept, no User-Agent, no length: a request without fields and body has none at the upstream."""
    assert f"{method} /x HTTP/1.1\r\nHost: the upstream\r\n\r\n".encode() == _sent(upstream, port, request(method, "/x"))


@HOW
def test_fields_keep_order_case_repeats_and_bytes(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """Every line is there, in its place, with its spelling; Host is renamed where it stands."""
    before = (b"accept: */*", b"X-Repeat: 1", b"x-repeat: 2", b"X-REPEAT: ", b"x!#$%&'*+-.^_`|~9: 1")
    after = (
        b"ACCEPT-encoding: gzip, br;q=0.5",
        b"X-Repeat: 1",
        b"X-Empty: ",
        b"X-Text: '~!{}",
        b'X-Spaces: a  b\tc ",;="',
        b"Cookie: a=b",
        b"Cookie: c=d",
        b"user-agent: me",
        b"Authorization: Bearer x",
        b"Date: today",
        b"Content-Type: text/plain; charset=x",
        b'If-Match: W/"1"',
        b"Range: bytes=0-1",
        b"traceparent: 00-1-2-01",
        b"Forwarded: for=1",
        b"X-Forwarded-For: 1",
        b"Via: 1.0 other",
        b"Prefer: wait=1",
    )

    sent = _sent(upstream, port, request("PUT", "/x", *before, b"hOsT: proxy.example", *after, body=b"1", key=_key(keyed=keyed)))

    expected = (b"PUT /x HTTP/1.1", *before, b"hOsT: the upstream", *after, b"Content-Length: 1", b"", b"1")
    assert b"\r\n".join(expected) == sent


@HOW
def test_white_space_around_a_value_is_not_part_of_it(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """One space stands before each value, however many the client wrote (RFC 9112, section 5.1)."""
    sent = _sent(upstream, port, request("PUT", "/x", "A:1", "B:  2\t ", "C:\t3", body=b"", key=_key(keyed=keyed)))

    assert b"PUT /x HTTP/1.1\r\nHost: the upstream\r\nA: 1\r\nB: 2\r\nC: 3\r\nContent-Length: 0\r\n\r\n" == sent


@HOW
def test_what_belongs_to_one_hop_ends_here(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """Hop-by-hop fields, and those that Connection names, do not go on; what may not be named there does."""
    hop = (
        "Connection: keep-alive, X-Hop,x-other , Content-Type, Authorization",
        "connection: X-Third",
        "Keep-Alive: timeout=5",
        "Proxy-Authorization: Basic x",
        "Proxy-Connection: keep-alive",
        "TE: trailers",
        "Trailer: X-Checksum",
        "Upgrade: h2c",
        "X-Hop: 1",
        "x-other: 2",
        "X-THIRD: 3",
    )
    kept = ("X-Hopping: 1", "Content-Type: text/plain", "Authorization: Bearer x")
    lines = chain.from_iterable(zip(hop, (*kept, *[None] * len(hop)), strict=False))

    sent = _sent(upstream, port, request("PUT", "/x", *[line for line in lines if line], body=b"1", key=_key(keyed=keyed)))

    head, _, body = sent.partition(b"\r\n\r\n")
    expected = ["PUT /x HTTP/1.1", "Host: the upstream", *kept, "Content-Length: 1"]
    assert expected == head.decode().split("\r\n")
    assert b"1" == body


@HOW
def test_what_only_this_proxy_may_say_is_not_taken_from_a_client(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """An upstream cannot be told by a client that something was replayed or refused."""
    forged = ("Idempotency-Status: executed", "IDEMPOTENT-replayed: true", "proxy-status: idemproxy")

    sent = _sent(upstream, port, request("PUT", "/x", *forged, "X-Last: 1", body=b"1", key=_key(keyed=keyed)))

    assert b"PUT /x HTTP/1.1\r\nHost: the upstream\r\nX-Last: 1\r\nContent-Length: 1\r\n\r\n1" == sent


@pytest.mark.parametrize(
    ("host", "line"),
    [("any", b""), ("same", b"idempotency-KEY: %b\r\n"), ("renamed", b"x-operation: %b\r\n")],
    ids=["strip", "same", "rename"],
)
def test_the_key_goes_as_the_route_says(upstream: Upstream, port: int, host: str, line: bytes) -> None:
    """By default the upstream does not see the key; else it does, in its place, and spelled in one way however it came."""
    for spelling in (b'"%b"', b"%b"):
        key = new_key().encode()
        fields = (b"Host: " + host.encode(), b"A: 1", b"idempotency-KEY: " + spelling % key, b"x-operation: mine", b"B: 2")

        sent = _sent(upstream, port, request("PUT", "/x", *fields, body=b"1"))

        told = line % key if line else b""
        own = b"" if host == "renamed" else b"x-operation: mine\r\n"
        head = b"PUT /x HTTP/1.1\r\nHost: the upstream\r\nA: 1\r\n" + told + own + b"B: 2\r\nContent-Length: 1\r\n\r\n"
        assert head + b"1" == sent


@pytest.mark.parametrize(("host", "line"), [("same", b"Idempotency-Key: %b\r\n"), ("renamed", b"x-operation: %b\r\n")])
def test_a_client_cannot_take_the_key_from_the_upstream(upstream: Upstream, port: int, host: str, line: bytes) -> None:
    """A key that `Connection` lists is forwarded all the same: without it the upstream would not know a retry."""
    key = new_key().encode()
    fields = (b"Host: " + host.encode(), b"Connection: close, Idempotency-Key", b"Idempotency-Key: " + key)

    sent = _sent(upstream, port, request("PUT", "/x", *fields, body=b"1"))

    assert b"PUT /x HTTP/1.1\r\nHost: the upstream\r\n" + line % key + b"Content-Length: 1\r\n\r\n1" == sent


@HOW
@pytest.mark.parametrize("coding", [b"identity", b"gzip", b"br, x-own"])
def test_body_bytes_go_as_they_are(upstream: Upstream, port: int, coding: bytes, *, keyed: bool) -> None:
    """Whatever the content coding, and whether or not the body is what it says, nobody looks inside."""
    body = gzip.compress(EVERY_BYTE) if coding == b"gzip" else EVERY_BYTE
    fields = (b"Content-Length: %d" % len(body), b"Content-Encoding: " + coding, b"Content-Type: application/json")

    sent = _sent(upstream, port, request("POST", "/x", *fields, key=_key(keyed=keyed)) + body)

    assert b"POST /x HTTP/1.1\r\nHost: the upstream\r\n" + b"\r\n".join([*fields, b"", body]) == sent


@HOW
@pytest.mark.parametrize("body", [b"", b"12345", EVERY_BYTE], ids=len)
def test_a_chunked_body_arrives_whole_in_a_framing_of_ours(upstream: Upstream, port: int, body: bytes, *, keyed: bool) -> None:
    """The framing stands where the client's stood: a length once the body is known, else chunks of ours; never both."""
    chunks = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in (body[:3], body[3:]) if piece)
    head = request("POST", "/x", "A: 1", "transfer-encoding: Chunked", "B: 2", key=_key(keyed=keyed))
    upstream.plays(answers(OK))

    answer = ask(port, head + chunks + b"0\r\nX-Trailer: 1\r\n\r\n")

    (arrived,) = upstream.requests
    framing = b"Content-Length: %d" % len(body) if keyed else b"Transfer-Encoding: chunked"
    assert (200, body) == (status(answer), arrived.body)
    assert [b"A: 1", framing, b"B: 2"] == arrived.lines_without("host", "via", "x-request-id")
    assert () == arrived.trailers


@HOW
def test_a_large_body_arrives_whole(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """Eight megabytes, in the order in which they were sent."""
    body = b"".join(b"%07d\n" % number for number in range(1_000_000))
    upstream.plays(answers(OK))

    answer = ask(port, request("PUT", "/x", body=body, key=_key(keyed=keyed)))

    assert 200 == status(answer)
    assert body == upstream.requests[0].body


@HOW
def test_an_http_1_0_request_without_a_host_gets_one(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """What goes out is HTTP/1.1, which is not valid without (RFC 9112, section 3.2)."""
    key = b"Idempotency-Key: %b\r\n" % new_key().encode() if keyed else b""

    sent = _sent(upstream, port, b"POST /x HTTP/1.0\r\nA: 1\r\n" + key + b"Content-Length: 1\r\n\r\n1")

    assert b"POST /x HTTP/1.1\r\nHost: the upstream\r\nA: 1\r\nContent-Length: 1\r\n\r\n1" == sent


@HOW
@pytest.mark.parametrize("length", [b"1", b"0001"])
def test_the_length_is_counted_and_not_copied(upstream: Upstream, port: int, length: bytes, *, keyed: bool) -> None:
    """However a client writes the number, the upstream reads it in one way only."""
    sent = _sent(upstream, port, request("PUT", "/x", b"CONTENT-length: " + length, "A: 1", key=_key(keyed=keyed)) + b"1")

    assert b"PUT /x HTTP/1.1\r\nHost: the upstream\r\nContent-Length: 1\r\nA: 1\r\n\r\n1" == sent


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "DELETE", "REPORT"])
@pytest.mark.parametrize("body", [b"", b"12345"], ids=["empty", "five bytes"])
def test_any_method_may_have_a_body(upstream: Upstream, port: int, method: str, body: bytes) -> None:
    """What a client sends with a read goes on with it, and an announced empty body stays announced."""
    expected = f"{method} /x HTTP/1.1\r\nHost: the upstream\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    assert expected == _sent(upstream, port, request(method, "/x", body=body))


@HOW
def test_nothing_of_one_client_reaches_the_request_of_the_next(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """Cookies are the client's to keep: the proxy has none, on the same connection to the upstream or another."""
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: session=1; Path=/\r\nContent-Length: 2\r\n\r\nok"
    upstream.plays(answers(cookie))

    found = [ask(port, request("POST", "/x", *cookies, body=b"1", key=_key(keyed=keyed))) for cookies in (["Cookie: a=b"], [])]

    assert [[b"session=1; Path=/"]] * 2 == [answer.values("set-cookie") for answer in found]
    assert [[b"a=b"], []] == [arrived.values("cookie") for arrived in upstream.requests]


@HOW
def test_a_transfer_coding_that_would_be_lost_is_refused(upstream: Upstream, port: int, *, keyed: bool) -> None:
    """The field that names a coding does not go on, so a body in any coding but chunked does not either."""
    upstream.plays(answers(OK))

    answer = ask(port, request("POST", "/x", "Transfer-Encoding: gzip, chunked", key=_key(keyed=keyed)) + b"0\r\n\r\n")

    assert (400, "bad-request", "no", "new_key") == problem(answer)
    assert "refused" == outcome(answer)
    assert [] == upstream.requests
