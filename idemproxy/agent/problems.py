"""The proxy's problem documents as exceptions, one class for each slug, that say `executed` and `retry`.

A document is the proxy's own where `Proxy-Status` (RFC 9209) names idemproxy and the content is `application/problem+json`
(RFC 9457): an error of the API behind it is never taken for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is not needed when an agent starts
    from typing import Protocol

    class Fields(Protocol):
        """Header fields as any client has them; a name may come several times."""

        def items(self) -> Iterable[tuple[str, str]]:
            """Names and values."""


_OURS = re.compile(r"(?:^|,)\s*idemproxy\s*(?:[;,]|$)")


class ProxyUnreachableError(ConnectionError):
    """At the address of the proxy nobody answers, or somebody who is not idemproxy."""


class IdemproxyError(Exception):
    """A problem that the proxy told.

    `executed` says whether the operation took effect: yes, no, unknown, in_progress. `retry` says how to try again: same_key,
    new_key, after_check, never; `retry_after` after how many seconds, where that is known.
    """

    def __init__(  # all of it is `args`, from which an exception is unpickled
        self, slug: str, status: int, detail: str, executed: str, retry: str, retry_after: int | None = None
    ) -> None:
        super().__init__(slug, status, detail, executed, retry, retry_after)
        self.slug = slug
        self.status = status
        self.detail = detail
        self.executed = executed
        self.retry = retry
        self.retry_after = retry_after

    def __str__(self) -> str:
        """All that a person, or a model, needs to go on."""
        after = "" if self.retry_after is None else f", retry_after: {self.retry_after}"
        return f"{self.slug} ({self.status}): {self.detail} [executed: {self.executed}, retry: {self.retry}{after}]"


class KeyMissingError(IdemproxyError):
    """The route needs a key, and the call had none."""


class KeyInvalidError(IdemproxyError):
    """The call names its operation in a way that the proxy cannot read."""


class BadRequestError(IdemproxyError):
    """The request is not valid."""


class KeyReusedError(IdemproxyError):
    """The step was first used for another request: the calls came in another order, or with other contents."""


class InProgressError(IdemproxyError):
    """The first request of the step is still under way."""


class OutcomeUnknownError(IdemproxyError):
    """The request was sent, and nobody knows whether it happened."""


class ResponseUnavailableError(IdemproxyError):
    """It happened, and the answer was not kept."""


class KeyExpiredError(IdemproxyError):
    """It happened, and the answer is no longer kept."""


class NotSentError(IdemproxyError):
    """No byte of the request left the proxy."""


class RecordsLostError(IdemproxyError):
    """The store has lost records: nothing was sent now, and nobody knows whether the operation happened before."""


class StoreUnavailableError(IdemproxyError):
    """The proxy cannot reach its records, so nothing was sent."""


class BodyTooLargeError(IdemproxyError):
    """The body of the call, or the agent's memory, is larger than the proxy takes."""


class NoRouteError(IdemproxyError):
    """The proxy has no route, or no page, at this path."""


class DrainingError(IdemproxyError):
    """The proxy is stopping, so nothing was sent."""


class WorkflowUnknownError(IdemproxyError):
    """There is no such workflow yet, or it is another scope's."""


class KeyUnknownError(IdemproxyError):
    """There is no record of the key that was asked for."""


class MemoryChangedError(IdemproxyError):
    """Somebody else has saved the workflow's memory since it was loaded: nothing was saved."""


class MethodNotAllowedError(IdemproxyError):
    """The page of the proxy has other methods."""


ERRORS: Mapping[str, type[IdemproxyError]] = MappingProxyType(
    {
        "key-missing": KeyMissingError,
        "key-invalid": KeyInvalidError,
        "bad-request": BadRequestError,
        "key-reused": KeyReusedError,
        "in-progress": InProgressError,
        "outcome-unknown": OutcomeUnknownError,
        "response-unavailable": ResponseUnavailableError,
        "key-expired": KeyExpiredError,
        "not-sent": NotSentError,
        "store-unavailable": StoreUnavailableError,
        "records-lost": RecordsLostError,
        "body-too-large": BodyTooLargeError,
        "no-route": NoRouteError,
        "draining": DrainingError,
        "workflow-unknown": WorkflowUnknownError,
        "key-unknown": KeyUnknownError,
        "memory-changed": MemoryChangedError,
        "method-not-allowed": MethodNotAllowedError,
    }
)
"""The exception of each slug; one of a later proxy is an IdemproxyError."""


def is_problem(headers: Fields) -> bool:
    """Whether an answer with these fields is a problem document of the proxy's own; its body is worth reading then."""
    fields = [(name.lower(), value) for name, value in headers.items()]
    essences = [value.partition(";")[0].strip().lower() for name, value in fields if name == "content-type"]
    told = any(name == "proxy-status" and _OURS.search(value) for name, value in fields)
    return told and essences == ["application/problem+json"]


def raise_for_problem(status: int, headers: Fields, body: bytes | str) -> None:
    """Raise the exception of the proxy's problem document that this answer is; return where it is anything else."""
    if not is_problem(headers):
        return
    try:
        document = json.loads(body)
    except ValueError:
        return
    match document:
        case {"type": str(slug), "detail": str(detail), "executed": str(executed), "retry": str(retry)}:
            after = document.get("retry_after")
            raise ERRORS.get(slug, IdemproxyError)(
                slug, status, detail, executed, retry, after if isinstance(after, int) else None
            )
