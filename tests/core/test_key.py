"""Keys: two spellings of one name, everything without one sure reading refused, and only a hash kept (contract, section 4)."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idemproxy.core.key import KeyInvalidError, KeyMode, KeyRule, KeySource, explicit_key, hash_secretly, parse_key
from idemproxy.core.message import Fields

PROPERTY = settings(derandomize=True, deadline=None, max_examples=300)
VISIBLE = string.ascii_letters + string.digits + string.punctuation
UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def read(value: bytes) -> str | None:
    """The key in this value, or None when it is refused."""
    try:
        return parse_key(value)
    except KeyInvalidError:
        return None


def quoted(key: str) -> bytes:
    """The key as a structured-field string (RFC 9651, section 4.1.6)."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.encode("ascii")


# One value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"abc", "abc", id="bare"),
        pytest.param(b'"abc"', "abc", id="quoted"),
        pytest.param(UUID.encode(), UUID, id="bare uuid"),
        pytest.param(f'"{UUID}"'.encode(), UUID, id="quoted uuid"),
        pytest.param(b"a", "a", id="one character, bare"),
        pytest.param(b'"a"', "a", id="one character, quoted"),
        pytest.param(b'"a\\"b"', 'a"b', id="escaped quotation mark"),
        pytest.param(b'"a\\\\b"', "a\\b", id="escaped backslash"),
        pytest.param(b'"\\\\\\""', '\\"', id="nothing but escapes"),
        pytest.param(b'"\\\\n"', "\\n", id="an escaped backslash escapes nothing else"),
        pytest.param(b"a\\b", "a\\b", id="a bare backslash is itself"),
        pytest.param(b'"a,b"', "a,b", id="a quoted comma is no list"),
        pytest.param(b"wf_1_step_2;a=b:c/d", "wf_1_step_2;a=b:c/d", id="bare punctuation"),
        pytest.param(b"ABC", "ABC", id="case is kept"),
        pytest.param(b"x" * 255, "x" * 255, id="255 bare"),
        pytest.param(b'"%b"' % (b"x" * 255), "x" * 255, id="255 quoted"),
        pytest.param(b'"%b"' % (b'\\"' * 255), '"' * 255, id="255 after unquoting"),
    ],
)
def test_accepted(value: bytes, expected: str) -> None:
    """The structured-field string and the bare form are the same key, of 1 to 255 visible ASCII characters after unquoting."""
    assert expected == parse_key(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'""', id="empty string"),
        pytest.param(b"x" * 256, id="256 bare"),
        pytest.param(b'"%b"' % (b"x" * 256), id="256 quoted"),
        pytest.param(b'"%b"' % (b"\\\\" * 256), id="256 after unquoting"),
        pytest.param(b"a,b", id="bare list"),
        pytest.param(b"a, b", id="bare list with a space"),
        pytest.param(b"a,", id="bare list, one member"),
        pytest.param(b'"a","b"', id="list of strings"),
        pytest.param(b'"a", "b"', id="list of strings with a space"),
        pytest.param(b'"a", b', id="mixed list"),
        pytest.param(b'"a" "b"', id="two strings"),
        pytest.param(b'"', id="a lone quotation mark"),
        pytest.param(b'"abc', id="not closed"),
        pytest.param(b'abc"', id="not opened"),
        pytest.param(b'a"b', id="a quotation mark inside"),
        pytest.param(b'"a"b', id="text after the string"),
        pytest.param(b'"a"b"', id="a quotation mark that is not escaped"),
        pytest.param(b'"a\\"', id="closing mark escaped"),
        pytest.param(b'"a\\b"', id="an escape that there is not"),
        pytest.param(b'"a";p=1', id="a string with a parameter"),
        pytest.param(b"a b", id="space, bare"),
        pytest.param(b'"a b"', id="space, quoted"),
        pytest.param(b" ", id="nothing but a space"),
        pytest.param(b'" "', id="nothing but a space, quoted"),
        pytest.param(b" a", id="space before"),
        pytest.param(b"a ", id="space after"),
        pytest.param(b'"a" ', id="space after a string"),
        pytest.param(b"a\tb", id="tab"),
        pytest.param(b"a\r\nb", id="line break"),
        pytest.param(b"abc\n", id="line feed at the end"),
        pytest.param(b'"abc"\n', id="line feed after a string"),
        pytest.param("é".encode(), id="utf-8"),
        pytest.param(b'"%b"' % "é".encode(), id="utf-8, quoted"),
        pytest.param(b"\xe9", id="latin-1"),
    ],
)
def test_refused(value: bytes) -> None:
    """A list, an empty or over-long key, a damaged string, white space, control and non-ASCII characters are refused."""
    with pytest.raises(KeyInvalidError):
        parse_key(value)


def test_every_octet_of_a_bare_key() -> None:
    """A bare key may hold every visible ASCII character but a comma and a quotation mark, and no other octet."""
    expected = {octet: f"x{chr(octet)}y" if chr(octet) in set(VISIBLE) - {",", '"'} else None for octet in range(256)}
    assert expected == {octet: read(b"x%cy" % octet) for octet in range(256)}


def test_every_octet_of_a_quoted_key() -> None:
    """Within quotes every visible ASCII character may stand, the quotation mark and the backslash only escaped."""
    expected = {octet: f"x{chr(octet)}y" if chr(octet) in set(VISIBLE) - {"\\", '"'} else None for octet in range(256)}
    assert expected == {octet: read(b'"x%cy"' % octet) for octet in range(256)}


def test_every_escape() -> None:
    """Only a quotation mark and a backslash can be escaped."""
    assert {ord('"'): '"', ord("\\"): "\\"} == {
        octet: key for octet in range(256) if (key := read(b'"\\%c"' % octet)) is not None
    }


