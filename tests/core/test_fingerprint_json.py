"""JSON bodies are compared by what they say, exactly."""

from __future__ import annotations

import json
import random as randomness
import sys
from decimal import Decimal
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.fingerprint import FingerprintRule, fingerprint
from idemproxy.core.fingerprint.json_form import canonical_json
from idemproxy.core.message import Request

Json: TypeAlias = "bool | Decimal | str | list[Json] | dict[str, Json] | None"

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)
FORM_OF_BYTES = FingerprintRule(mode="raw")


def of(body: str | bytes, kind: bytes = b"application/json", rule: FingerprintRule | None = None) -> str:
    """The fingerprint of a POST with this body."""
    sent = body if isinstance(body, bytes) else body.encode()
    return fingerprint(Request("POST", b"/", ((b"Content-Type", kind),), sent), rule or FingerprintRule(), max_decoded=0)


def is_compared_as_bytes(body: str | bytes) -> bool:
    """Whether the body has no form of its own: its fingerprint is that of its bytes."""
    return of(body) == of(body, rule=FORM_OF_BYTES)


# What is written


def form(body: str) -> bytes:
    """The canonical form of a document."""
    found = canonical_json(body.encode(), None)[1]
    assert found is not None
    return found


def written_by_the_standard_library(body: str) -> bytes:
    """What version 1 is defined by: sorted names, no white space, and characters as they are."""
    written = json.dumps(json.loads(body), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return written.encode("utf-8", "surrogatepass")


def test_every_character_is_written_as_the_standard_library_writes_it() -> None:
    """In a text and in a name; halves of surrogate pairs, which only escapes can tell, among others too."""
    whole = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    halves = [f"\\u{code:04x}" for code in range(0xD800, 0xE000)]
    names = ",".join(f'"{half}":1' for half in halves)
    bodies = [json.dumps(whole, ensure_ascii=False), json.dumps(dict.fromkeys(whole, 1)), f"{{{names}}}"]

    assert [written_by_the_standard_library(body) for body in bodies] == [form(body) for body in bodies]


@PROPERTY
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**16), 10**16) | st.text(st.characters(codec=None)),
        lambda children: st.lists(children) | st.dictionaries(st.text(st.characters(codec=None)), children),
    )
)
def test_documents_are_written_as_the_standard_library_writes_them(document: object) -> None:
    """Stores hold fingerprints of what it wrote."""
    body = json.dumps(document)

    assert written_by_the_standard_library(body) == form(body)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("-0", b"0"),
        ("1.50", b"\xed\xa0\x80\xed\xb0\x8015e-1"),
        ("-1e400", b"\xed\xa0\x80\xed\xb0\x80-1e400"),
        ("120e-1", b"12"),
        ("12345678901234567", b"12345678901234567"),
        ("-12345678901234567", b"-12345678901234567"),
        ("123456789012345678", b"\xed\xa0\x80\xed\xb0\x80123456789012345678e0"),
    ],
)
@pytest.mark.parametrize("beside", ["", r', "\ud800"'], ids=["orjson", "json"])
def test_numbers_are_written_exactly(number: str, expected: bytes, beside: str) -> None:
    """As integers, or behind a mark that no text of JSON can hold; whoever writes them."""
    text = expected if expected[:1] != b"\xed" else b'"%b"' % expected
    more = b',"\xed\xa0\x80"' if beside else b""

    assert b"[%b%b]" % (text, more) == form(f"[{number}{beside}]")


# Documents, and the many ways to write one

SCALARS = st.none() | st.booleans() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec=None))
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=4), children, max_size=4),
    max_leaves=12,
)
RANDOMS = st.randoms(use_true_random=False)


def spelled(value: Json, random: randomness.Random) -> str:
    """One of the texts that say `value`: members in any order, any white space, escapes and number spellings."""

    def space() -> str:
        return "".join(random.choice(" \t\r\n") for _ in range(random.randrange(3)))

    match value:
        case dict():
            members = [f"{space()}{spelled(name, random)}{space()}:{spelled(item, random)}" for name, item in value.items()]
            random.shuffle(members)
            text = "{" + (",".join(members) or space()) + "}"
        case list():
            text = "[" + (",".join(spelled(item, random) for item in value) or space()) + "]"
        case str():
            text = '"' + "".join(spelled_character(character, random) for character in joined(value)) + '"'
        case Decimal():
            text = spelled_number(value, random)
        case _:
            text = json.dumps(value)
    return space() + text + space()


