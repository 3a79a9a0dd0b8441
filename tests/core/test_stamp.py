"""A stamp puts the key where it is wanted and leaves every other byte alone; what cannot carry it is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Fields, Request
from idemproxy.core.stamp import Place, StampError, StampRule, check_stamp, stamp

PROPERTY = settings(derandomize=True, deadline=None, max_examples=300)
JSON: Fields = ((b"Content-Type", b"application/json"),)
FORM: Fields = ((b"Content-Type", b"application/x-www-form-urlencoded; charset=utf-8"),)


def stamped(place: Place, name: str, body: bytes = b"", fields: Fields = (), key: str = "k-1") -> Request:
    """A POST with its stamp."""
    return stamp(Request("POST", b"/a", fields, body), StampRule(place, name), key)


def refused(place: Place, name: str, body: bytes = b"", fields: Fields = ()) -> str:
    """Why a POST cannot carry the stamp."""
    with pytest.raises(StampError) as caught:
        stamped(place, name, body, fields)
    return str(caught.value)


# A header field


def test_a_header_field_is_added_at_the_end() -> None:
    """The body and the other fields stay as they are."""
    request = Request("POST", b"/a", JSON, b"{}")

    assert Request("POST", b"/a", (*JSON, (b"X-Ref", b'k"1')), b"{}") == stamp(request, StampRule("header", "X-Ref"), 'k"1')


def test_a_header_field_with_the_key_is_left_alone() -> None:
    """A client that stamps by itself is not contradicted."""
    assert ((b"x-ref", b"k-1"),) == stamped("header", "X-Ref", fields=((b"x-ref", b"k-1"),)).fields


@pytest.mark.parametrize("values", [[b"other"], [b""], [b"K-1"], [b"k-1", b"k-1"], [b'"k-1"']])
def test_a_header_field_with_another_value_is_refused(values: list[bytes]) -> None:
    """A probe for the key would not find what is named otherwise."""
    fields = tuple((b"X-REF", value) for value in values)

    assert "the field X-Ref has another value than the key: leave it out" == refused("header", "X-Ref", fields=fields)


# A JSON body


@pytest.mark.parametrize(
    ("where", "body", "expected"),
    [
        ("/ref", b"{}", b'{"ref":"k-1"}'),
        ("/ref", b" {\n} \n", b' {"ref":"k-1"\n} \n'),
        ("/ref", b'{ "a" : 1.10 }', b'{"ref":"k-1", "a" : 1.10 }'),
        ("/m/ref", b'{"a":1,"m":{"x":[]},"z":2}', b'{"a":1,"m":{"ref":"k-1","x":[]},"z":2}'),
        ("/m/ref", b'{"m":{}}', b'{"m":{"ref":"k-1"}}'),
        ("/l/1/ref", b'{"l": [ {} , { "a":[1,2] } ]}', b'{"l": [ {} , {"ref":"k-1", "a":[1,2] } ]}'),
        ("/0/0/ref", b"[[{}]]", b'[[{"ref":"k-1"}]]'),
        ("/m/ref", b'{"x":"}{\\"m\\":{}","m":{"a":1}}', b'{"x":"}{\\"m\\":{}","m":{"ref":"k-1","a":1}}'),
        ("/m/ref", b'{"\\u006d":{"a":"\\u00e9"}}', b'{"\\u006d":{"ref":"k-1","a":"\\u00e9"}}'),
        ("/m/ref", b'{"\xc3\xa9":"\xf0\x9f\x98\x80","m":{}}', b'{"\xc3\xa9":"\xf0\x9f\x98\x80","m":{"ref":"k-1"}}'),
        ("/a~1b/~0", b'{"a/b":{}}', b'{"a/b":{"~":"k-1"}}'),
        ("/a/", b'{"a":{}}', b'{"a":{"":"k-1"}}'),
        ("/\u00e9", b"{}", b'{"\\u00e9":"k-1"}'),
        ("/ref", b'{"n":1e400,"m":12345678901234567890}', b'{"ref":"k-1","n":1e400,"m":12345678901234567890}'),
    ],
)
def test_the_key_is_written_into_an_object_that_is_there(where: str, body: bytes, expected: bytes) -> None:
    """One member more, and every byte of the client's as it was."""
    assert expected == stamped("json", where, body, JSON).body


