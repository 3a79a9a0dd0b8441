"""What of a target may stand in a log: no key in any spelling, no credentials, and nothing behind the path."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.core.visible import plain_keys, tells, visible_path

NAMES = {b"idempotency-key", b"x-key"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (((b"Host", b"a"), (b"Workflow-Id", b"w")), {b"w"}),
        (((b"Workflow-Id", rb'"a\"b"'),), {rb"a\"b", b'a"b'}),
        (((b"Baggage", b"Workflow-Id=a%2Fb;p=1"),), {b"a/b"}),
        (((b"IDEMPOTENCY-KEY", b"abc"), (b"X-Key", b'"def"')), {b"abc", b"def"}),
        (((b"Idempotency-Key", rb'"a\"b"'),), {rb"a\"b", b'a"b'}),
        (((b"Idempotency-Key", rb"a\b"),), {rb"a\b", rb"a\\b"}),
        (((b"Idempotency-Key", b"a"), (b"Idempotency-Key", b'"b'), (b"Idempotency-Key", b"caf\xe9")), {b"a", b"b", b"caf\xe9"}),
        (((b"Idempotency-Key", b""), (b"X-Key", b'""')), set()),
        (((b"Workflow-Id", b"w"), (b"Workflow-Step", b"3"), (b"X-Key", b"abc")), {b"w", b"w_step_3", b"abc"}),
        (((b"Workflow-Id", b"w"), (b"Workflow-Step", b"a_step_b")), {b"w"}),
    ],
)
def test_the_keys_of_a_request(fields: tuple[tuple[bytes, bytes], ...], expected: set[bytes]) -> None:
    """Those of every field that holds keys, as sent and without their quotes, valid or not, and that of a workflow's step."""
    assert expected == plain_keys(fields, NAMES)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/v1/charges?key=1", b"/v1/charges"),
        (b"/x#fragment?y", b"/x"),
        (b"/x?y#z", b"/x"),
        (b"*", b"-"),
        (b"h:443", b"-"),
        (b"http://me:pw@h/x", b"-"),
        (b"//me:pw@h/x", b"//*@h/x"),
        (b"//me:p@w@h", b"//*@h"),
        (b"///me:pw@h/x", b"///*@h/x"),
        (b"/get/https://me:pw@h/x", b"/get/https://*@h/x"),
        (b"/get/https%3a%2F%2fme:pw%40h%2Fx", b"/get/https%3a%2F%2f*@h%2Fx"),
        (b"//h/@x", b"//h/@x"),
        (b"/@me", b"/@me"),
        (b"/_idemproxy/keys/abc", b"/_idemproxy/keys/*"),
        (b"/%5fidemproxy/k%65ys/abc/def?g", b"/_idemproxy/keys/*"),
        (b"/_idemproxy/workflows/trip-1/memory", b"/_idemproxy/workflows/*"),
        (b"/_%69demproxy/workflow%73/trip%2D1", b"/_idemproxy/workflows/*"),
        (b"/_idemproxy/other", b"/_idemproxy/other"),
        (b"/_idemproxy/key/abc", b"/_idemproxy/*"),
        (b"/_idemproxy/keys%2fabc", b"/_idemproxy/*"),
        (b"/_idemproxy//keys/abc", b"/_idemproxy/*"),
        (b"/\xff%ff", b"/\xff%ff"),
    ],
)
def test_a_path_without_keys(target: bytes, expected: bytes) -> None:
    """It ends before query and fragment, and holds no credentials; a key that is asked for is not shown."""
    assert expected == visible_path(target, ())


@pytest.mark.parametrize(
    ("target", "keys", "expected"),
    [
        (b"/orders/abc", {b"abc"}, b"/orders/*"),
        (b"/abc/orders/abc.json", {b"abc"}, b"/*/orders/*.json"),
        (b"/orders/%61b%63", {b"abc"}, b"/orders/*"),
        (b"/orders/a%2Fb%2fc%2f", {b"a/b/c"}, b"/orders/*%2f"),
        (b"/orders/a%41%zz%", {b"a%41"}, b"/orders/*%zz%"),
        (b"/orders/%2A/*", {b"*"}, b"/orders/*/*"),
        (b"/orders/abcd", {b"abc", b"abcd"}, b"/orders/*"),
        (b"/orders/other", {b"abc"}, b"/orders/other"),
    ],
)
def test_a_path_with_its_key(target: bytes, keys: set[bytes], expected: bytes) -> None:
    """Wherever it stands, however it is spelled, it is a star; all else stays as it was."""
    assert expected == visible_path(target, keys)


@given(st.from_regex(rb"[\x21-\x29\x2b-\x7e]{1,12}", fullmatch=True), st.binary(max_size=8), st.randoms(use_true_random=False))
def test_no_spelling_brings_a_key_into_the_log(key: bytes, around: bytes, random: object) -> None:
    """Whatever characters of it are percent-encoded, and whatever stands around it, what is left does not tell it."""
    choose = getattr(random, "random")  # noqa: B009 - hypothesis gives a random.Random
    spelled = "".join(f"%{octet:02x}" if choose() < 0.5 or octet in b"?#%/" else chr(octet) for octet in key).encode()
    shown = visible_path(b"/" + quote(around).encode() + b"/" + spelled + b"/", {key})

    assert b"*" in shown
    assert key not in re.sub(rb"\*", b"", unquote_to_bytes(shown)) or len(key) == 1


@pytest.mark.parametrize(("text", "expected"), [(b"abc", True), (b"try-abc-2", True), (b"%61bc", True), (b"ab", False)])
def test_a_text_that_tells_a_key(text: bytes, *, expected: bool) -> None:
    """As it stands, or percent-encoded."""
    assert expected is tells(text, {b"abc", b"xyz"})