def joined(text: str) -> str:
    """The text as a reader of JSON has it: two halves of a surrogate pair that stand together are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def spelled_character(character: str, random: randomness.Random) -> str:
    """The character itself or its escape."""
    must = character in '"\\' or character < " " or "\ud800" <= character <= "\udfff"
    if must or random.random() < 0.3:
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(
            f"\\u{units[at : at + 2].hex().upper() if random.random() < 0.5 else units[at : at + 2].hex()}"
            for at in range(0, len(units), 2)
        )
    return character


def spelled_number(value: Decimal, random: randomness.Random) -> str:
    """One of the texts that say this number."""
    sign, figures, power = value.as_tuple()
    assert isinstance(power, int)
    zeros = random.randrange(4)
    digits = "".join(map(str, figures)) + "0" * zeros
    power -= zeros
    point = random.randrange(len(digits))
    whole, fraction = digits[: len(digits) - point], digits[len(digits) - point :]
    text = (whole.lstrip("0") or "0") + ("." + fraction if fraction else "")
    power += point
    if power or random.random() < 0.5:
        text += random.choice("eE") + (random.choice(("+", "", "+00")) if power >= 0 else "-") + str(abs(power))
    return ("-" if sign else "") + text


def model(value: Json) -> object:
    """A value of Python that equals another exactly when the documents say the same."""
    match value:
        case dict():
            return ("object", frozenset((joined(name), model(item)) for name, item in value.items()))
        case list():
            return ("array", tuple(model(item) for item in value))
        case str():
            return ("string", joined(value))
        case _:
            return (type(value).__name__, value)


@PROPERTY
@given(document=DOCUMENTS, one=RANDOMS, other=RANDOMS)
def test_spelling_does_not_matter(document: Json, one: randomness.Random, other: randomness.Random) -> None:
    """Order of names at any depth, white space, escapes and the spelling of numbers leave the fingerprint as it is."""
    assert of(spelled(document, one)) == of(spelled(document, other))


def with_leaf(value: Json, at: list[int], leaf: Json) -> Json:
    """The document with one of its leaves, counted down to from `at[0]`, replaced; as it is when it has fewer."""
    match value:
        case dict():
            return {name: with_leaf(item, at, leaf) for name, item in value.items()}
        case list():
            return [with_leaf(item, at, leaf) for item in value]
        case _:
            at[0] -= 1
            return leaf if at[0] == -1 else value


@PROPERTY
@given(document=DOCUMENTS, leaf=SCALARS, place=st.integers(0, 11), one=RANDOMS, other=RANDOMS)
def test_one_leaf_counts(document: Json, leaf: Json, place: int, one: randomness.Random, other: randomness.Random) -> None:
    """A document with one leaf changed, wherever it stands, is another, unless the new leaf says the same."""
    changed = with_leaf(document, [place], leaf)

    assert (model(document) == model(changed)) == (of(spelled(document, one)) == of(spelled(changed, other)))


SMALL = st.sampled_from(
    [None, True, False, Decimal(0), Decimal(1), Decimal("1.5"), "", "0", "1", "null", "1.5", "\ud800", "\udc00", "\ud800\udc00"]
)
FEW: st.SearchStrategy[Json] = st.recursive(
    SMALL,
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.sampled_from(["", "a", "1"]), children, max_size=2),
    max_leaves=3,
)


@settings(PROPERTY, max_examples=500)
@given(one=FEW, other=FEW, random=RANDOMS)
def test_documents_are_the_same_exactly_when_they_say_the_same(one: Json, other: Json, random: randomness.Random) -> None:
    """No two documents of different meaning share a fingerprint, and none of one meaning have two."""
    assert (model(one) == model(other)) == (of(spelled(one, random)) == of(spelled(other, random)))


@st.composite
def number_texts(draw: st.DrawFn) -> str:
    """Numbers of JSON of every size, in any spelling."""
    digits = draw(st.integers(0, 10 ** draw(st.sampled_from([1, 3, 17, 18, 30]))))
    power = draw(st.integers(-3, 3) | st.sampled_from([-400, 400, 10**9, -(10**9), 10**17]))
    return spelled_number(Decimal((draw(st.integers(0, 1)), tuple(map(int, str(digits))), power)), draw(RANDOMS))


@settings(PROPERTY, max_examples=500)
@given(one=number_texts(), other=number_texts())
def test_numbers_are_the_same_exactly_when_their_values_are(one: str, other: str) -> None:
    """Two numbers, whatever their size and spelling, share a fingerprint exactly when they are equal as decimals."""
    assert (Decimal(one) == Decimal(other)) == (of(f'{{"n":{one}}}') == of(f'{{"n":{other}}}'))


@PROPERTY
@given(text=number_texts(), place=st.integers(0, 40), digit=st.integers(0, 9))
def test_any_digit_of_a_number_counts(text: str, place: int, digit: int) -> None:
    """A number with one digit changed is another number, unless its value stays the same."""
    positions = [at for at, character in enumerate(text.lower().partition("e")[0]) if character.isdigit()]
    at = positions[place % len(positions)]
    changed = text[:at] + str(digit) + text[at + 1 :]
    leads = at == positions[0] and len(positions) > 1 and "." not in text[at : at + 2]
    if not (digit == 0 and leads):  # A leading zero is not JSON.
        assert (Decimal(text) == Decimal(changed)) == (of(text) == of(changed))


@pytest.mark.parametrize(
    "spellings",
    [
        ("1", "1.0", "1e0", "10e-1", "0.1E+1", "1E-0", "1" + "0" * 5000 + "e-5000"),
        ("0", "-0", "0.0", "0e5", "-0.000E-9", "0e999999999999999999999999"),
        ("100", "1e2", "1E+000000000000000000000000000002"),
        ("100000000000000000000", "1e20"),
        ("12345678901234567", "1234567890123456.7e1"),
        ("1e999999999", "10e999999998", "0.1e1000000000"),
    ],
    ids=lambda spellings: spellings[0],
)
def test_spellings_of_one_number(spellings: tuple[str, ...]) -> None:
    """The spellings of one value are one number, also where it is too large to be written out."""
    assert 1 == len({of(f"[{text}]") for text in spellings})


def test_numbers_that_floats_confuse_are_different() -> None:
    """Numbers beyond the range or precision of floats and of short integers stay apart."""
    texts = [
        "9007199254740993",
        "9007199254740992",
        "0.1",
        "0.1000000000000000055511151231257827",
        "1e400",
        "1e401",
        "1e-400",
        "-1e400",
    ]
    texts += [
        "0",
        "9" * 5000,
        "9" * 5001,
        "1e999999999",
        "1e999999998",
        "123456789012345678",
        "123456789012345679",
        "1" + "0" * 5000,
    ]

    assert len(texts) == len({of(f"[{text}]") for text in texts})
    assert not any(is_compared_as_bytes(f"[{text}]") for text in texts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[1,2]", "[2,1]"),
        ('{"a":null}', "{}"),
        ('{"a":1}', '[["a",1]]'),
        ('{"a":1}', '["a",1]'),
        ('"1"', "1"),
        ('"1.5"', "1.5"),
        ('"15e-1"', "1.5"),
        ("true", "1"),
        ("false", "0"),
        ("null", '"null"'),
        ("null", "0"),
        ("[]", "{}"),
        ("[[],[]]", "[[[]]]"),
        ('{"a":{"b":1}}', '{"a":{},"b":1}'),
        ('"e\u0301"', '"\u00e9"'),
        ('"\\ud800"', '"\\udc00"'),
        ('"A"', '"a"'),
        ('""', '" "'),
    ],
)
def test_documents_that_differ(one: str, other: str) -> None:
    """Order of items, absence, kind of value and every character count."""
    assert of(one) != of(other)
    assert not is_compared_as_bytes(one)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a":1,"a":1}', id="a name twice"),
        pytest.param(b'[{"a":1,"\\u0061":1}]', id="a name twice by an escape"),
        pytest.param(b'"\xff"', id="not UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="a surrogate in UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(b"[NaN]", id="NaN"),
        pytest.param(b"[-Infinity]", id="Infinity"),
        pytest.param(b"{} {}", id="something follows"),
        pytest.param(b"[01]", id="a leading zero"),
        pytest.param(b"[1,]", id="a comma too many"),
        pytest.param(b'["\n"]', id="a bare control character"),
        pytest.param(b"\x0b[]", id="white space that is not JSON's"),
        pytest.param(b"[1e" + b"9" * 19 + b"]", id="an exponent of 19 digits"),
        pytest.param(b"[" * 101 + b"]" * 101, id="101 levels"),
        pytest.param(b'{"a":' * 101 + b"1" + b"}" * 101, id="101 levels of objects"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="100,000 levels"),
        pytest.param(b"[" * 100_000, id="100,000 levels without end"),
    ],
)
def test_what_is_not_plain_json_is_compared_as_bytes(body: bytes) -> None:
    """Readers disagree on such bodies, so only the same bytes are the same request."""
    assert is_compared_as_bytes(body)
    assert of(body) != of(body + b" ")


def test_the_limit_of_levels_does_not_depend_on_the_caller() -> None:
    """100 levels are compared by meaning, from a shallow and from a deep stack; brackets in strings are no levels."""

    def from_below(levels: int, body: str) -> str:
        return of(body) if levels == 0 else from_below(levels - 1, body)

    deep = "[" * 99 + '{"a":"' + "[" * 200 + '"}' + "]" * 99

    assert not is_compared_as_bytes(deep)
    assert of(deep) == from_below(500, " " + deep)
    assert from_below(500, f"[{deep}]") == of(f"[{deep}]", rule=FORM_OF_BYTES)


def test_types_that_are_json() -> None:
    """Any type with the suffix +json is JSON; what merely mentions JSON is not."""

    def ignores_white_space(kind: bytes) -> bool:
        return of("[1]", kind) == of("[ 1 ]", kind)

    kinds = [b"application/json", b"APPLICATION/JSON;a=b", b"application/vnd.api+json", b"application/jsonl", b"text/plain", b""]

    assert [True, True, True, False, False, False] == [ignores_white_space(kind) for kind in kinds]
