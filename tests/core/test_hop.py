"""What does not cross the proxy: hop-by-hop fields, framing, what `Connection` names, and what only we may say."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.hop import dropped_names, speaks_of_client
from idemproxy.core.message import Fields, indexed, without

# RFC 9110, section 7.6.1, and the fields that it obsoletes or that speak to the neighbour only
HOP_BY_HOP: Final = (
    b"Connection",
    b"Keep-Alive",
    b"Proxy-Connection",
    b"Proxy-Authenticate",
    b"Proxy-Authorization",
    b"TE",
    b"Trailer",
    b"Transfer-Encoding",
    b"Upgrade",
)
FRAMING: Final = (b"Content-Length", b"Transfer-Encoding")
OURS: Final = (b"Idempotency-Status", b"Idempotent-Replayed", b"Proxy-Status")  # contract, section 8
ALWAYS: Final = sorted({*HOP_BY_HOP, *FRAMING, *OURS})

REQUEST: Final[Fields] = (
    (b"Host", b"a.test"),
    (b"Authorization", b"Bearer t"),
    (b"Content-Type", b"application/json"),
    (b"Idempotency-Key", b"k"),
    (b"X-Tenant", b"acme"),
    (b"Cookie", b"a=1"),
    (b"x-TENANT", b""),
)
ANSWER: Final[Fields] = (
    (b"Date", b"Sat, 29 Nov 2025 14:12:23 GMT"),
    (b"Set-Cookie", b"a=1"),
    (b"set-cookie", b"b=2"),
    (b"WWW-Authenticate", b"Basic"),
    (b"ETag", b'"1"'),
    (b"Retry-After", b"1"),
    (b"Via", b"1.1 a"),
)


def end_to_end(fields: Fields) -> Fields:
    """The fields that go on to the other side: the same, whether or not they were gone through before."""
    left = without(fields, dropped_names(fields))
    assert left == without(indexed(fields), dropped_names(indexed(fields)))
    return left


@pytest.mark.parametrize("message", [REQUEST, ANSWER], ids=["request", "answer"])
def test_end_to_end_fields_pass(message: Fields) -> None:
    """All other fields go on byte for byte, in order, with their case and repeats."""
    assert message == end_to_end(message)


@pytest.mark.parametrize("message", [REQUEST, ANSWER], ids=["request", "answer"])
@pytest.mark.parametrize("name", ALWAYS, ids=lambda name: name.decode())
def test_never_crosses(name: bytes, message: Fields) -> None:
    """Hop-by-hop fields, framing and what only we may say are removed in both directions, in any case and however often."""
    first, *rest = message
    fields = ((name, b"1"), first, (name.lower(), b""), (name.upper(), b"2"), *rest, (name.swapcase(), b"3"))
    assert message == end_to_end(fields)


def test_what_is_dropped_without_connection() -> None:
    """Without `Connection` exactly these names are dropped."""
    assert {name.lower() for name in ALWAYS} == dropped_names(REQUEST)


@pytest.mark.parametrize(
    ("connection", "named"),
    [
        pytest.param([b"close"], set(), id="close"),
        pytest.param([b"X-Hop"], {b"x-hop"}, id="one"),
        pytest.param([b"keep-alive, X-Hop,X-Other"], {b"x-hop", b"x-other"}, id="a list"),
        pytest.param([b"close", b"x-hop", b"X-OTHER"], {b"x-hop", b"x-other"}, id="several lines"),
        pytest.param([b" \tX-Hop\t , ,, x-other "], {b"x-hop", b"x-other"}, id="white space and empty members"),
        pytest.param([b""], set(), id="empty"),
        pytest.param([b"X-Ho"], set(), id="a beginning is not the name"),
        pytest.param([b"X-Hop X-Other"], set(), id="no comma, no list"),
    ],
)
def test_named_by_connection(connection: list[bytes], named: set[bytes]) -> None:
    """What `Connection` lists is removed, in any case, from any of its lines."""
    lines: Fields = tuple(zip((b"Connection", b"connection", b"CONNECTION"), connection, strict=False))
    hops: Fields = ((b"X-Hop", b"1"), (b"x-hop", b"2"), (b"X-Other", b"3"), (b"X-Stays", b"4"))
    expected = tuple(pair for pair in hops if pair[0].lower() not in named)
    assert expected == end_to_end((*hops[:2], *lines, *hops[2:]))


NEVER_NAMED: Final = (
    b"Host",
    b"Authorization",
    b"Content-Type",
    b"Content-Encoding",
    b"Via",
    b"X-Request-Id",
    b"Forwarded",
    b"X-Forwarded-For",
    b"X-Forwarded-Host",
    b"X-Forwarded-Proto",
    b"X-Real-IP",
)


@pytest.mark.parametrize("name", NEVER_NAMED, ids=lambda name: name.decode())
def test_not_removed_by_naming(name: bytes) -> None:
    """A sender cannot have removed what says what is asked, of whom, by whom, and how it came here."""
    fields = ((name, b"a"), (name.upper(), b"b"))
    listed = b"close, %b, %b" % (name, name.lower())
    assert fields == end_to_end((*fields, (b"Connection", listed)))


@pytest.mark.parametrize(
    "name", [b"traceparent", b"tracestate", b"baggage", b"Cookie", b"Accept"], ids=lambda name: name.decode()
)
def test_what_only_the_sender_loses_is_removed_by_naming(name: bytes) -> None:
    """Other fields are the sender's own: it may say that they are for this hop (RFC 9110, section 7.6.1)."""
    assert () == end_to_end(((name, b"a"), (b"Connection", name.upper())))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"Forwarded", True),
        (b"FORWARDED", True),
        (b"X-Real-IP", True),
        (b"x_real-ip", True),
        (b"X-Forwarded-For", True),
        (b"X_Forwarded_For", True),
        (b"x-forwarded-client-cert", True),
        (b"X-Forwarded-Server", True),
        (b"X-Forwarded", False),
        (b"Forwarded-For", False),
        (b"X-Forward-Me", False),
        (b"X-Real-IPs", False),
        (b"Via", False),
        (b"X-Request-Id", False),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_speaks_of_client(name: bytes, *, expected: bool) -> None:
    """What a proxy says of those for whom it asks is known by name, in any case, and in the spelling that gateways confuse."""
    assert expected is speaks_of_client(name)


NAMES: Final = st.sampled_from([b"A", b"a", b"B", b"TE", b"Host", b"Connection", b"Content-Length", b"Proxy-Status"])
VALUES: Final = st.sampled_from([b"", b"a", b"A, b", b"host", b"close", b",", b"te"])


@settings(derandomize=True, deadline=None, max_examples=200)
@given(fields=st.lists(st.tuples(NAMES, VALUES), max_size=8).map(tuple))
def test_passing_twice_is_passing_once(fields: Fields) -> None:
    """What has crossed one proxy crosses another unchanged, and nothing that crossed has a name that is dropped."""
    passed = end_to_end(fields)
    assert (passed, set()) == (end_to_end(passed), {name.lower() for name, _ in passed} & dropped_names(fields))
