"""The calls of a workflow as an HTTP client makes them: which of them are steps, and which are the same step again.

A write that names no operation itself takes the next number. It keeps that number until the proxy has told that the step is over
(`Idempotency-Status: executed`, `replayed`, `recovered`): where a call ends with an exception, or is refused by either side, the
same call again is the same step. So a retry, by whatever layer, is no second operation, and the numbers do not depend on how
often something failed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from urllib.parse import urljoin

from idemproxy.agent.course import Content, comparable
from idemproxy.agent.names import checked_action
from idemproxy.agent.pages import origin_of
from idemproxy.agent.problems import (
    IdemproxyError,
    KeyReusedError,
    NotSentError,
    OutcomeUnknownError,
    UnprotectedCallWarning,
    is_problem,
    problem_of,
    told_by,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Protocol

    from idemproxy.agent.course import Course
    from idemproxy.agent.problems import Fields
    from idemproxy.agent.workflow import Workflow

    class Exchanged(Protocol):
        """A response of httpx or of requests."""

        @property
        def request(self) -> Any:  # noqa: ANN401  # each library has its own
            """What it answers."""

        @property
        def status_code(self) -> int:
            """Its status."""

        @property
        def headers(self) -> Fields:
            """Its fields."""


TIMEOUT = 130.0
"""Seconds. The proxy takes at most 120 by default: who waits for less would only have to ask again for the same answer."""

_READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OVER = frozenset({"executed", "replayed", "recovered", "bypassed"})
_KEEPS_METHOD = frozenset({307, 308})
_FIRST_FAILURE = 500


def raises(headers: Fields) -> bool:
    """Whether an answer with these fields is raised as an exception, so that its body is to be read before `answered`."""
    return is_problem(headers) or told_by(headers) == "unknown"


def redirect_to_read(followed: Iterable[Exchanged], last: Exchanged) -> tuple[int, Fields] | None:
    """Status and fields of the redirect that made a read of a write, of those that a client has followed to its last response."""
    if last.request.method.upper() not in _READS:
        return None
    writes = [each for each in followed if each.request.method.upper() not in _READS]
    return (writes[-1].status_code, writes[-1].headers) if writes else None


@dataclass(slots=True)
class Call:
    """A call to the proxy that has begun: the fields to add to it, and how it ended, which an integration tells, once."""

    headers: Mapping[str, str]
    _calls: Calls
    _course: Course
    _title: str
    _step: str | None = None
    _content: Content | None = None

    def answered(
        self,
        status: int,
        headers: Fields,
        content: bytes | None,
        response: Any,  # noqa: ANN401  # of any library
        redirect: tuple[int, Fields] | None = None,
    ) -> None:
        """An answer has come; `content` is its body, where `raises` says so of its fields. Raises IdemproxyError then.

        `redirect`: as `redirect_to_read` gives it. That is what ended the step: of the read behind it the proxy tells nothing.
        """
        error = problem_of(status, headers, content or b"") or _unsure(status, headers)
        ended, why = (status, headers), error
        if redirect is not None:
            ended, why = redirect, _unsure(*redirect)
            error = why or error
        told = told_by(ended[1])
        if self._step is not None:
            self._settle(self._step, *ended, told, why)
            self._course.end(self._step)
        if error is not None:
            error.step, error.response = self._step, response
            error.add_note(self._noted)
            raise error
        if told == "bypassed":
            self._calls.warn("bypassed", f"{self._title} passed without a key: its route makes none of what the call carries")

    def lost(self, failure: BaseException) -> None:
        """No answer has come, or none that is whole."""
        if self._step is None:
            return
        if self._content is not None:
            self._course.leave_open(self._content, self._step)
        if not isinstance(failure, IdemproxyError):  # the last one of a chain of redirects has told what it knows
            self._course.doubt(self._step, f"{self._title}: no answer came")
        self._course.end(self._step)

    def _settle(self, step: str, status: int, headers: Fields, told: str | None, error: IdemproxyError | None) -> None:
        course, content = self._course, self._content
        if error is None and content is not None and status in _KEEPS_METHOD:
            location = next((value for name, value in headers.items() if name.lower() == "location"), "")
            there = urljoin(content.url, location)  # a client that follows goes on with the same step
            course.redirect(content, Content(content.method, there, content.body), step)
            course.trust(step)
            return
        if error is None and told in _OVER:
            course.close(step)
            return
        if content is not None:
            course.leave_open(content, step)
        match error:
            case KeyReusedError():
                course.diverge(step)
            case IdemproxyError(executed="unknown" | "in_progress"):
                course.doubt(step, f"{self._title}: {error.slug}, status {status}")
            case NotSentError():
                course.trust(step)
            case None if told is None and status >= _FIRST_FAILURE:
                course.doubt(step, f"{self._title}: {status} from somebody who is not idemproxy")
            case None:  # the upstream refused it, or it passed through: the answer tells what happened
                course.trust(step)

    @property
    def _noted(self) -> str:
        return self._title if self._step is None else f"step {self._step} of workflow {self._calls.workflow_id}: {self._title}"


def _unsure(status: int, headers: Fields) -> OutcomeUnknownError | None:
    """What is to be raised for an answer of the API after which nobody knows whether the operation happened."""
    if told_by(headers) != "unknown":
        return None
    detail = f"The API answered {status}, and nobody knows whether the operation happened: find out before you go on."
    return OutcomeUnknownError("outcome-unknown", status, detail, "unknown", "after_check")


@dataclass(slots=True)
class Calls:
    """The calls of one workflow. Safe for several threads."""

    _workflow: Workflow
    _warned: set[str] = field(default_factory=set)

    def begin(self, method: str, url: str, headers: Fields, body: bytes | None, *, numbered: bool) -> Call | None:
        """A call that is about to leave with these fields; None where it is not for the proxy, and left as it is.

        `body` is None where it cannot be compared. Raises WorkflowDivergedError and OutcomeUnknownError where it takes a number
        and may not leave, ValueError where its action is none.
        """
        workflow, method = self._workflow, method.upper()
        if not self.is_ours(url):
            self.warn_of_others(method, url)
            return None
        course, title = workflow.course, f"{method} {url}"
        carried = {name.lower(): value for name, value in headers.items()}
        added = {name: value for name, value in workflow.headers.items() if name.lower() not in carried}
        if method in _READS or carried.get("workflow-id", workflow.spelled_id) != workflow.spelled_id:
            return Call(added, self, course, title)
        if "workflow-action" in carried:
            checked_action(carried["workflow-action"])
        fields = {"Workflow-Id": workflow.spelled_id, **added}
        if "workflow-step" in carried:
            step = carried["workflow-step"]
            course.begin_given(step)
            return Call(fields, self, course, title, step)
        if not numbered or "workflow-id" in carried or "idempotency-key" in carried:
            return Call(fields, self, course, title)
        content = None if body is None else Content(method, url, comparable(carried.get("content-type", ""), body))
        step = course.begin(content)
        return Call({**fields, "Workflow-Step": step}, self, course, title, step, content)

    @property
    def names(self) -> list[str]:
        """The fields that are for the proxy, and for nobody to whom it may redirect."""
        return ["Workflow-Id", "Workflow-Step", "Workflow-Action", *self._workflow.headers]

    @property
    def workflow_id(self) -> str:
        """Whose calls these are."""
        return self._workflow.id

    def is_ours(self, url: str) -> bool:
        """Whether a URL leads to the proxy."""
        return origin_of(url) == origin_of(self._workflow.proxy)

    def base_url(self, given: object | None) -> str:
        """Where relative URLs lead: the proxy, or what is given of it. Raises ValueError where that is somebody else's."""
        url = self._workflow.proxy if given is None else str(given)
        if not self.is_ours(url):
            raise ValueError(f"base_url is at the proxy, {self._workflow.proxy}, or calls are not protected: {url!r}")
        return url

    def warn_of_others(self, method: str, url: str) -> None:
        """Warn, once for each origin, of a write that goes past the proxy."""
        origin = origin_of(url)
        if method in _READS or origin is None:
            return
        where = f"{origin.scheme}://{origin.host}:{origin.port}"
        self.warn(where, f"{method} to {where} does not go through the proxy, {self._workflow.proxy}: a retry acts again")

    def warn(self, about: str, message: str) -> None:
        """Warn once about the same."""
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(message, UnprotectedCallWarning, stacklevel=2)
