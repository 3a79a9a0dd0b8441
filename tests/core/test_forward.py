"""The head that an upstream gets: the client's lines where they stood, less what is not for it, with what is told anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.forward import request_head, whole_body_framing
from idemproxy.core.key import KeyRule
from idemproxy.core.message import Fields, Request
from idemproxy.core.policy import ForwardKey, Policy, Route, Upstream
from idemproxy.core.stamp import StampRule

UPSTREAM: Final = Upstream("api", "http", "api.example", 9000)
ROUTE: Final = Route("rest", "api")


def head(fields: Fields, route: Route = ROUTE, framing: bytes | None = None, key: str | None = None) -> list[bytes]:
    """The field lines that the upstream gets."""
    return lines(request_head(Request("POST", b"/a", fields), route, UPSTREAM, framing, key))


def lines(data: bytes) -> list[bytes]:
    """The field lines of a head, which ends with an empty line and has no other."""
    start, *fields, end, nothing = data.split(b"\r\n")
    assert (b"POST /a HTTP/1.1", b"", b"") == (start, end, nothing)
    return fields


# The request line


@pytest.mark.parametrize("target", [b"/", b"/a%2fb?", b"/a/../b//", b"/[1]?%zz#f", b"/\xe9"])
@pytest.mark.parametrize("base", [b"", b"/v1"])
def test_the_target_is_joined_to_the_base_and_not_read(target: bytes, base: bytes) -> None:
    """Every byte of it stays, after the upstream's own path."""
    request = Request("QUERY", target, ((b"Host", b"x"),))
    expected = b"QUERY %b%b HTTP/1.1\r\nHost: api.example:9000\r\n\r\n" % (base, target)

    assert expected == request_head(request, ROUTE, replace(UPSTREAM, base_path=base), None)


def test_a_prefix_is_taken_off_first() -> None:
    """Where the route says so, and before the upstream's base."""
    route = replace(ROUTE, strip_prefix=b"/shop")
    request = Request("GET", b"/%73hop/a?b", ())

    assert request_head(request, route, replace(UPSTREAM, base_path=b"/v1"), None).startswith(b"GET /v1/a?b HTTP/1.1\r\n")


# Host


@pytest.mark.parametrize(
    ("preserved", "fields", "expected"),
    [
        (False, ((b"A", b"1"), (b"hOST", b"shop.example")), [b"A: 1", b"hOST: api.example:9000"]),
        (True, ((b"A", b"1"), (b"hOST", b"Shop.example:80")), [b"A: 1", b"hOST: Shop.example:80"]),
        (True, ((b"Host", b""), (b"A", b"1")), [b"Host: ", b"A: 1"]),
        (False, ((b"A", b"1"),), [b"Host: api.example:9000", b"A: 1"]),
        (True, ((b"A", b"1"),), [b"Host: api.example:9000", b"A: 1"]),
    ],
    ids=["the upstream's", "preserved", "preserved, empty", "none", "none to preserve"],
)
def test_host(*, preserved: bool, fields: Fields, expected: list[bytes]) -> None:
    """The upstream's, or on a route that preserves it the client's, where it stood; first where there was none."""
    assert expected == head(fields, replace(ROUTE, preserve_host=preserved))


@pytest.mark.parametrize("preserved", [False, True])
def test_there_is_one_host(*, preserved: bool) -> None:
    """A second one does not go on: of two hosts an upstream might take the other."""
    route = replace(ROUTE, preserve_host=preserved)
    expected = b"a.example" if preserved else b"api.example:9000"

    assert [b"Host: " + expected] == head(((b"Host", b"a.example"), (b"HOST", b"b.example")), route)


# The key, the framing, and what stays here


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (ForwardKey.STRIP, [b"A: 1", b"X-Op: own", b"B: 2"]),
        (ForwardKey.SAME, [b"A: 1", b"X-Op: own", b"idempotency-KEY: k-1", b"B: 2"]),
        (b"X-Op", [b"A: 1", b"X-Op: k-1", b"B: 2"]),
    ],
    ids=["strip", "same", "rename"],
)
@pytest.mark.parametrize("listed", [b"close", b"Idempotency-Key"])
def test_the_key_stands_where_it_stood(forward: ForwardKey | bytes, expected: list[bytes], listed: bytes) -> None:
    """As the route says, in one spelling, whatever `Connection` lists; under a new name it takes the place of the old."""
    fields = ((b"A", b"1"), (b"X-Op", b"own"), (b"idempotency-KEY", b'"k-1"'), (b"Connection", listed), (b"B", b"2"))
    route = replace(ROUTE, policy=Policy(forward_key=forward))

    assert expected == head((*fields, (b"Host", b"x")), route, key="k-1")[:-1]


