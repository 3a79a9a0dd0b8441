"""Who asked: what goes on of a request's origin, whose word is believed, and what is never made up or lost."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.key import KeyRule
from idemproxy.core.message import Fields, Request, field_values, indexed
from idemproxy.core.origin import Arrival, believed, is_trusted, request_id_of, with_origin
from idemproxy.core.policy import Forwarded, Policy, Route
from idemproxy.core.stamp import StampRule

ID: Final = b"0af7651916cd43dd8448eb211c80319c"
STRANGER: Final = Arrival("192.0.2.9", is_secure=False, is_trusted=False, request_id=ID)
FRIEND: Final = replace(STRANGER, is_trusted=True)
ROUTE: Final = Route("rest", "api")
KEYED: Final = Route("keyed", "api", policy=Policy(key=KeyRule(b"x-request-id")))
STAMPED: Final = Route("stamped", "api", policy=Policy(stamp=StampRule("header", "X-Request-ID")))
VIA: Final = (b"Via", b"1.1 idemproxy")
HOST: Final = (b"Host", b"shop.example:8443")
OWN: Final[Fields] = (HOST, (b"accept", b"*/*"), (b"X-Request-Id", b"r-1"))
CLAIMS: Final[Fields] = (
    (b"Forwarded", b"for=10.0.0.1"),
    (b"X-Forwarded-For", b"10.0.0.1"),
    (b"x-forwarded-for", b"10.0.0.2,,"),
    (b"X-Forwarded-Host", b"inner.example"),
    (b"X-Forwarded-Proto", b"https"),
    (b"X-Forwarded-Port", b"443"),
    (b"X-Forwarded-Prefix", b"/shop"),
    (b"X-Forwarded-Server", b"edge"),
    (b"X-Real-IP", b"10.0.0.1"),
)


def goes_on(fields: Fields, arrival: Arrival = STRANGER, forwarded: Forwarded = Forwarded.NONE) -> Fields:
    """The fields of a request as they go on, less the line of `Via`, which comes last where the client named the request."""
    request = Request("POST", b"/", believed(indexed(fields), arrival))
    *rest, via = with_origin(request, replace(ROUTE, forwarded=forwarded), arrival).fields
    assert (b"Via", arrival.version + b" idemproxy") == via
    return tuple(rest)


# By default


def test_nothing_is_told_of_the_client() -> None:
    """An upstream that is a third party does not learn its caller's callers: only that there was a proxy."""
    request = Request("POST", b"/a", OWN, b"body")

    assert replace(request, fields=(*OWN, VIA)) == with_origin(request, ROUTE, STRANGER)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_via_says_what_the_client_spoke(version: bytes) -> None:
    """The version is that of the message received, and earlier lines stay as they are (RFC 9110, section 7.6.3)."""
    fields = ((b"via", b"1.0 first, 1.1 second"), *OWN)

    found = with_origin(Request("GET", b"/", fields), ROUTE, replace(STRANGER, version=version)).fields

    assert (*fields, (b"Via", version + b" idemproxy")) == found


def test_trace_context_is_not_touched() -> None:
    """A proxy that takes no part in a trace passes it on as it came."""
    trace = ((b"traceparent", b"00-1-2-01"), (b"TraceState", b"a=b"), (b"tracestate", b""), (b"baggage", b"x=1"))

    assert (*trace, *OWN) == goes_on((*trace, *OWN))


# Whose word is believed


@pytest.mark.parametrize("forwarded", Forwarded)
def test_who_is_not_trusted_cannot_speak_for_another(forwarded: Forwarded) -> None:
    """What a stranger says of a client, in any spelling, is as if it had not been said."""
    more = ((b"X_Forwarded_For", b"127.0.0.1"), (b"X-Forwarded-User", b"root"), (b"FORWARDED", b"for=127.0.0.1"))

    assert goes_on(OWN, STRANGER, forwarded) == goes_on((*CLAIMS[:4], *OWN, *CLAIMS[4:], *more), STRANGER, forwarded)


def test_who_is_trusted_is_passed_on_byte_for_byte() -> None:
    """In order, with case, repeats and oddities, where nothing is to be added."""
    fields = (*CLAIMS[:4], *OWN, *CLAIMS[4:])

    assert fields == goes_on(fields, FRIEND)


def test_what_is_not_believed_is_gone_before_anything_reads_it() -> None:
    """The removal alone leaves all else as it is, and leaves a trusted request itself."""
    fields = indexed((*CLAIMS, *OWN))

    assert OWN == believed(fields, STRANGER)
    assert fields is believed(fields, FRIEND)


# X-Forwarded-*


def test_x_forwarded_tells_of_a_client_that_came_straight_here() -> None:
    """Its address, the host that it asked for, and how: at the end of the fields."""
    expected = (
        *OWN,
        (b"X-Forwarded-For", b"192.0.2.9"),
        (b"X-Forwarded-Host", b"shop.example:8443"),
        (b"X-Forwarded-Proto", b"http"),
    )

    assert expected == goes_on(OWN, STRANGER, Forwarded.X_FORWARDED)