def test_a_key_is_escaped_as_json() -> None:
    """Quotes and backslashes of a key do not end its text."""
    body = stamped("json", "/ref", b"{}", key='a"\\b').body

    assert (b'{"ref":"a\\"\\\\b"}', {"ref": 'a"\\b'}) == (body, json.loads(body))


@pytest.mark.parametrize("body", [b'{"m":{"ref":"k-1"}}', b'{"m": {"ref" : "\\u006b-1"}}'])
def test_a_body_with_the_key_is_left_alone(body: bytes) -> None:
    """The same value, however it is spelled, is what the stamp would write."""
    assert body == stamped("json", "/m/ref", body, JSON).body


NOT_JSON = "the key is to be written into a JSON body, and this body is not JSON in plain UTF-8"
NO_OBJECT = "the key is to be written to /m/ref, and there is no object to hold it"
NO_WAY = "the key is to be written to /m/ref, and the way there does not exist in the body"
OTHER = "the body has another value at /m/ref than the key: leave it out"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", NOT_JSON),
        (b"m=1", NOT_JSON),
        (b'{"m":{}', NOT_JSON),
        (b'{"m":{},"m":{}}', NOT_JSON),
        (b'{"m":{},"x":"\xff"}', NOT_JSON),
        (b'\xef\xbb\xbf{"m":{}}', NOT_JSON),
        ('{"m":{}}'.encode("utf-16"), NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
        (b'{"m":NaN}', NOT_JSON),
        (b"{}", NO_WAY),
        (b'"m"', NO_WAY),
        (b"[{}]", NO_WAY),
        (b'{"m":null}', NO_OBJECT),
        (b'{"m":[]}', NO_OBJECT),
        (b'{"m":"ref"}', NO_OBJECT),
        (b'{"m":{"ref":"other"}}', OTHER),
        (b'{"m":{"ref":null}}', OTHER),
        (b'{"m":{"ref":["k-1"]}}', OTHER),
    ],
)
def test_a_body_that_cannot_carry_the_key_is_refused(body: bytes, reason: str) -> None:
    """No object is made up, nothing is overwritten, and the reason repeats nothing of the body."""
    assert reason == refused("json", "/m/ref", body, JSON)


def test_an_index_leads_only_where_an_array_has_it() -> None:
    """`/1` of an array with one item, `/01` and `/-` lead nowhere."""
    reasons = [refused("json", f"/{index}/ref", b"[{}]") for index in ("1", "01", "-")]

    assert ["1", "01", "-"] == [
        reason.split("/")[1] for reason in reasons if reason.endswith("the way there does not exist in the body")
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@PROPERTY
@given(
    before=st.dictionaries(st.text(max_size=4).filter(lambda name: name != "m"), VALUES, max_size=4),
    holder=st.dictionaries(st.text(max_size=4).filter(lambda name: name != "ref"), VALUES, max_size=3),
    after=VALUES,
    indent=st.sampled_from([None, 0, 2, "\t"]),
    ascii_only=st.booleans(),
)
def test_taking_the_stamp_off_gives_back_every_byte(
    before: dict[str, object], holder: dict[str, object], after: object, indent: int | str | None, *, ascii_only: bool
) -> None:
    """In any document, in any layout: the stamp is in its place, and is the only change."""
    document = before | {"m": [after, holder]}
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()

    found = stamped("json", "/m/1/ref", body, JSON).body

    written = b'"ref":"k-1",' if holder else b'"ref":"k-1"'
    at = next(at for at in range(len(found)) if found[:at] + found[at + len(written) :] == body)
    assert written == found[at : at + len(written)]
    assert before | {"m": [after, {"ref": "k-1"} | holder]} == json.loads(found)


# A form


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", b"m%5Bref%5D=k-1"),
        (b"a=1&b=%20+", b"a=1&b=%20+&m%5Bref%5D=k-1"),
        (b"a=1&", b"a=1&m%5Bref%5D=k-1"),
        (b"m%5bref%5D=k%2D1&a=1", b"m%5bref%5D=k%2D1&a=1"),
        (b"m[ref]=k-1", b"m[ref]=k-1"),
    ],
)
def test_a_form_gets_one_field_more(body: bytes, expected: bytes) -> None:
    """What the client wrote stays as it is; a form that has the key already is not changed."""
    assert expected == stamped("form", "m[ref]", body, FORM).body