def test_a_key_that_no_field_holds_is_told_first() -> None:
    """An operation that a workflow names has its key at the upstream too, after Host."""
    route = replace(ROUTE, policy=Policy(key=KeyRule(b"x-op"), forward_key=ForwardKey.SAME))

    assert [b"Host: api.example:9000", b"X-Op: w_step_1", b"A: 1"] == head(((b"A", b"1"),), route, key="w_step_1")


def test_a_stamp_cannot_be_taken_away() -> None:
    """What `Connection` lists goes, but for the field by which a probe finds the operation."""
    route = replace(ROUTE, policy=Policy(stamp=StampRule("header", "X-Ref")))
    fields = ((b"Connection", b"X-Ref, X-Hop"), (b"x-ref", b"k"), (b"X-Hop", b"1"))

    assert [b"Host: api.example:9000", b"x-ref: k"] == head(fields, route)


@pytest.mark.parametrize("framing", [None, b"Content-Length: 7", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("sent", [b"content-length", b"Transfer-Encoding"])
def test_there_is_one_framing_and_it_is_ours(framing: bytes | None, sent: bytes) -> None:
    """Where the client's stood, or at the end; never a copied one, never two."""
    ours = [] if framing is None else [framing]

    assert [b"Host: api.example:9000", *ours, b"A: 1"] == head(((sent, b"1"), (sent, b"2"), (b"A", b"1")), framing=framing)
    assert [b"Host: api.example:9000", b"A: 1", *ours] == head(((b"A", b"1"),), framing=framing)


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        ((), b"", None),
        (((b"Content-length", b"0"),), b"", b"Content-Length: 0"),
        (((b"transfer-ENCODING", b"chunked"),), b"", b"Content-Length: 0"),
        (((b"Content-Length", b"9"),), b"1234", b"Content-Length: 4"),
        ((), b"1234", b"Content-Length: 4"),
    ],
)
def test_whole_body_framing(fields: Fields, body: bytes, expected: bytes | None) -> None:
    """The length is that of what is sent; a client that announced no body has none announced."""
    assert expected == whole_body_framing(Request("POST", b"/", fields, body))


def test_what_is_for_this_proxy_stays_here() -> None:
    """The expectation that was met, the words of the workflow, and what only we may say."""
    ours = (b"Expect", b"Workflow-Id", b"workflow-step", b"Workflow-Action", b"Idempotency-Status", b"Proxy-Status")

    assert [b"Host: api.example:9000"] == head(tuple((name, b"100-continue") for name in ours))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((b"a=1, b=2;p",), [b"BAGGAGE: a=1, b=2;p"]),
        ((b"a=1,Workflow-Id=w,b=2",), [b"BAGGAGE: a=1,b=2"]),
        ((b"Workflow-Id=w,workflow-step=1",), []),
        ((b"Workflow-Id=w", b"a=1"), [b"BAGGAGE: a=1"]),
    ],
)
def test_baggage_goes_on_without_the_workflow(values: tuple[bytes, ...], expected: list[bytes]) -> None:
    """What other programs carry there stays as it is; a line with nothing else is left out."""
    assert [b"Host: api.example:9000", *expected] == head(tuple((b"BAGGAGE", value) for value in values))


@pytest.mark.parametrize("forward_workflow", [False, True])
def test_baggage_that_is_for_this_hop_stays_here(*, forward_workflow: bool) -> None:
    """Where `Connection` lists it, as any other field."""
    route = replace(ROUTE, policy=Policy(forward_workflow=forward_workflow))

    assert [b"Host: api.example:9000"] == head(((b"Connection", b"baggage"), (b"Baggage", b"a=1")), route)


