"""What enters the fingerprint, how it is framed, and that no request makes it raise."""

from __future__ import annotations

import gzip
import zlib
from base64 import urlsafe_b64encode
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.fingerprint import FingerprintRule, check_rule, fingerprint
from idemproxy.core.message import Fields, Request

SEMANTIC = FingerprintRule()
RAW = FingerprintRule(mode="raw")
BOUND = 10_000
JSON = (b"Content-Type", b"application/json")
DOCUMENT = b'{"amount": 4200, "note": "two seats"}'


def of(
    body: bytes, *fields: tuple[bytes, bytes], rule: FingerprintRule = SEMANTIC, method: str = "POST", target: bytes = b"/v1"
) -> str:
    """The fingerprint of a request with these fields and this body."""
    return fingerprint(Request(method, target, fields, body), rule, max_decoded=BOUND)


# The framing


def test_version_1_is_what_its_description_says() -> None:
    """The fingerprint is the SHA-256 of the seven netstrings of the description, written out here by hand."""
    fields = ((b"Content-Type", b"Application/JSON; charset=utf-8"), (b"X-Seat", b"2"), (b"X-Airline", b"KL"), (b"x-seat", b""))
    request = Request("POST", b"/orders?x=1", fields, b'{"b": 100, "a": 1.50}')
    rule = FingerprintRule(headers=("x-seat", "x-none", "x-airline", "x-fare"))
    by_hand = (
        b"4:POST",
        b"11:/orders?x=1",
        b"19:16:application/json",
        b"52:9:x-airline4:2:KL6:x-fare0:6:x-none0:6:x-seat5:1:20:",
        b"4:json",
        b"0:",
        b'27:{"a":"\xed\xa0\x80\xed\xb0\x8015e-1","b":100}',
    )

    assert "v1:" + urlsafe_b64encode(sha256(b"".join(by_hand)).digest()).decode().rstrip("=") == fingerprint(
        request, rule, max_decoded=BOUND
    )


PART = b'Content-Disposition: form-data; name="f"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\nhi'
PARTS = b"--B\r\n" + PART + b"\r\n--B--\r\n"
GOLDEN = {
    "json": (
        (
            b'{"b":[1,2.50,-0,1e400,99999999999999999,-99999999999999999,100000000000000001,1e17],"a":{"\\u00e9":null,"t":true}}',
            JSON,
        ),
        "v1:NvCcNQPdKG9bIPezb4fCK_-AXoG9Tx4enWh5qhwlv3w",
    ),
    "json, an empty body": ((b"", JSON), "v1:kdpFrCQ5taOToasFjlV9SjoH6BdZZZuMMUB1IM27UzI"),
    "form": (
        (b"a=1&b=%C3%A9+x&c&d=", (b"Content-Type", b"application/x-www-form-urlencoded")),
        "v1:aAZ6tt9HrWWdd1oHPu9W1eOJMlVv3gTS6p99rS9mzWg",
    ),
    "multipart": (
        (PARTS, (b"Content-Type", b"multipart/form-data; boundary=B")),
        "v1:6OsZD026w4YCqTndp2i0WxN9R7rN53GKTqbtKJEY4jA",
    ),
    "bytes": (
        (b"\x00\xff", (b"Content-Type", b"application/octet-stream")),
        "v1:Pa20THpPmfBL79ZhbM4GI7jz1VemND-ORUnIZEFuqV0",
    ),
    "bytes, still encoded": (
        (b"\x00\xff", (b"Content-Encoding", b"br")),
        "v1:xCTlCrBZH159aUIFLjGqPUJcKaZiBZobI1_5-k9J_GA",
    ),
}


@pytest.mark.parametrize(("asked", "expected"), GOLDEN.values(), ids=GOLDEN.keys())
def test_version_1_never_changes(asked: tuple[bytes, tuple[bytes, bytes]], expected: str) -> None:
    """Fingerprints that stores hold already: a change of any of these needs a new version."""
    assert expected == of(*asked)


def test_what_a_selection_takes_has_its_own_form_and_never_changes() -> None:
    """A document's selected part is framed unlike the same document, and this one is pinned too."""
    rule = FingerprintRule(include=("/amount", "items[*].id", "/none"), exclude=("/items/0/id",))

    assert "v1:18N81mlqubTlFQuQkls23WJ-8NresqqLLbifn0I4Zls" == of(b'{"amount":1,"items":[{"id":1},{"id":2}]}', JSON, rule=rule)