def test_x_forwarded_goes_on_where_a_trusted_proxy_left_off() -> None:
    """The addresses become one list, at the place of the last line and in its spelling; what is set is kept."""
    expected = (*OWN, CLAIMS[0], (b"x-forwarded-for", b"10.0.0.1, 10.0.0.2,,, 192.0.2.9"), *CLAIMS[3:])

    assert expected == goes_on((*OWN, *CLAIMS), FRIEND, Forwarded.X_FORWARDED)


def test_an_empty_list_is_begun() -> None:
    """An empty line of X-Forwarded-For holds the address, without a comma before it."""
    fields = ((b"X-Forwarded-For", b""), (b"X-Forwarded-Proto", b""), *OWN)
    expected = ((b"X-Forwarded-For", b"192.0.2.9"), (b"X-Forwarded-Proto", b""), *OWN, (b"X-Forwarded-Host", HOST[1]))

    assert expected == goes_on(fields, FRIEND, Forwarded.X_FORWARDED)


@pytest.mark.parametrize("peer", ["", "unix", "proxy.example"])
def test_an_unknown_peer_is_not_in_x_forwarded_for(peer: str) -> None:
    """Nothing is made up: what a trusted proxy said stays as it is, and no field is begun."""
    lines = ((b"X-Forwarded-For", b"10.0.0.1"), (b"x-forwarded-for", b"10.0.0.2"))
    rest = ((b"X-Forwarded-Host", HOST[1]), (b"X-Forwarded-Proto", b"https"))
    arrival = replace(FRIEND, peer=peer, is_secure=True)

    assert (*lines, *OWN, *rest) == goes_on((*lines, *OWN), arrival, Forwarded.X_FORWARDED)
    assert (*OWN, *rest) == goes_on(OWN, arrival, Forwarded.X_FORWARDED)


def test_without_a_host_none_is_told() -> None:
    """An HTTP/1.0 client may ask for no host."""
    fields = OWN[1:]

    assert (*fields, (b"X-Forwarded-For", b"192.0.2.9"), (b"X-Forwarded-Proto", b"http")) == goes_on(
        fields, STRANGER, Forwarded.X_FORWARDED
    )
    assert (*fields, (b"Forwarded", b"for=192.0.2.9;proto=http;by=_idemproxy")) == goes_on(fields, STRANGER, Forwarded.FORWARDED)


# Forwarded


@pytest.mark.parametrize(
    ("peer", "node", "in_list"),
    [
        ("192.0.2.9", b"192.0.2.9", b"192.0.2.9"),
        ("2001:db8::1", b'"[2001:db8::1]"', b"2001:db8::1"),
        ("2001:0DB8:0:0::0001", b'"[2001:db8::1]"', b"2001:db8::1"),
        ("fe80::1%eth0", b'"[fe80::1]"', b"fe80::1"),
        ("::ffff:192.0.2.9", b"192.0.2.9", b"192.0.2.9"),
        ("", b"unknown", b""),
    ],
)
def test_addresses_are_spelled_as_each_field_wants_them(peer: str, node: bytes, in_list: bytes) -> None:
    """IPv6 in brackets and quotes in Forwarded, bare in the list; IPv4 as itself; no zone, which means nothing elsewhere."""
    arrival = replace(STRANGER, peer=peer)

    element = goes_on(OWN, arrival, Forwarded.FORWARDED)[-1]
    listed = field_values(goes_on(OWN, arrival, Forwarded.X_FORWARDED), b"x-forwarded-for")

    assert (b"Forwarded", b'for=%b;host="shop.example:8443";proto=http;by=_idemproxy' % node) == element
    assert ([in_list] if in_list else []) == listed


@pytest.mark.parametrize(
    ("host", "parameter"),
    [
        (b"a.example", b"host=a.example"),
        (b"a.example:80", b'host="a.example:80"'),
        (b"[::1]:80", b'host="[::1]:80"'),
        (b"", b'host=""'),
        (b'a";for=x\\', b'host="a\\";for=x\\\\"'),
    ],
)
def test_a_host_is_quoted_where_it_is_no_token(host: bytes, parameter: bytes) -> None:
    """No value of a client's can end the parameter that it stands in (RFC 7239, section 4)."""
    found = goes_on(((b"Host", host), *OWN[1:]), replace(STRANGER, is_secure=True), Forwarded.FORWARDED)

    assert (b"Forwarded", b"for=192.0.2.9;%b;proto=https;by=_idemproxy" % parameter) == found[-1]


def test_forwarded_goes_on_where_a_trusted_proxy_left_off() -> None:
    """One element more at the end of its list; the custom fields are passed on beside it."""
    before = ((b"forwarded", b"for=10.0.0.1"), (b"X-Forwarded-For", b"10.0.0.1"), (b"FORWARDED", b'for="[::1]", for=_x'))
    element = b'for=192.0.2.9;host="shop.example:8443";proto=http;by=_idemproxy'
    expected = ((b"X-Forwarded-For", b"10.0.0.1"), (b"FORWARDED", b'for=10.0.0.1, for="[::1]", for=_x, ' + element), *OWN)

    assert expected == goes_on((*before, *OWN), FRIEND, Forwarded.FORWARDED)


