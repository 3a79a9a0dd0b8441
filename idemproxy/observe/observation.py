"""One request, as those outside may see it: no body, no query, no credentials, and of the key only its hash."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from idemproxy.core.problem import Slug

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


class Outcome(StrEnum):
    """What a request came to. All but the last two are also the values of `Idempotency-Status`."""

    EXECUTED = "executed"
    REPLAYED = "replayed"
    RECOVERED = "recovered"
    UNKNOWN = "unknown"
    IN_PROGRESS = "in-progress"
    REFUSED = "refused"
    BYPASSED = "bypassed"
    READ = "read"
    """Passed through: a safe method, or a route that only reads."""
    OWN = "own"
    """Answered by one of the proxy's own pages."""


class Result(StrEnum):
    """What one attempt proved."""

    NEVER_SENT = "never_sent"
    ANSWERED = "answered"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Observation:
    """The facts of one finished request. `seconds` from the request's head to the reply's last byte handed over.

    `status` is what the client got (499 when it left before), `path` the raw path as core.visible shows it, `waited` the seconds
    spent waiting for another request with the same key, `attempt_seconds` those spent in the attempt; `result` is None
    where nothing was forwarded under a claim. `request_id` is its `X-Request-Id`, at most 128 visible ASCII characters, or None.
    """

    route: str
    method: str
    path: str
    status: int
    outcome: Outcome
    seconds: float
    request_bytes: int
    response_bytes: int
    result: Result | None = None
    attempt_seconds: float | None = None
    waited: float | None = None
    slug: Slug | None = None
    scope: str | None = None
    upstream: str | None = None
    key_hash: str | None = None
    fence: int | None = None
    request_id: str | None = None
    unrecorded: bool = False