# What enters


@pytest.mark.parametrize(
    ("fields", "other"),
    [
        pytest.param((), (JSON,), id="content type"),
        pytest.param((JSON,), (JSON, JSON), id="content type twice"),
        pytest.param((JSON, (b"X-Airline", b"KL")), (JSON, (b"X-Airline", b"LH")), id="value of a chosen field"),
        pytest.param((JSON, (b"X-Airline", b"")), (JSON,), id="presence of a chosen field"),
        pytest.param(
            (JSON, (b"X-Airline", b"a, b")), (JSON, (b"X-Airline", b"a"), (b"X-Airline", b"b")), id="lines of a chosen field"
        ),
        pytest.param(
            (JSON, (b"X-Airline", b"a"), (b"X-Airline", b"b")),
            (JSON, (b"X-Airline", b"b"), (b"X-Airline", b"a")),
            id="their order",
        ),
    ],
)
def test_header_fields_that_count(fields: Fields, other: Fields) -> None:
    """The essence of the content type counts, and every value of a chosen field, in order."""
    rule = FingerprintRule(headers=("x-airline",))

    assert of(DOCUMENT, *fields, rule=rule) != of(DOCUMENT, *other, rule=rule)


@pytest.mark.parametrize(
    "field",
    [
        (b"Authorization", b"Bearer 1"),
        (b"Cookie", b"a=1"),
        (b"Date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"Connection", b"close"),
        (b"User-Agent", b"retrying/2"),
        (b"Idempotency-Key", b"k"),
    ],
    ids=lambda field: field[0].decode(),
)
def test_header_fields_that_nobody_chose_do_not_count(field: tuple[bytes, bytes]) -> None:
    """Credentials, dates, tracing, hop-by-hop and all other fields leave the fingerprint as it is."""
    assert of(DOCUMENT, JSON) == of(DOCUMENT, field, JSON)


def test_spelling_of_the_content_type_does_not_matter() -> None:
    """The essence is compared in lower case and without parameters."""
    assert of(DOCUMENT, JSON) == of(DOCUMENT, (b"content-TYPE", b"Application/JSON ; charset=UTF-8"))


@pytest.mark.parametrize(
    ("parameter", "by_meaning"),
    [
        (b"; charset=utf-8", True),
        (b';charset="UTF-8"', True),
        (b"; Charset=utf8", True),
        (b"; version=1", True),
        (b"; charset=us-ascii", True),
        (b"; charset=iso-8859-1", False),
        (b"; charset=utf-16", False),
        (b"; charset=", False),
        (b"; charset=utf-8; charset=latin1", False),
        (b"; charset = latin1", False),
    ],
)
@pytest.mark.parametrize("kind", [b"application/json", b"application/vnd.api+json"])
def test_json_in_another_character_set_is_compared_as_bytes(kind: bytes, parameter: bytes, *, by_meaning: bool) -> None:
    """Where the type names another set than UTF-8, or cannot be read, white space counts; nothing else does so."""
    field = (b"Content-Type", kind + parameter)

    assert by_meaning == (of(DOCUMENT, field) == of(DOCUMENT.replace(b": ", b":"), field))


@pytest.mark.parametrize("charset", [b"iso-8859-1", b"us-ascii", b"windows-1252"])
def test_two_texts_of_another_character_set_differ(charset: bytes) -> None:
    """What is one letter in UTF-8, escaped or not, is two texts under the set that is declared: two fingerprints."""
    field = (b"Content-Type", b"application/json; charset=" + charset)

    assert of(b'["\xc3\xa9"]', field) != of(b'["\\u00e9"]', field)
    assert of(b'["\xc3\xa9"]', JSON) == of(b'["\\u00e9"]', JSON)


def test_a_body_with_two_content_types_is_compared_as_bytes() -> None:
    """Nobody knows which of two types the upstream takes, so white space counts."""
    assert of(DOCUMENT, JSON, JSON) != of(DOCUMENT.replace(b": ", b":"), JSON, JSON)


def test_order_of_the_chosen_names_does_not_matter() -> None:
    """A configuration that lists the same fields in another order gives the same fingerprints."""
    fields = (JSON, (b"A", b"1"), (b"B", b"2"))

    assert of(DOCUMENT, *fields, rule=FingerprintRule(headers=("a", "b"))) == of(
        DOCUMENT, *fields, rule=FingerprintRule(headers=("b", "a", "b"))
    )


def test_method_and_target_count_as_they_are() -> None:
    """Another method, path, query or spelling of the target is another request; nothing shifts between the fields."""
    asked = [
        ("POST", b"/v1"),
        ("PUT", b"/v1"),
        ("POST", b"/v1?"),
        ("POST", b"/v1?a"),
        ("POST", b"/%761"),
        ("POST/", b"v1"),
        ("post", b"/v1"),
    ]

    assert len(asked) == len({of(DOCUMENT, JSON, method=method, target=target) for method, target in asked})


def test_each_form_has_its_own_name() -> None:
    """The same bytes under different types are different requests, also where the essence would not tell."""
    body = b"a=1"
    broken = (b"Content-Type", b"application/x-www-form-urlencoded")

    assert of(body, broken) != of(body, broken, rule=RAW)
    assert 4 == len(
        {of(body, (b"Content-Type", kind)) for kind in (b"text/plain", b"application/json", b"a/b+json", b"multipart/mixed")}
    )


def test_raw_compares_bytes() -> None:
    """In mode raw white space counts, and the same bytes are the same request."""
    assert of(DOCUMENT, JSON, rule=RAW) == of(DOCUMENT, JSON, rule=RAW)
    assert of(DOCUMENT, JSON, rule=RAW) != of(DOCUMENT.replace(b": ", b":"), JSON, rule=RAW)
    assert of(DOCUMENT, JSON, rule=RAW) != of(DOCUMENT, JSON, (b"Content-Encoding", b"br"), rule=RAW)
    assert of(gzip.compress(DOCUMENT, mtime=1), JSON, (b"Content-Encoding", b"gzip"), rule=RAW) != of(
        gzip.compress(DOCUMENT, mtime=2), JSON, (b"Content-Encoding", b"gzip"), rule=RAW
    )


# Content codings


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        (b"gzip", gzip.compress(DOCUMENT, mtime=1)),
        (b"GZIP", gzip.compress(DOCUMENT, compresslevel=1, mtime=2)),
        (b"x-gzip", gzip.compress(DOCUMENT)),
        (b"deflate", zlib.compress(DOCUMENT)),
        (b"identity", DOCUMENT),
        (b"deflate, gzip", gzip.compress(zlib.compress(DOCUMENT))),
        (b", identity ,gzip", gzip.compress(DOCUMENT)),
    ],
    ids=lambda value: value.decode() if len(value) < 20 else "",
)
def test_a_content_coding_is_undone(coding: bytes, encoded: bytes) -> None:
    """The same content is the same request, however it was packed, and packed or not."""
    assert of(DOCUMENT, JSON) == of(encoded, JSON, (b"Content-Encoding", coding))


