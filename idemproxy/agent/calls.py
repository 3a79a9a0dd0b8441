"""The calls of a workflow as an HTTP client makes them: which of them are steps, and which are the same step again.

A write that names no operation itself takes the next number. It keeps that number until the proxy has told that the step is over
(`Idempotency-Status: executed`, `replayed`, `recovered`): where a call ends with an exception, or is refused by either side, the
same call again is the same step. So a retry, by whatever layer, is no second operation, and the numbers do not depend on how
often something failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from urllib.parse import urljoin

from idemproxy.agent.pages import origin_of
from idemproxy.agent.problems import IdemproxyError, raise_for_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from idemproxy.agent.problems import Fields
    from idemproxy.agent.workflow import Workflow

_READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OVER = frozenset({"executed", "replayed", "recovered", "bypassed"})
_KEEPS_METHOD = frozenset({307, 308})


@dataclass(frozen=True, slots=True)
class Content:
    """What makes two calls the same; a body that cannot be compared, such as a stream, makes none."""

    method: str
    url: str
    body: bytes


@dataclass(slots=True)
class Call:
    """A call to the proxy that has begun: the fields to add to it, and how it ended, which an integration tells."""

    headers: Mapping[str, str]
    _calls: Calls
    _title: str
    _step: str | None = None
    _content: Content | None = None

    def answered(self, status: int, headers: Fields, problem: bytes | None) -> None:
        """An answer has come; `problem` is its body, where `is_problem` says so of its fields. Raises IdemproxyError then."""
        fields = {name.lower(): value for name, value in headers.items()}
        outcome = fields.get("idempotency-status", "").partition(";")[0].strip()
        if self._step is not None and self._content is not None and status in _KEEPS_METHOD:
            there = urljoin(self._content.url, fields.get("location", ""))  # a client that follows goes on with the same step
            self._calls.leave_open(Content(self._content.method, there, self._content.body), self._step)
        elif self._step is not None and outcome in _OVER:
            self._calls.close(self._step)
        else:
            self.lost()
        try:
            raise_for_problem(status, headers, problem or b"")
        except IdemproxyError as error:
            error.add_note(self._title)
            raise

    def lost(self) -> None:
        """No answer has come, or none that ends the step."""
        if self._step is not None and self._content is not None:
            self._calls.leave_open(self._content, self._step)


@dataclass(slots=True)
class Calls:
    """The calls of one workflow. Safe for several threads."""

    _workflow: Workflow
    _open: dict[Content, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, method: str, url: str, headers: Fields, body: bytes | None) -> Call | None:
        """A call that is about to leave with these fields; None where it is not for the proxy, and left as it is.

        `body` is None where it cannot be compared.
        """
        workflow, method = self._workflow, method.upper()
        if not self.is_ours(url):
            return None
        carried = {name.lower(): value for name, value in headers.items()}
        added = {name: value for name, value in workflow.headers.items() if name.lower() not in carried}
        if method in _READS or carried.get("workflow-id", workflow.spelled_id) != workflow.spelled_id:
            return Call(added, self, f"{method} {url}")
        if "workflow-step" in carried:
            step = carried["workflow-step"]
            return Call({"Workflow-Id": workflow.spelled_id, **added}, self, self._titled(step, method, url), step)
        if "workflow-id" in carried:
            return Call(added, self, f"{method} {url}")
        if "idempotency-key" in carried:
            return Call({"Workflow-Id": workflow.spelled_id, **added}, self, f"{method} {url}")
        content = None if body is None else Content(method, url, body)
        with self._lock:
            again = self._open.pop(content, None) if content is not None else None
            fields = workflow.next_step() if again is None else {"Workflow-Id": workflow.spelled_id, "Workflow-Step": again}
        step = fields["Workflow-Step"]
        return Call({**fields, **added}, self, self._titled(step, method, url), step, content)

    @property
    def names(self) -> list[str]:
        """The fields that are for the proxy, and for nobody to whom it may redirect."""
        return ["Workflow-Id", "Workflow-Step", "Workflow-Action", *self._workflow.headers]

    def is_ours(self, url: str) -> bool:
        """Whether a URL leads to the proxy."""
        return origin_of(url) == origin_of(self._workflow.proxy)

    def leave_open(self, content: Content, step: str) -> None:
        """The same call again is this step."""
        with self._lock:
            self._open[content] = step

    def close(self, step: str) -> None:
        """The step is over, whichever call it was that ended it."""
        with self._lock:
            self._open = {content: left for content, left in self._open.items() if left != step}

    def forget(self) -> None:
        """None of the calls so far is expected again."""
        with self._lock:
            self._open.clear()

    def _titled(self, step: str, method: str, url: str) -> str:
        return f"step {step} of workflow {self._workflow.id}: {method} {url}"