def test_a_key_is_escaped_in_a_form() -> None:
    """A key does not add fields."""
    assert b"a=1&ref=k%261%3D%2B%25" == stamped("form", "ref", b"a=1", FORM, key="k&1=+%").body


@pytest.mark.parametrize("body", [b"ref=other", b"ref=", b"ref", b"ref=k-1&ref=other", b"r%65f=other"])
def test_a_form_with_another_value_is_refused(body: bytes) -> None:
    """Nothing is overwritten, and no field comes twice."""
    assert "the form has another value in ref than the key: leave it out" == refused("form", "ref", body, FORM)


@pytest.mark.parametrize(
    "fields", [(), JSON, FORM + FORM, ((b"Content-Type", b"multipart/form-data; boundary=a"),), ((b"Content-Type", b""),)]
)
def test_only_a_form_is_stamped_as_one(fields: Fields) -> None:
    """A pair at the end of anything else would damage it."""
    told = "the key is to be written into a form, and the request's type is not application/x-www-form-urlencoded"

    assert told == refused("form", "ref", b"a=1", fields)


def test_a_damaged_form_is_refused() -> None:
    """What its fields are called cannot be told."""
    assert "the form has a percent sign without two hexadecimal digits after it" == refused("form", "ref", b"re%6=1", FORM)


# Bodies that must not be touched


@pytest.mark.parametrize(("place", "name", "fields"), [("json", "/ref", JSON), ("form", "ref", FORM)])
@pytest.mark.parametrize("sealed", [b"Content-Digest", b"repr-digest", b"Digest", b"Content-MD5", b"Content-Encoding"])
def test_a_body_that_something_vouches_for_is_refused(place: Place, name: str, fields: Fields, sealed: bytes) -> None:
    """A digest or an encoding would no longer fit a changed body."""
    assert "into the body, and" in refused(place, name, b"{}", (*fields, (sealed, b"gzip")))


def test_no_encoding_by_name_is_none() -> None:
    """`identity` says that the body is as it is."""
    assert b'{"ref":"k-1"}' == stamped("json", "/ref", b"{}", (*JSON, (b"Content-Encoding", b"identity"))).body


def test_a_header_needs_nothing_of_the_body() -> None:
    """An encoded or sealed body goes on untouched beside a stamped header."""
    fields = ((b"Content-Encoding", b"gzip"), (b"Content-Digest", b"d"))

    assert (b"\x1f\x8b", 3) == ((found := stamped("header", "X-Ref", b"\x1f\x8b", fields)).body, len(found.fields))


# What is wrong with a rule


@pytest.mark.parametrize(("place", "name"), [("header", "X-Ref"), ("json", "/a/b~0c"), ("json", "/"), ("form", "a[b] c")])
def test_a_good_rule_has_no_problems(place: Place, name: str) -> None:
    """Each kind of place takes any name that it can have."""
    assert [] == check_stamp(StampRule(place, name))


@pytest.mark.parametrize(
    ("place", "name", "problem"),
    [
        ("header", "", "'' is not the name of a header field"),
        ("header", "X Ref", "'X Ref' is not the name of a header field"),
        ("header", "X-Réf", "'X-Réf' is not the name of a header field"),
        ("header", "Content-Length", "'Content-Length' has a meaning of its own"),
        ("header", "authorization", "'authorization' has a meaning of its own"),
        ("header", "Idempotency-Status", "'Idempotency-Status' has a meaning of its own"),
        ("header", "Via", "'Via' has a meaning of its own"),
        ("header", "X-Forwarded-Ref", "'X-Forwarded-Ref' has a meaning of its own"),
        ("json", "", "'' is no JSON Pointer to a member"),
        ("json", "a.b", "'a.b' is no JSON Pointer to a member"),
        ("json", "/a~2", "'/a~2': in a JSON Pointer"),
        ("form", "", "the form field has no name"),
    ],
)
def test_a_rule_without_a_place_is_a_problem(place: Place, name: str, problem: str) -> None:
    """Each is told in one sentence."""
    [told] = check_stamp(StampRule(place, name))

    assert told.startswith(problem)