def test_a_route_may_let_its_upstream_see_the_workflow() -> None:
    """Then the fields and the baggage stand as they came."""
    route = replace(ROUTE, policy=Policy(forward_workflow=True))
    fields = ((b"Workflow-Id", b"w"), (b"baggage", b"a=1,Workflow-Step=1"), (b"Workflow-Action", b"pay"))

    assert [b"Host: api.example:9000", *(b"%b: %b" % pair for pair in fields)] == head(fields, route)


def test_each_request_has_its_own_values() -> None:
    """What is remembered of the names of fields is not what another request said in them."""
    route = replace(ROUTE, policy=Policy(forward_key=b"X-%b"))

    def sent(value: bytes, key: str, *more: tuple[bytes, bytes]) -> list[bytes]:
        fields = ((b"Host", b"x"), (b"%b-%d", value), (b"Idempotency-Key", key.encode()), (b"baggage", value), *more)
        return head(fields, route, b"Content-Length: %d" % len(value), key)

    def expected(value: bytes, key: bytes) -> list[bytes]:
        lines = [b"Host: api.example:9000", b"%b-%d: " + value, b"X-%b: " + key, b"baggage: " + value]
        return [*lines, b"Content-Length: %d" % len(value)]

    asked = [(b"1", "k-1"), (b"%b", "k-2"), (b"", "k-3"), (b"1", "k-1")]
    assert [expected(value, key.encode()) for value, key in asked] == [sent(value, key) for value, key in asked]
    assert [*expected(b"1", b"k")[:-1], b"Content-Length: 1"] == sent(b"1", "k", (b"Connection", b"X-Hop"), (b"X-Hop", b"1"))


def test_a_key_that_stands_twice_goes_on_once() -> None:
    """A route that takes keys from workflows alone does not look at the field, and tells the key in its place."""
    route = replace(ROUTE, policy=Policy(forward_key=ForwardKey.SAME))
    fields = ((b"Host", b"x"), (b"idempotency-key", b"a"), (b"A", b"1"), (b"Idempotency-Key", b"b"))

    assert [b"Host: api.example:9000", b"idempotency-key: w_step_1", b"A: 1"] == head(fields, route, key="w_step_1")


# Upgrades


OFFER: Final = [b"Connection: Upgrade", b"Upgrade: websocket, own/2"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (((b"A", b"1"), (b"upgrade", b"websocket"), (b"B", b"2")), [b"A: 1", *OFFER, b"B: 2"]),
        (((b"Connection", b"Upgrade, X-Hop"), (b"X-Hop", b"1"), (b"Upgrade", b"x"), (b"B", b"2")), [*OFFER, b"B: 2"]),
        (((b"Upgrade", b"x"), (b"A", b"1"), (b"UPGRADE", b"y"), (b"connection", b"upgrade")), [*OFFER, b"A: 1"]),
        (((b"A", b"1"),), [b"A: 1", *OFFER]),
    ],
    ids=["in its place", "connection", "several", "none"],
)
def test_an_upgrade_is_offered_once_where_the_client_asked_for_it(fields: Fields, expected: list[bytes]) -> None:
    """The two fields of this hop are made anew, and all others of their names are gone."""
    request = Request("POST", b"/a", ((b"Host", b"x"), *fields))

    offered = lines(request_head(request, ROUTE, UPSTREAM, None, upgrade=b"websocket, own/2"))
    not_offered = lines(request_head(request, ROUTE, UPSTREAM, None))

    assert [b"Host: api.example:9000", *expected] == offered
    assert [line for line in offered if line not in OFFER] == not_offered


# In general

NAMES: Final = st.sampled_from([b"A", b"a", b"B-c", b"Set-Cookie", b"set-cookie", b"Accept", b"Via", b"X-Forwarded-For"])
VALUES: Final = st.sampled_from([b"", b"1", b"a  b\tc", b"caf\xe9\xff", b'",;'])


@settings(derandomize=True, deadline=None, max_examples=300)
@given(fields=st.lists(st.tuples(NAMES, VALUES), max_size=10).map(tuple))
def test_end_to_end_fields_go_byte_for_byte(fields: Fields) -> None:
    """In order, with case, repeats, empty values and bytes of any kind; nothing is added but the host."""
    assert [b"Host: api.example:9000", *(b"%b: %b" % pair for pair in fields)] == head(fields)
