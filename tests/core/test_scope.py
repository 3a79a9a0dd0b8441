"""Scopes: two callers whose named fields differ in anything never meet (contract, section 5)."""

from __future__ import annotations

import hmac
from hashlib import sha256
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Fields
from idemproxy.core.scope import ScopeRule, find_scope

RULE = ScopeRule((b"authorization", b"x-tenant"))
ACME: Fields = ((b"X-Tenant", b"acme"),)

# Values that look like the framing of a scope, so that a framing without lengths or counts is found out.
VALUES = (b"", b"a", b"aa", b"0:", b"1:a", b"a\n1:a", b"x-tenant:1", b"\nx-tenant:1\n1:a")


def named(fields: Fields) -> tuple[tuple[bytes, ...], ...]:
    """The values of the two fields of RULE, which are what makes two scopes one."""
    return tuple(tuple(value for name, value in fields if name.lower() == wanted) for wanted in RULE.headers)


def test_shared() -> None:
    """Without named fields all callers share one scope, with or without a secret."""
    expected = ["shared"] * 4
    actual = [find_scope(fields, ScopeRule(), secret) for fields in ((), ACME) for secret in (None, b"secret")]
    assert expected == actual


@pytest.mark.parametrize(
    ("fields", "hashed"),
    [
        ((), b"x-tenant:0"),
        (((b"X-Tenant", b""),), b"x-tenant:1\n0:"),
        (ACME, b"x-tenant:1\n4:acme"),
        ((*ACME, (b"x-tenant", b"b")), b"x-tenant:2\n4:acme\n1:b"),
    ],
    ids=["absent", "empty", "one", "two"],
)
def test_what_is_hashed(fields: Fields, hashed: bytes) -> None:
    """A scope is the SHA-256 of names, counts and lengths as written here, or the HMAC: stored records are found by it."""
    rule = ScopeRule((b"x-tenant",))
    expected = (sha256(hashed).hexdigest(), hmac.digest(b"secret", hashed, "sha256").hex())
    assert expected == (find_scope(fields, rule, None), find_scope(fields, rule, b"secret"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((), ((b"X-Tenant", b""),), id="absent, empty"),
        pytest.param(((b"X-Tenant", b""),), ((b"X-Tenant", b""), (b"X-Tenant", b"")), id="one empty, two empty"),
        pytest.param(((b"X-Tenant", b"a, b"),), ((b"X-Tenant", b"a"), (b"X-Tenant", b"b")), id="one line, two lines"),
        pytest.param(
            ((b"X-Tenant", b"ab"), (b"X-Tenant", b"c")), ((b"X-Tenant", b"a"), (b"X-Tenant", b"bc")), id="split elsewhere"
        ),
        pytest.param(
            ((b"X-Tenant", b"a"), (b"X-Tenant", b"b")), ((b"X-Tenant", b"b"), (b"X-Tenant", b"a")), id="order of the lines"
        ),
        pytest.param(((b"X-Tenant", b"a"),), ((b"Authorization", b"a"),), id="under another name"),
        pytest.param(((b"X-Tenant", b"a"),), ((b"X-Tenant", b"A"),), id="case of the value"),
        pytest.param(((b"X-Tenant", b"a"),), ((b"X-Tenant", b"b"),), id="the value"),
    ],
)
def test_apart(one: Fields, other: Fields) -> None:
    """Whether a field is there, how often, in what order and with what value: each difference is another scope."""
    assert 2 == len({find_scope(one, RULE, None), find_scope(other, RULE, None)})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(((b"x-tenant", b"acme"), (b"authorization", b"t")), id="case of the names"),
        pytest.param(((b"Authorization", b"t"), (b"X-Tenant", b"acme")), id="order of different fields"),
        pytest.param(((b"X-Tenant", b"acme"), (b"Cookie", b"c"), (b"Authorization", b"t")), id="a field that is not named"),
    ],
)
def test_together(other: Fields) -> None:
    """The case of names, the order of different fields and all fields that are not named make no difference."""
    assert find_scope((*ACME, (b"Authorization", b"t")), RULE, None) == find_scope(other, RULE, None)


def test_only_a_hash_is_kept() -> None:
    """Nothing of a credential can be read in a scope: it is 64 hexadecimal digits."""
    scope = find_scope(((b"Authorization", b"Bearer deadbeef"),), RULE, None)
    assert (64, set(), False) == (len(scope), set(scope) - set("0123456789abcdef"), "deadbeef" in scope)


def test_another_secret_is_another_scope() -> None:
    """Scopes taken with different secrets, or with none, cannot be compared."""
    assert 3 == len({find_scope(ACME, RULE, secret) for secret in (None, b"one", b"two")})


def test_no_two_meet() -> None:
    """Of all requests with up to two values of each field, in every framing-like spelling, no two different ones meet."""
    counts = range(3)
    requests: list[Fields] = [
        (*((b"Authorization", value) for value in first), *((b"X-Tenant", value) for value in second))
        for one, two in product(counts, counts)
        for first in product(VALUES, repeat=one)
        for second in product(VALUES, repeat=two)
    ]
    assert len(set(map(named, requests))) == len({find_scope(fields, RULE, None) for fields in requests})


@settings(derandomize=True, deadline=None)
@given(
    requests=st.lists(
        st.lists(
            st.tuples(st.sampled_from([b"X-Tenant", b"x-tenant", b"Authorization", b"Cookie"]), st.binary(max_size=2)), max_size=3
        ).map(tuple),
        max_size=20,
    )
)
def test_one_scope_for_equal_values_only(requests: list[Fields]) -> None:
    """Any requests fall into exactly as many scopes as there are different values of the named fields."""
    pairs = {(named(fields), find_scope(fields, RULE, b"secret")) for fields in requests}
    values = {value for value, _ in pairs}
    scopes = {scope for _, scope in pairs}
    assert (len(pairs), len(pairs)) == (len(values), len(scopes))
