"""The proxy's own answers: RFC 9457 problem documents that a program, or a model, can act on.

Each slug has one row: what it is called, whether the operation was executed, and what a retry should do. A document
echoes nothing of any request, but the name of a parameter that a page of the proxy does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Slug(StrEnum):
    """The `type` of a problem document."""

    KEY_MISSING = "key-missing"
    KEY_INVALID = "key-invalid"
    BAD_REQUEST = "bad-request"
    KEY_REUSED = "key-reused"
    IN_PROGRESS = "in-progress"
    OUTCOME_UNKNOWN = "outcome-unknown"
    RESPONSE_UNAVAILABLE = "response-unavailable"
    KEY_EXPIRED = "key-expired"
    NOT_SENT = "not-sent"
    STORE_UNAVAILABLE = "store-unavailable"
    RECORDS_LOST = "records-lost"
    BODY_TOO_LARGE = "body-too-large"
    NO_ROUTE = "no-route"
    DRAINING = "draining"
    WORKFLOW_UNKNOWN = "workflow-unknown"
    KEY_UNKNOWN = "key-unknown"
    MEMORY_CHANGED = "memory-changed"
    METHOD_NOT_ALLOWED = "method-not-allowed"


class Executed(StrEnum):
    """Whether the operation took effect, as far as anyone can know."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    IN_PROGRESS = "in_progress"


class Retry(StrEnum):
    """How the caller may try again."""

    SAME_KEY = "same_key"
    NEW_KEY = "new_key"
    AFTER_CHECK = "after_check"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table: `status` is the usual HTTP status, `error` the RFC 9209 error type, if one fits."""

    status: int
    title: str
    executed: Executed
    retry: Retry
    error: str | None = None


KINDS: Final = MappingProxyType(
    {
        Slug.KEY_MISSING: Kind(400, "A key is required", Executed.NO, Retry.NEW_KEY, "http_request_error"),
        Slug.KEY_INVALID: Kind(400, "The key is not valid", Executed.NO, Retry.NEW_KEY, "http_request_error"),
        Slug.BAD_REQUEST: Kind(400, "The request is not valid", Executed.NO, Retry.NEW_KEY, "http_request_error"),
        Slug.KEY_REUSED: Kind(422, "The key names another operation", Executed.NO, Retry.NEW_KEY, "http_request_denied"),
        Slug.IN_PROGRESS: Kind(409, "The operation is in progress", Executed.IN_PROGRESS, Retry.SAME_KEY),
        Slug.OUTCOME_UNKNOWN: Kind(409, "The outcome is unknown", Executed.UNKNOWN, Retry.AFTER_CHECK),
        Slug.RESPONSE_UNAVAILABLE: Kind(409, "The answer was not kept", Executed.YES, Retry.NEVER),
        Slug.KEY_EXPIRED: Kind(410, "The answer is no longer kept", Executed.YES, Retry.AFTER_CHECK),
        Slug.NOT_SENT: Kind(502, "The request was not sent", Executed.NO, Retry.SAME_KEY, "destination_unavailable"),
        Slug.STORE_UNAVAILABLE: Kind(503, "The store is unavailable", Executed.NO, Retry.SAME_KEY, "proxy_internal_error"),
        Slug.RECORDS_LOST: Kind(503, "The store has lost records", Executed.UNKNOWN, Retry.AFTER_CHECK, "proxy_internal_error"),
        Slug.BODY_TOO_LARGE: Kind(413, "The request body is too large", Executed.NO, Retry.NEVER, "http_request_denied"),
        Slug.NO_ROUTE: Kind(404, "No route matches the request", Executed.NO, Retry.NEVER, "http_request_denied"),
        Slug.DRAINING: Kind(503, "The proxy is shutting down", Executed.NO, Retry.SAME_KEY, "proxy_internal_error"),
        Slug.WORKFLOW_UNKNOWN: Kind(404, "Nothing is kept of this workflow", Executed.UNKNOWN, Retry.SAME_KEY),
        Slug.KEY_UNKNOWN: Kind(404, "There is no record of this key", Executed.UNKNOWN, Retry.SAME_KEY),
        Slug.MEMORY_CHANGED: Kind(412, "The memory has another version", Executed.NO, Retry.AFTER_CHECK),
        Slug.METHOD_NOT_ALLOWED: Kind(405, "The page has no such method", Executed.NO, Retry.NEVER, "http_request_denied"),
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, or an honest failure, before it is rendered. `retry_after` in whole seconds."""

    slug: Slug
    detail: str
    status: int
    retry_after: int | None = None
    error: str | None = None

    @property
    def kind(self) -> Kind:
        """The row of this problem's slug."""
        return KINDS[self.slug]

    def document(self, instance: str) -> dict[str, str | int]:
        """The members of the RFC 9457 document; `instance` names this occurrence."""
        kind = self.kind
        members: dict[str, str | int] = {
            "type": self.slug.value,
            "title": kind.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "executed": kind.executed.value,
            "retry": kind.retry.value,
        }
        if self.retry_after is not None:
            members["retry_after"] = self.retry_after
        return members

    def proxy_status(self) -> bytes:
        """The value of `Proxy-Status` (RFC 9209), so that this answer cannot be taken for the application's."""
        error = self.error or self.kind.error
        parts = ["idemproxy", *([f"error={error}"] if error else []), f'details="{self.slug}"']
        return "; ".join(parts).encode("ascii")


def problem(
    slug: Slug, detail: str, *, status: int | None = None, retry_after: int | None = None, error: str | None = None
) -> Problem:
    """A problem with the usual status of its slug unless another is given."""
    return Problem(slug, detail, KINDS[slug].status if status is None else status, retry_after, error)