def test_codings_on_two_lines_are_one_list() -> None:
    """Two Content-Encoding lines mean what one line with both means."""
    packed = gzip.compress(zlib.compress(DOCUMENT))

    assert of(DOCUMENT, JSON) == of(packed, JSON, (b"Content-Encoding", b"deflate"), (b"Content-Encoding", b"gzip"))


PACKED = gzip.compress(DOCUMENT, mtime=1)
PACKED_LATER = gzip.compress(DOCUMENT, mtime=2)


@pytest.mark.parametrize(
    ("coding", "one", "other"),
    [
        pytest.param(b"br", PACKED, PACKED_LATER, id="unknown"),
        pytest.param(b"gzip", PACKED[:-1], PACKED_LATER[:-1], id="cut short"),
        pytest.param(b"gzip", PACKED[:-8] + b"\0" * 8, PACKED_LATER[:-8] + b"\0" * 8, id="wrong checksum"),
        pytest.param(b"gzip", PACKED + b"x", PACKED_LATER + b"x", id="something follows"),
        pytest.param(b"gzip", PACKED + PACKED, PACKED + PACKED_LATER, id="two members"),
        pytest.param(
            b"gzip", gzip.compress(b"0" * (BOUND + 1), mtime=1), gzip.compress(b"0" * (BOUND + 1), mtime=2), id="too large"
        ),
        pytest.param(
            b"gzip,gzip,gzip",
            gzip.compress(gzip.compress(PACKED, mtime=1)),
            gzip.compress(gzip.compress(PACKED, mtime=2)),
            id="three codings",
        ),
    ],
)
def test_what_cannot_be_decoded_is_compared_encoded(coding: bytes, one: bytes, other: bytes) -> None:
    """The encoded bytes and the name of the coding count, where the content cannot be had within the bound."""
    field = (b"Content-Encoding", coding)

    assert of(one, JSON, field) == of(one, JSON, field)
    assert of(one, JSON, field) != of(other, JSON, field)
    assert of(one, JSON, field) != of(one, JSON)