# The name of a request


def test_a_request_without_a_name_gets_one() -> None:
    """The given one, as the last field."""
    found = with_origin(Request("GET", b"/", OWN[:2]), ROUTE, STRANGER)

    assert (*OWN[:2], VIA, (b"X-Request-Id", ID)) == found.fields
    assert ID.decode() == request_id_of(found.fields, ROUTE, STRANGER)


@pytest.mark.parametrize("values", [(b"r-1",), (b"r-1", b"r-2"), (b"",), (b"x" * 5000,)])
def test_a_name_is_kept(values: tuple[bytes, ...]) -> None:
    """Whatever it is, however often, whoever sent it: it is the client's."""
    fields = tuple((b"x-REQUEST-id", value) for value in values)

    assert (*fields, HOST) == goes_on((*fields, HOST))


@pytest.mark.parametrize("route", [KEYED, STAMPED], ids=["keys", "stamps"])
def test_where_keys_stand_in_the_field_none_is_made(route: Route) -> None:
    """An upstream that takes X-Request-Id for a key must not be given one that the caller does not know."""
    found = with_origin(Request("POST", b"/", OWN[:2]), route, STRANGER)

    assert (*OWN[:2], VIA) == found.fields
    assert request_id_of(found.fields, route, STRANGER) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), ID.decode()),
        ((b"r-1",), "r-1"),
        ((b"r-1", b"r-2"), "r-1"),
        ((b"~" * 128,), "~" * 128),
        ((b"x" * 129,), None),
        ((b"",), None),
        ((b"a b",), None),
        ((b"a\x7f",), None),
        ((b"a\n",), None),
        ((b"caf\xe9",), None),
        ((b"caf\xc3\xa9", b"r-2"), None),
    ],
)
def test_only_a_plain_name_is_logged(values: tuple[bytes, ...], expected: str | None) -> None:
    """At most 128 visible ASCII characters: a log is no place for what a client makes up."""
    fields = tuple((b"X-Request-ID", value) for value in values)

    assert expected == request_id_of(fields, ROUTE, STRANGER)


@pytest.mark.parametrize("name", [b"order-18", b"order-18-try-2", b"try:order-18", b"order%2d18"])
def test_a_name_that_tells_the_key_is_not_logged(name: bytes) -> None:
    """The plain key stands in no log, also where a client uses it for both, or the field is the key's."""
    fields = ((b"X-Request-Id", name),)

    assert request_id_of(fields, ROUTE, STRANGER, {b"order-18"}) is None
    assert [None, None] == [request_id_of(fields, route, STRANGER) for route in (KEYED, STAMPED)]
    assert name.decode() == request_id_of(fields, ROUTE, STRANGER, {b"order-19"})


# Trust


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.255.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::FFFF:7f00:1", True),
        ("fe80::1%eth0", True),
        ("10.1.2.3", True),
        ("10.2.0.0", False),
        ("::ffff:10.2.0.0", False),
        ("::127.0.0.1", False),
        ("::2", False),
        ("fe90::1", False),
        ("", False),
        ("localhost", False),
        ("127.1", False),
    ],
)
def test_is_trusted(peer: str, *, expected: bool) -> None:
    """A peer is trusted when its address is in a network of the configuration; IPv4 in IPv6 form is IPv4."""
    networks = tuple(ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.1.0.0/16", "fe80::/12"))

    assert expected is is_trusted(peer, networks)
    assert is_trusted(peer, ()) is False


# In general

NAMES: Final = st.sampled_from(
    [b"Via", b"X-Forwarded-For", b"x-forwarded-for", b"Forwarded", b"X-Request-Id", b"Host", b"A", b"a"]
)
FIELDS: Final = st.lists(st.tuples(NAMES, st.sampled_from([b"", b"1", b"a, b", b'"'])), max_size=8).map(tuple)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(fields=FIELDS, trusted=st.booleans(), forwarded=st.sampled_from(Forwarded), secure=st.booleans())
def test_every_other_field_stays_where_it_is(fields: Fields, *, trusted: bool, forwarded: Forwarded, secure: bool) -> None:
    """The fields that are the client's own keep order, case, repeats and values, and stand before all that is added."""
    arrival = replace(STRANGER, is_trusted=trusted, is_secure=secure)
    spoken = {b"x-forwarded-for", b"forwarded"}
    own = [pair for pair in fields if pair[0].lower() not in spoken]
    request = Request("GET", b"/", believed(indexed(fields), arrival))

    found = [
        pair
        for pair in with_origin(request, replace(ROUTE, forwarded=forwarded), arrival).fields
        if pair[0].lower() not in spoken
    ]

    assert own == found[: len(own)]
    assert {b"X-Forwarded-Host", b"X-Forwarded-Proto", b"Via", b"X-Request-Id"} >= {name for name, _ in found[len(own) :]}