@PROPERTY
@given(key=st.text(VISIBLE, min_size=1, max_size=255))
@example(key='\\"\\')
@example(key=VISIBLE)
def test_every_key_can_be_quoted(key: str) -> None:
    """Whatever visible characters a key has, its structured-field string is that key."""
    assert key == parse_key(quoted(key))


@PROPERTY
@given(key=st.text(sorted(set(VISIBLE) - {",", '"'}), min_size=1, max_size=255))
def test_both_spellings_are_one_key(key: str) -> None:
    """A key that can be written bare is the same key when it is quoted."""
    assert parse_key(quoted(key)) == parse_key(key.encode("ascii"))


@PROPERTY
@given(value=st.binary(max_size=300) | st.lists(st.sampled_from([b'"', b"\\", b",", b"a", b" ", b"\n"])).map(b"".join))
def test_nothing_else_comes_out(value: bytes) -> None:
    """Of any octets, what is accepted is 1 to 255 visible ASCII characters, and the rest is refused as an invalid key."""
    key = read(value)
    assert key is None or (1 <= len(key) <= 255 and set(VISIBLE) >= set(key))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "is empty"),
        (b'""', "is empty"),
        (b"x" * 256, "has 256 characters, and at most 255 are allowed"),
        (b"a,b", "holds a comma or a quotation mark"),
        (b'a"', "holds a comma or a quotation mark"),
        (b'"a', "is not one well-formed quoted string"),
        (b'"a b"', "holds a space, or another character that is not visible ASCII"),
        (b"a b", "holds a space, or another character that is not visible ASCII"),
    ],
    ids=["empty", "empty string", "too long", "list", "damaged", "not closed", "space, quoted", "space, bare"],
)
def test_the_reason(value: bytes, reason: str) -> None:
    """Who sends a bad key is told what is wrong with it."""
    with pytest.raises(KeyInvalidError, match=f"^the key {reason}"):
        parse_key(value)


@pytest.mark.parametrize(
    "value", [b"s3cret,b", b'"s3cret', b's3cret"', b"s3cret b", b'"s3cret b"', b"s3cret" * 43, b"s3cret\xff"]
)
def test_the_reason_does_not_tell_the_key(value: bytes) -> None:
    """Why a key is refused is said without the key, since the reason goes into an answer and may go into a log."""
    with pytest.raises(KeyInvalidError) as refused:
        parse_key(value)
    assert "s3cret" not in str(refused.value)


# A request's fields


@pytest.mark.parametrize(
    ("fields", "header", "expected"),
    [
        pytest.param((), b"idempotency-key", None, id="absent"),
        pytest.param(((b"Idempotency-Key", b"a"),), b"idempotency-key", "a", id="present"),
        pytest.param(((b"idempotency-key", b"a"),), b"idempotency-key", "a", id="lower case"),
        pytest.param(((b"IDEMPOTENCY-KEY", b'"a"'),), b"idempotency-key", "a", id="upper case, quoted"),
        pytest.param(((b"Host", b"h"), (b"Idempotency-Key", b"a"), (b"Date", b"d")), b"idempotency-key", "a", id="among others"),
        pytest.param(((b"X-Idempotency-Key", b"a"),), b"idempotency-key", None, id="another name"),
        pytest.param(((b"PayPal-Request-Id", b"a"),), b"paypal-request-id", "a", id="the route's name"),
        pytest.param(
            ((b"Idempotency-Key", b"a"), (b"PayPal-Request-Id", b"b")), b"paypal-request-id", "b", id="the route's name alone"
        ),
        pytest.param(((b"Idempotency-Key", b"a"),), b"paypal-request-id", None, id="not the route's name"),
    ],
)
def test_find_key(fields: Fields, header: bytes, expected: str | None) -> None:
    """The key stands in the one field that the route names, in any case; without that field there is no key."""
    assert expected == explicit_key(fields, KeyRule(header))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((b"a", b"b"), id="two keys"),
        pytest.param((b"a", b"a"), id="the same twice"),
        pytest.param((b"a", b'"a"'), id="both spellings"),
        pytest.param((b"a", b""), id="a key and nothing"),
        pytest.param((b"", b""), id="nothing twice"),
        pytest.param((b"a", b"b", b"c"), id="three"),
        pytest.param((b"",), id="one empty"),
        pytest.param((b'""',), id="one empty string"),
        pytest.param((b"a, b",), id="one line with a list"),
        pytest.param((b"a,",), id="one line with a list of one"),
    ],
)
def test_no_single_key(values: tuple[bytes, ...]) -> None:
    """Two header lines, a list, or an empty value name no single operation, whatever they hold."""
    fields = tuple(zip((b"Idempotency-Key", b"idempotency-key", b"IDEMPOTENCY-KEY"), values, strict=False))
    with pytest.raises(KeyInvalidError):
        explicit_key(fields, KeyRule())


def test_default_rule() -> None:
    """A route that says nothing takes its keys from Idempotency-Key, and does not insist on one."""
    rule = KeyRule()
    assert (b"idempotency-key", KeyMode.OPTIONAL, frozenset(KeySource)) == (rule.header, rule.mode, rule.sources)


# What is kept


@pytest.mark.parametrize(
    ("text", "secret", "expected"),
    [
        # FIPS 180-2, appendix B.1
        (b"abc", None, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        # RFC 4231, section 4.3
        (b"what do ya want for nothing?", b"Jefe", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    ],
)
def test_hash_secretly(text: bytes, secret: bytes | None, expected: str) -> None:
    """A key is kept as its SHA-256, and as its HMAC-SHA-256 where a secret is set."""
    assert expected == hash_secretly(text, secret)
