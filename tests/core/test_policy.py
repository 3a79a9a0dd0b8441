"""Routes take what their patterns say, whatever the spelling; the defaults are those of the contract, section 10."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Request
from idemproxy.core.policy import (
    Effect,
    ForwardKey,
    OnExpired,
    OnUnknown,
    Policy,
    Route,
    Timeouts,
    Upstream,
    comparable_path,
    compile_path,
    without_prefix,
)

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)
UNRESERVED = string.ascii_letters + string.digits + "-._~"  # RFC 3986, section 2.3


def taken(pattern: str, target: bytes) -> bool:
    """Whether a route with this path pattern takes a GET of this target."""
    request = Request("GET", target, ())
    return Route("only", "u", compile_path(pattern)).takes(request, comparable_path(request.path), b"")


# Path patterns


@pytest.mark.parametrize(
    ("pattern", "target", "expected"),
    [
        ("/v1/charges", b"/v1/charges", True),
        ("/v1/charges", b"/v1/charges?expand=a/b", True),
        ("/v1/charges", b"/v1/charges?", True),
        ("/v1/charges", b"/v1/charges/", False),
        ("/v1/charges", b"/v1/charges/ch_1", False),
        ("/v1/charges", b"/v1/charge", False),
        ("/v1/charges", b"/v1/Charges", False),
        ("/v1/charges", b"/x/v1/charges", False),
        ("/v1/charges", b"/v1/charges\n", False),
        ("/v1/charges", b"/v1/charges%0A", False),
        ("/", b"/", True),
        ("/", b"/a", False),
        ("/v1.0/a+b/(c)/[d]$", b"/v1.0/a+b/(c)/[d]$", True),
        ("/v1.0", b"/v1x0", False),
        ("/a+", b"/aa", False),
        # one star crosses no slash
        ("/v1/*/capture", b"/v1/ch_1/capture", True),
        ("/v1/*/capture", b"/v1/ch_1/x/capture", False),
        ("/v1/*/capture", b"/v1/capture", False),
        ("/v1/*/capture", b"/v1/a%2Fb/capture", True),
        ("/v1/*", b"/v1/ch_1", True),
        ("/v1/*", b"/v1/ch_1/capture", False),
        ("/v1/*", b"/v1", False),
        ("/v1/ch_*", b"/v1/ch_1", True),
        ("/v1/ch_*", b"/v1/re_1", False),
        ("/*/*", b"/a/b", True),
        ("/*/*", b"/a", False),
        ("/*/*", b"/a/b/c", False),
        # two stars cross slashes
        ("/airline/**", b"/airline/seats", True),
        ("/airline/**", b"/airline/seats/12/A", True),
        ("/airline/**", b"/airline/", True),
        ("/airline/**", b"/airline", True),
        ("/airline/**", b"/airline?x=1", True),
        ("/airline/**", b"/airlines", False),
        ("/airline/**", b"/airlines/seats", False),
        ("/airline/**", b"/an/airline/seats", False),
        ("/airline/**", b"/airline/a\nb", True),
        ("/*/seats/**", b"/klm/seats/12/A", True),
        ("/*/seats/**", b"/klm/x/seats/12", False),
        ("/**", b"/", True),
        ("/**", b"/a/b/c", True),
        ("/**", b"//", True),
    ],
)
def test_path_patterns(pattern: str, target: bytes, *, expected: bool) -> None:
    """A pattern takes whole paths without their query: `*` crosses no slash, `**` does, and all else is itself."""
    assert expected == taken(pattern, target)


@pytest.mark.parametrize(
    ("pattern", "target", "expected"),
    [
        ("/v1/charges", b"/v1/%63harges", True),
        ("/v1/charges", b"/%76%31/%63%68%61%72%67%65%73", True),
        ("/a-b.c_d~e", b"/a%2Db%2ec%5Fd%7ee", True),
        ("/a%7Eb", b"/a~b", True),
        ("/%63harges/**", b"/charges/1", True),
        ("/caf%C3%A9", b"/caf%c3%a9", True),
        ("/caf%c3%a9", b"/caf%C3%A9", True),
        ("/a%2Fb", b"/a%2fb", True),
        # what is reserved is another character when it is escaped
        ("/a/b", b"/a%2Fb", False),
        ("/a%2Fb", b"/a/b", False),
        ("/a:b", b"/a%3Ab", False),
        # an escape is undone once, and what is no escape stays
        ("/charges", b"/%2563harges", False),
        ("/%zz", b"/%zz", True),
        ("/100%", b"/100%", True),
        ("/%2A", b"/x", False),
        ("/%2A", b"/%2a", True),
    ],
)
def test_spelling(pattern: str, target: bytes, *, expected: bool) -> None:
    """Equivalent spellings of a path (RFC 3986, section 6.2.2) are one path, in patterns and in requests alike."""
    assert expected == taken(pattern, target)


def test_every_escape() -> None:
    """Exactly the escaped unreserved characters are those characters; every other escape stays one, in upper case."""
    expected = {octet: chr(octet) if chr(octet) in UNRESERVED else f"%{octet:02X}" for octet in range(256)}
    lower = {octet: comparable_path(b"%%%02x" % octet).decode("ascii") for octet in range(256)}
    upper = {octet: comparable_path(b"%%%02X" % octet).decode("ascii") for octet in range(256)}
    assert (expected, expected) == (lower, upper)


@PROPERTY
@given(
    path=st.text("/" + UNRESERVED + "!$&'()+,;=:@[]{}|^\\", max_size=12).map("/{}".format),
    escaped=st.lists(st.booleans(), min_size=13, max_size=13),
)
def test_a_route_cannot_be_evaded_by_spelling(path: str, escaped: list[bool]) -> None:
    """A path without stars takes itself, with any of its unreserved characters escaped."""
    spelled = "".join(
        f"%{ord(sign):02x}" if hide and sign in UNRESERVED else sign for sign, hide in zip(path, escaped, strict=False)
    )
    assert taken(path, spelled.encode("ascii"))


@PROPERTY
@given(path=st.text("/ab", max_size=6), pattern=st.text("/ab", max_size=6))
def test_a_path_without_stars_takes_nothing_else(path: str, pattern: str) -> None:
    """A path without stars takes itself alone."""
    assert (path == pattern) == taken(f"/{pattern}", f"/{path}".encode("ascii"))


@pytest.mark.parametrize(
    "pattern", ["", "v1/charges", "*", "**", "/v1**", "/**/charges", "/v1/***", "/v1/**/", "/**/**", "/a*b**"]
)
def test_bad_patterns(pattern: str) -> None:
    """A pattern begins with a slash, and `**` stands only at its end, after a slash."""
    with pytest.raises(ValueError, match="the path"):
        compile_path(pattern)


# A prefix that is taken away


@pytest.mark.parametrize(
    ("target", "prefix", "expected"),
    [
        (b"/a/x", b"/a", b"/x"),
        (b"/a", b"/a", b"/"),
        (b"/a?q=/a", b"/a", b"/?q=/a"),
        (b"/a/", b"/a", b"/"),
        (b"/a//x", b"/a", b"//x"),
        (b"/a/a/x", b"/a", b"/a/x"),
        (b"/a/%61?%61", b"/a", b"/%61?%61"),
        (b"/%61/x", b"/a", b"/x"),
        (b"/%61", b"/a", b"/"),
        (b"/a/x", b"/%61", b"/x"),
        (b"/%61%2D%2e%7E/x", b"/a-.~", b"/x"),
        (b"/a%2fb/x", b"/a%2Fb", b"/x"),
        (b"/a%2Fb/x", b"/a%2fb", b"/x"),
        (b"/a/x", b"/a/", b"/x"),
        # of which it is no prefix
        (b"/A/x", b"/a", b"/A/x"),
        (b"/%41/x", b"/a", b"/%41/x"),
        (b"/a/b/x", b"/a%2Fb", b"/a/b/x"),
        (b"/%2561/x", b"/a", b"/%2561/x"),
        (b"/aXb/x", b"/a.b", b"/aXb/x"),
        (b"/b/a/x", b"/a", b"/b/a/x"),
    ],
)
def test_without_prefix(target: bytes, prefix: bytes, expected: bytes) -> None:
    """A prefix goes in whatever spelling it comes; the rest stays byte for byte, and begins with a slash."""
    assert expected == without_prefix(target, prefix)


@PROPERTY
@given(
    prefix=st.text("/" + UNRESERVED + "!$&'()+,;=:@[]{}|^\\", max_size=12).map("/{}".format),
    rest=st.text("/a%?", max_size=6).map("/{}".format),
    escaped=st.lists(st.booleans(), min_size=13, max_size=13),
)
def test_a_prefix_is_found_in_every_spelling(prefix: str, rest: str, escaped: list[bool]) -> None:
    """What a route takes by its prefix is forwarded without it, with any of its unreserved characters escaped."""
    spelled = "".join(
        f"%{ord(sign):02x}" if hide and sign in UNRESERVED else sign for sign, hide in zip(prefix, escaped, strict=False)
    )
    assert rest.encode() == without_prefix((spelled + rest).encode("ascii"), prefix.encode("ascii"))


# Routes

METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "QUERY", "PURGE", "post")


@pytest.mark.parametrize(
    ("effect", "expected"), [(Effect.WRITE, {"POST", "PUT", "PATCH", "DELETE"}), (Effect.READ, set())], ids=["write", "read"]
)
def test_covered(effect: Effect, expected: set[str]) -> None:
    """POST, PUT, PATCH and DELETE are covered, and nothing is on a route whose effect is `read`."""
    route = Route("r", "u", effect=effect)
    assert expected == {method for method in METHODS if route.covers(Request(method, b"/", ()))}


# Defaults


def test_default_policy() -> None:
    """A route that says nothing has the defaults of the contract."""
    policy = Policy()
    expected = (OnUnknown.HOLD, OnExpired.REFUSE, ForwardKey.STRIP, 15, 10, 86_400, 604_800, 10_485_760, 1_048_576, ())
    assert expected == (
        policy.on_unknown,
        policy.on_expired,
        policy.forward_key,
        policy.lease,
        policy.wait,
        policy.retention,
        policy.expired_mark,
        policy.max_request_body,
        policy.max_stored_body,
        policy.scope.headers,
    )


def test_default_limits() -> None:
    """An upstream that says nothing has 5, 60, 30 and 120 seconds, and idle connections for 4."""
    upstream = Upstream("u", "http", "h", 80)
    assert (Timeouts(connect=5, first_byte=60, idle=30, total=120), 4) == (upstream.timeouts, upstream.pool_idle)


@pytest.mark.parametrize(
    ("scheme", "host", "port", "expected"),
    [
        ("http", "a.test", 80, b"a.test"),
        ("https", "a.test", 443, b"a.test"),
        ("http", "a.test", 443, b"a.test:443"),
        ("https", "a.test", 80, b"a.test:80"),
        ("http", "127.0.0.1", 9000, b"127.0.0.1:9000"),
        ("http", "::1", 9000, b"[::1]:9000"),
        ("https", "::1", 443, b"[::1]"),
    ],
)
def test_authority(scheme: str, host: str, port: int, expected: bytes) -> None:
    """The upstream's `Host` names the port only where it is not the scheme's own, and an IPv6 address in brackets."""
    assert expected == Upstream("u", scheme, host, port).authority
