"""What the proxy adds to an answer, and what of an answer is kept to be given again.

`Idempotency-Status` is a structured-field item (RFC 9651): a token with the parameters `key` (the key's hash), `fence`,
`expires` (Unix time in seconds) and `unrecorded`. The fence is a string, since it has more digits than the 15 of a
structured-field integer (RFC 9651, section 3.3.1).

A replay is what was stored plus these lines, and nothing is parsed: unless the client says that it does not take the coding
in which the body is stored, and so gets the body decoded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from idemproxy.core.coding import UndecodableError, acceptable, names, pieces
from idemproxy.core.hop import dropped_names
from idemproxy.core.message import Answer, Fields, field_values, has_any, without
from idemproxy.core.policy import MIB
from idemproxy.core.record import MICROSECONDS, StoredAnswer, head_bytes, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from idemproxy.core.policy import Policy

MAX_DECODED: Final = 64 * MIB
"""A longer content is given as it is stored: a small body can unpack to a thousand times its length, and that takes long. What is
compressed in earnest seldom comes to more than twenty times, which is 20 MiB of the 1 MiB kept by default."""

_CODED: Final = b"\r\ncontent-encoding:"
_OF_THE_CODED: Final = frozenset({b"content-digest", b"repr-digest", b"digest", b"content-md5"})
"""Digests of the bytes as they were: no longer true (RFC 9530, sections 2 and 3; RFC 3230; RFC 1864)."""


def passed_on(reason: bytes, fields: Fields) -> bytes:
    """The head of an answer as it goes on to the client, on the wire: its reason phrase and its end-to-end fields."""
    return head_bytes(reason, fields, dropped_names(fields))


def keep(answer: Answer, head: bytes, policy: Policy) -> bytes | None:
    """The packed answer that a replay will give, without what speaks of one exchange only; None when it is too long to keep.

    `head` is what `passed_on` makes of the answer's.
    """
    if len(answer.body) > policy.max_stored_body:
        return None
    if has_any(answer.fields, policy.replay_denied):
        head = head_bytes(answer.reason, answer.fields, _either(dropped_names(answer.fields), policy.replay_denied))
    return pack(answer.status, head, answer.body)


@lru_cache(maxsize=256)
def _either(dropped: frozenset[bytes], denied: frozenset[bytes]) -> frozenset[bytes]:
    return dropped | denied


def status_lines(
    status: str,
    *,
    key_hash: str | None = None,
    fence: int | None = None,
    expires_at: int | None = None,
    unrecorded: bool = False,
    replayed: bool = False,
) -> bytes:
    """The field lines that say what became of the operation; `expires_at` in microseconds, as records have it."""
    key = "" if key_hash is None else f'; key="{key_hash}"'
    number = "" if fence is None else f'; fence="{fence}"'
    expires = "" if expires_at is None else f"; expires={expires_at // MICROSECONDS}"
    doubt = "; unrecorded" if unrecorded else ""
    mark = "Idempotent-Replayed: true\r\n" if replayed else ""
    return f"Idempotency-Status: {status}{key}{number}{expires}{doubt}\r\n{mark}".encode("ascii")


def surplus_codings(stored: StoredAnswer, asked: Fields) -> list[bytes]:
    """The codings that must come off a stored body for a client with these request fields, in the order of their application.

    None, as a rule: an absent Accept-Encoding takes everything (RFC 9110, section 12.5.3). None either of a part (206), which
    is no whole to be decoded, and where either side says `no-transform` (RFC 9110, section 7.7).
    """
    accepted = field_values(asked, b"accept-encoding")
    if not accepted or _CODED not in stored.head.lower():
        return []
    _, fields = read_head(stored.head)
    codings = names(field_values(fields, b"content-encoding"))
    if stored.status == 206 or _is_not_to_be_transformed(fields) or _is_not_to_be_transformed(asked):
        return []
    return codings[acceptable(codings, accepted) :]


def decoded_length(stored: StoredAnswer, surplus: list[bytes]) -> int | None:
    """How long a stored body is without its last codings, `surplus`; takes long, since all of it is decoded, and forgotten.

    None where it is to stay as it is: a coding is not known here, the body is damaged, or its content longer than MAX_DECODED.
    """
    try:
        return sum(map(len, decoded_body(stored, surplus)))
    except UndecodableError:
        return None


def decoded_body(stored: StoredAnswer, surplus: list[bytes]) -> Iterator[bytes]:
    """A stored body without its last codings, `surplus`, in pieces: many clients together need little memory for it."""
    return pieces(stored.body, surplus, max_decoded=MAX_DECODED)


def decoded_head(stored: StoredAnswer, surplus: list[bytes]) -> bytes:
    """The head of a stored answer with the fields that are true of it without its last codings, `surplus`."""
    reason, fields = read_head(stored.head)
    codings = names(field_values(fields, b"content-encoding"))
    left = b", ".join(codings[: len(codings) - len(surplus)])
    told: list[tuple[bytes, bytes]] = []
    for name, value in without(fields, _OF_THE_CODED):
        match name.lower():
            case b"content-encoding":
                if left:
                    told.append((name, left))
                    left = b""  # all of it is said, where the field was repeated
            case b"etag" if value.startswith(b'"'):  # strong, and these are other bytes (RFC 9110, section 8.8.1)
                told.append((name, b"W/" + value))
            case _:
                told.append((name, value))
    return head_bytes(reason, tuple(told))


def read_head(head: bytes) -> tuple[bytes, Fields]:
    """The reason phrase and the fields of a head as `head_bytes` makes it."""
    reason, *lines = head.split(b"\r\n")[:-1]
    parts = (line.partition(b": ") for line in lines)
    return reason, tuple((name, value) for name, _, value in parts)


def _is_not_to_be_transformed(fields: Fields) -> bool:
    directives = b",".join(field_values(fields, b"cache-control")).lower().split(b",")
    return b"no-transform" in (directive.strip() for directive in directives)
