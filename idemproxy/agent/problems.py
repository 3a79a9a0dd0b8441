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
    from typing import Any, Protocol, overload

    class Fields(Protocol):
        """Header fields as any client has them; a name may come several times."""

        def items(self) -> Iterable[tuple[str, str]]:
            """Names and values."""

    class Response(Protocol):
        """An answer as httpx, requests or aiohttp have it; of aiohttp one that has been read."""

        @property
        def headers(self) -> Fields:
            """Its fields."""


_OURS = re.compile(r"(?:^|,)\s*idemproxy\s*(?:[;,]|$)")


class ProxyUnreachableError(ConnectionError):
    """At the address of the proxy nobody answers, or somebody who is not idemproxy."""


class UnprotectedCallWarning(UserWarning):
    """A write that a workflow's client has sent is not protected by the proxy."""


class IdemproxyError(Exception):
    """A problem that the proxy told, or that a workflow foresees.

    `executed` says whether the operation took effect: yes, no, unknown, in_progress. `retry` says how to try again: same_key,
    new_key, after_check, never; `retry_after` after how many seconds, where that is known. `status` is that of the answer, 0
    where there is none since nothing was sent.
    """

    step: str | None = None
    """The step that it is about, where the client of a workflow raises it."""

    response: Any = None
    """The answer, as its library has it, where there is one; it is not pickled with the exception."""

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
        status = f" ({self.status})" if self.status else ""
        return f"{self.slug}{status}: {self.detail} [executed: {self.executed}, retry: {self.retry}{after}]"

    def __reduce__(self) -> tuple[object, ...]:
        """What it is pickled as."""
        return type(self), self.args, {name: value for name, value in vars(self).items() if name != "response"}


class KeyMissingError(IdemproxyError):
    """The route needs a key, and the call had none."""


class KeyInvalidError(IdemproxyError):
    """The call names its operation in a way that the proxy cannot read."""


class BadRequestError(IdemproxyError):
    """The request is not valid."""


class KeyReusedError(IdemproxyError):
    """The step was first used for another request: the calls came in another order, or with other contents."""


class WorkflowDivergedError(IdemproxyError):
    """A numbered call was refused as `key-reused`, so that the numbers behind it no longer fit: nothing was sent."""


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


def is_ours(headers: Fields) -> bool:
    """Whether idemproxy itself gave an answer with these fields, and not somebody behind it or in its place."""
    return any(name.lower() == "proxy-status" and _OURS.search(value) for name, value in headers.items())


def is_problem(headers: Fields) -> bool:
    """Whether an answer with these fields is a problem document of the proxy's own; its body is worth reading then."""
    essences = [value.partition(";")[0].strip().lower() for name, value in headers.items() if name.lower() == "content-type"]
    return is_ours(headers) and essences == ["application/problem+json"]


def told_by(headers: Fields) -> str | None:
    """What `Idempotency-Status` says in these fields, without its parameters."""
    values = [value for name, value in headers.items() if name.lower() == "idempotency-status"]
    return values[0].partition(";")[0].strip() if values else None


def outcome(response: Response) -> str | None:
    """What became of the operation: executed, replayed, recovered, unknown, in-progress, refused, bypassed.

    None where the proxy did not cover it. The response is one of httpx, requests or aiohttp.
    """
    return told_by(response.headers)


if TYPE_CHECKING:

    @overload
    def raise_for_problem(response: Response, /) -> None: ...
    @overload
    def raise_for_problem(status: int, headers: Fields, body: bytes | str, /) -> None: ...


def raise_for_problem(response: Any, headers: Any = None, body: bytes | str = b"", /) -> None:
    """Raise the exception of the proxy's problem document that this answer is; return where it is anything else.

    The answer is a response of httpx, requests or aiohttp, or its status, fields and body. Raises ValueError where the response
    is one of aiohttp whose body has not been read.
    """
    if isinstance(response, int):
        error = problem_of(response, headers, body)
    elif is_problem(response.headers):
        status, content = _parts(response)
        error = problem_of(status, response.headers, content)
    else:
        error = None
    if error is not None:
        error.response = None if isinstance(response, int) else response
        raise error


def problem_of(status: int, headers: Fields, body: bytes | str) -> IdemproxyError | None:
    """The exception of the proxy's problem document that this answer is; None where it is anything else."""
    if not is_problem(headers):
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match document:
        case {"type": str(slug), "detail": str(detail), "executed": str(executed), "retry": str(retry)}:
            after = document.get("retry_after")
            after = after if isinstance(after, int) else None
            return ERRORS.get(slug, IdemproxyError)(slug, status, detail, executed, retry, after)
    return None


def _parts(response: Any) -> tuple[int, bytes]:  # noqa: ANN401  # of a library that is not imported here
    """The status and the body of a response of any of the libraries."""
    if hasattr(response, "status_code"):
        return response.status_code, response.content
    body = response._body  # noqa: SLF001  # what aiohttp's read() keeps; of its own names only coroutines lead there
    if body is None:
        raise ValueError("await response.read() before raise_for_problem(response)")
    return response.status, body
