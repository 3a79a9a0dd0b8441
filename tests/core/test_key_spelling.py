"""A key as it is forwarded: one spelling for each key, and that reads as the key."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.key import parse_key, spell_key

PROPERTY = settings(derandomize=True, deadline=None, max_examples=500)
KEYS = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1, max_size=255) | st.text(
    'a,"\\', min_size=1, max_size=8
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("abc", b"abc"),
        ("wf_1_step_2;a=b:c/d", b"wf_1_step_2;a=b:c/d"),
        ("a\\b", b"a\\b"),
        ("\\", b"\\"),
        ("a,b", b'"a,b"'),
        (",", b'","'),
        ('a"b', b'"a\\"b"'),
        ('"', b'"\\""'),
        ('"abc"', b'"\\"abc\\""'),
        ("a,\\b", b'"a,\\\\b"'),
        ('\\"', b'"\\\\\\""'),
    ],
)
def test_quoted_only_where_it_must_be(key: str, expected: bytes) -> None:
    """Bare is what almost every upstream expects; a comma or a quotation mark needs quotes, and then a backslash is escaped."""
    assert expected == spell_key(key)


@PROPERTY
@given(key=KEYS)
def test_what_is_spelled_reads_as_the_key(key: str) -> None:
    """An upstream that reads keys as we do gets the caller's key, whatever it holds."""
    assert key == parse_key(spell_key(key))


@PROPERTY
@given(key=KEYS)
def test_both_spellings_go_out_as_one(key: str) -> None:
    """Quoted or, where it can be, bare: what came makes no difference to what is forwarded."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    came = [f'"{escaped}"'.encode()] + ([key.encode()] if not set(key) & {",", '"'} else [])
    assert {spell_key(key)} == {spell_key(parse_key(value)) for value in came}
