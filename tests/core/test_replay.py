"""What is kept of an answer, and what is said about an operation (contract, section 8)."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Answer, Fields
from idemproxy.core.policy import Policy
from idemproxy.core.record import pack_answer, unpack_answer
from idemproxy.core.replay import keep, passed_on, status_lines
from tests.core.structured_field import Bare, read_item

HASH: Final = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
FENCE: Final = 1_764_425_543_000_001  # microseconds, as the stores give it: sixteen digits
STATUSES: Final = ("executed", "replayed", "recovered", "unknown", "in-progress", "refused", "bypassed")

# The contract's deny-list: Set-Cookie, authentication challenges, rate-limit and request-id fields.
DENIED: Final = (
    b"Set-Cookie",
    b"Set-Cookie2",
    b"WWW-Authenticate",
    b"Proxy-Authenticate",
    b"Authentication-Info",
    b"Proxy-Authentication-Info",
    b"RateLimit",
    b"RateLimit-Policy",
    b"RateLimit-Limit",
    b"RateLimit-Remaining",
    b"RateLimit-Reset",
    b"X-RateLimit-Limit",
    b"X-RateLimit-Remaining",
    b"X-RateLimit-Reset",
    b"Retry-After",
    b"X-Request-Id",
    b"Request-Id",
    b"X-Correlation-Id",
)
KEPT: Final[Fields] = (
    (b"Content-Type", b"application/json; charset=utf-8"),
    (b"DATE", b"Sat, 29 Nov 2025 14:12:23 GMT"),
    (b"eTag", b'W/"1"'),
    (b"Link", b"<a>; rel=next"),
    (b"X-Odd-cASE", b""),
    (b"link", b"<b>"),
    (b"Location", b"/v1/charges/ch_1"),
    (b"Cache-Control", b"no-store"),
    (b"Content-Encoding", b"gzip"),
    (b"Link", b"<a>; rel=next"),
    (b"X-Set-Cookie", b"is another field"),
    (b"Cookie", b"\xff"),
)


def kept(answer: Answer, policy: Policy) -> bytes | None:
    """What is kept of an answer that was passed on."""
    return keep(answer, passed_on(answer.reason, answer.fields), policy)


def kept_head(fields: Fields, policy: Policy | None = None) -> bytes | None:
    """The head that is kept of an answer with these fields."""
    packed = kept(Answer(200, b"OK", fields, b""), policy or Policy())
    return packed and unpack_answer(packed).head


# What is kept


def test_byte_for_byte() -> None:
    """Status, reason, body and fields are kept byte for byte, in order, with their case and repeats."""
    answer = Answer(201, b"Sure, made", KEPT, b"\x1f\x8b\x00\r\n\r\n")
    assert pack_answer(answer) == kept(answer, Policy())


@pytest.mark.parametrize("name", DENIED, ids=lambda name: name.decode())
def test_deny_list(name: bytes) -> None:
    """A field that speaks of one exchange or one client is not kept, in any case and however often; its neighbours are."""
    spelled = [(name, b"1"), (name.lower(), b"2"), (name.upper(), b""), (name.swapcase(), b"3")]
    fields = (spelled[0], KEPT[0], spelled[1], spelled[2], KEPT[1], spelled[3])
    assert kept_head(KEPT[:2]) == kept_head(fields)


def test_deny_list_is_no_longer() -> None:
    """Nothing is denied by default but these fields."""
    assert {name.lower() for name in DENIED} == Policy().replay_denied


def test_deny_list_of_the_route() -> None:
    """A route's own deny-list is what counts on it."""
    fields = ((b"X-Trace", b"t"), (b"Set-Cookie", b"c"), (b"x-trace", b"u"), (b"A", b"1"))
    assert b"OK\r\nSet-Cookie: c\r\nA: 1\r\n" == kept_head(fields, Policy(replay_denied=frozenset({b"x-trace"})))


@pytest.mark.parametrize(
    ("length", "limit", "expected"),
    [
        (0, 0, True),
        (1, 0, False),
        (9, 10, True),
        (10, 10, True),
        (11, 10, False),
        (1_048_576, None, True),
        (1_048_577, None, False),
    ],
)
def test_max_stored_body(length: int, limit: int | None, *, expected: bool) -> None:
    """A body of up to `max_stored_body` bytes, 1 MiB by default, is kept whole, and of a longer one nothing."""
    policy = Policy() if limit is None else Policy(max_stored_body=limit)
    body = b"x" * length
    packed = kept(Answer(200, b"OK", (), body), policy)
    assert (body if expected else None) == (packed and unpack_answer(packed).body)


# What is said


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param(status_lines("bypassed"), b"Idempotency-Status: bypassed\r\n", id="bare"),
        pytest.param(status_lines("refused", key_hash="0a"), b'Idempotency-Status: refused; key="0a"\r\n', id="key"),
        pytest.param(
            status_lines("in-progress", key_hash="0a", fence=FENCE),
            b'Idempotency-Status: in-progress; key="0a"; fence="1764425543000001"\r\n',
            id="fence",
        ),
        pytest.param(
            status_lines("executed", key_hash="0a", fence=7, expires_at=1_764_511_943_999_999),
            b'Idempotency-Status: executed; key="0a"; fence="7"; expires=1764511943\r\n',
            id="expires",
        ),
        pytest.param(
            status_lines("executed", fence=7, unrecorded=True),
            b'Idempotency-Status: executed; fence="7"; unrecorded\r\n',
            id="unrecorded",
        ),
        pytest.param(
            status_lines("replayed", key_hash="0a", fence=7, expires_at=1_000_000, replayed=True),
            b'Idempotency-Status: replayed; key="0a"; fence="7"; expires=1\r\nIdempotent-Replayed: true\r\n',
            id="replayed",
        ),
        pytest.param(
            status_lines("executed", fence=0, expires_at=0), b'Idempotency-Status: executed; fence="0"; expires=0\r\n', id="zero"
        ),
    ],
)
def test_status_lines(actual: bytes, expected: bytes) -> None:
    """The lines say the status, then what is known of the key's hash, the fence and the end of the answer, in seconds."""
    assert expected == actual


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    status=st.sampled_from(STATUSES),
    key_hash=st.none() | st.just(HASH),
    fence=st.none() | st.just(FENCE) | st.integers(0, 2**63),
    expires_at=st.none() | st.integers(0, 253_402_300_799_999_999),  # the end of the year 9999
    unrecorded=st.booleans(),
    replayed=st.booleans(),
)
def test_status_is_a_structured_field(
    status: str, key_hash: str | None, fence: int | None, expires_at: int | None, *, unrecorded: bool, replayed: bool
) -> None:
    """Each status with any parameters is an item of RFC 9651, and what is read from it is what was said."""
    line, *rest = (
        status_lines(status, key_hash=key_hash, fence=fence, expires_at=expires_at, unrecorded=unrecorded, replayed=replayed)
        .decode("ascii")
        .split("\r\n")
    )
    said: dict[str, Bare | None] = {
        "key": key_hash,
        "fence": None if fence is None else str(fence),
        "expires": None if expires_at is None else expires_at // 1_000_000,
        "unrecorded": True if unrecorded else None,
    }
    name, _, value = line.partition(": ")
    expected = (status, {parameter: known for parameter, known in said.items() if known is not None})
    assert ("Idempotency-Status", expected) == (name, read_item(value))
    assert (["Idempotent-Replayed: true", ""] if replayed else [""]) == rest