def test_content_of_just_the_bound_is_decoded() -> None:
    """`max_decoded` is the largest content that is decoded."""
    content = b"0" * BOUND

    assert of(content) == of(gzip.compress(content), (b"Content-Encoding", b"gzip"))


# Anything at all

KINDS = st.sampled_from(
    [
        b"application/json",
        b"a/b+json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=b",
        b"multipart/x",
        b"",
        b";;=",
    ]
)
CODINGS = st.sampled_from([b"", b"gzip", b"deflate", b"br", b"gzip,,deflate"])
PIECES = st.lists(
    st.sampled_from(
        [b"--b", b"\r\n", b"--", b"{", b"}", b"[", b'"', b"\\", b"e", b"1", b"%", b"&", b"=", b":", b",", b"\xff", b"n"]
    )
)
BODIES = st.binary() | PIECES.map(b"".join) | st.binary().map(gzip.compress) | st.binary().map(zlib.compress)
RULES = st.sampled_from([SEMANTIC, RAW, FingerprintRule(include=("/a", "sum(a)"), exclude=("a[*].b", "/0"))])


@settings(derandomize=True, deadline=None, max_examples=300)
@given(body=BODIES, kind=KINDS | st.binary(), coding=CODINGS | st.binary(), rule=RULES, method=st.text(), target=st.binary())
def test_no_request_makes_it_raise(
    body: bytes, kind: bytes, coding: bytes, rule: FingerprintRule, method: str, target: bytes
) -> None:
    """Any bytes under any type, coding and rule have a fingerprint, and the same one each time."""
    fields = ((b"Content-Type", kind), (b"Content-Encoding", coding))

    assert of(body, *fields, rule=rule, method=method, target=target) == of(
        body, *fields, rule=rule, method=method, target=target
    )


@settings(derandomize=True, deadline=None, max_examples=300)
@given(kind=KINDS, one=st.binary(max_size=3), other=st.binary(max_size=3))
def test_different_bytes_differ_in_raw_mode(kind: bytes, one: bytes, other: bytes) -> None:
    """In mode raw two bodies have one fingerprint exactly when they are the same bytes."""
    field = (b"Content-Type", kind)

    assert (one == other) == (of(one, field, rule=RAW) == of(other, field, rule=RAW))


# What is wrong with a rule


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("authorization", "it holds credentials, which change while the operation stays the same"),
        ("cookie", "it holds credentials, which change while the operation stays the same"),
        ("date", "it says when a request was sent, so every retry would look like another operation"),
        ("traceparent", "it names one try of a trace, so every retry would look like another operation"),
        ("tracestate", "it names one try of a trace, so every retry would look like another operation"),
        ("connection", "it speaks of one connection, not of the operation"),
        ("transfer-encoding", "it speaks of one connection, not of the operation"),
        ("content-type", "it depends on how the body is sent; what is sent is compared already"),
        ("X-Airline", "it is no name of a header field in lower case"),
        ("x airline", "it is no name of a header field in lower case"),
        ("", "it is no name of a header field in lower case"),
    ],
)
def test_header_names_that_a_rule_may_not_choose(name: str, problem: str) -> None:
    """A field that changes on every try, or no field at all, is refused with the reason."""
    assert [f'headers "{name}": {problem}'] == check_rule(FingerprintRule(headers=("x-tenant", name)))


def test_a_raw_rule_selects_nothing() -> None:
    """Selecting parts of a body that is compared as bytes is a contradiction."""
    expected = ["mode raw compares the bytes of the body, so include and exclude have no meaning with it"]

    assert expected == check_rule(FingerprintRule(mode="raw", exclude=("/a",)))
    assert [] == check_rule(RAW)
