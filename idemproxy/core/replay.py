"""What the proxy adds to an answer, and what of an answer is kept to be given again.

`Idempotency-Status` is a structured-field item (RFC 9651): a token with the parameters `key` (the key's hash), `fence`,
`expires` (Unix time in seconds) and `unrecorded`. A replay is what was stored plus these lines, and nothing is parsed.
The fence is a string, since it has more digits than the 15 of a structured-field integer (RFC 9651, section 3.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from idemproxy.core.message import Answer, without
from idemproxy.core.record import MICROSECONDS, pack_answer

if TYPE_CHECKING:
    from idemproxy.core.policy import Policy


def keep(answer: Answer, policy: Policy) -> bytes | None:
    """The packed answer that a replay will give, without what speaks of one exchange only; None when it is too long to keep."""
    if len(answer.body) > policy.max_stored_body:
        return None
    kept = without(answer.fields, policy.replay_denied)
    return pack_answer(Answer(answer.status, answer.reason, kept, answer.body))


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
    parts = [status]
    if key_hash is not None:
        parts.append(f'key="{key_hash}"')
    if fence is not None:
        parts.append(f'fence="{fence}"')
    if expires_at is not None:
        parts.append(f"expires={expires_at // MICROSECONDS}")
    if unrecorded:
        parts.append("unrecorded")
    lines = f"Idempotency-Status: {'; '.join(parts)}\r\n"
    if replayed:
        lines += "Idempotent-Replayed: true\r\n"
    return lines.encode("ascii")
