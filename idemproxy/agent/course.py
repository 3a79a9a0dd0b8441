"""The course of one run of a workflow: the numbers and names that were given, and when no further number may be.

Numbers mean the same on every run only while the calls come in one order, each when the one before it is over. So no further one
is given where that is known to fail: while it is unknown whether a numbered step happened, since what comes next may be the same
operation in other words; and once a numbered call was refused as `key-reused`, since all that follow it would have the numbers of
other calls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import Lock

from idemproxy.agent.names import checked_step
from idemproxy.agent.problems import OutcomeUnknownError, WorkflowDivergedError

_NONE_SENT = 0
"""The status of what is raised before anything is sent."""


@dataclass(frozen=True, slots=True)
class Content:
    """What makes two calls the same: the body is what `comparable` made of it. A stream cannot be compared."""

    method: str
    url: str
    body: bytes


def comparable(content_type: str, body: bytes) -> bytes:
    """JSON in one spelling, since who makes it anew may put its names in another order; any other body as it is."""
    essence = content_type.partition(";")[0].strip().lower()
    if essence != "application/json" and not essence.endswith("+json"):
        return body
    try:
        return json.dumps(json.loads(body, object_pairs_hook=_members), sort_keys=True, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return body


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name comes twice")
    return members


class Course:
    """What has become of the steps since the workflow began, or was resumed. Safe for several threads."""

    def __init__(self, workflow_id: str, position: int = 0) -> None:
        self.position = position
        self._workflow_id = workflow_id
        self._given: set[str] = set()
        self._numbers: set[str] = set()
        self._over: set[str] = set()
        self._open: dict[Content, list[str]] = {}  # of calls that ran side by side there may be several
        self._redirected: dict[str, Content] = {}
        self._under_way: dict[str, int] = {}
        self._doubts: dict[str, str] = {}
        self._diverged_at: str | None = None
        self._lock = Lock()

    def number(self) -> str:
        """The next number. Raises WorkflowDivergedError, OutcomeUnknownError and ValueError, and then gives none."""
        with self._lock:
            self._admit(None)
            return self._next()

    def name(self, name: str) -> str:
        """This name, or the first of `name.2`, `name.3`, ... that was not given. Raises ValueError, and then gives none."""
        with self._lock:
            step, count = name, 1
            while step in self._given:
                count += 1
                step = f"{name}.{count}"
            self._given.add(checked_step(self._workflow_id, step))
            return step

    def begin(self, content: Content | None) -> str:
        """The number of a call that is about to leave: the same call's if that is left open, or the next. Raises as `number`."""
        with self._lock:
            left = [] if content is None else self._open.get(content, [])
            again = next((step for step in left if step in self._doubts), left[0] if left else None)
            self._admit(again)
            if again is not None:
                left.remove(again)
            step = self._next() if again is None else again
            self._count(step, 1)
            return step

    def begin_given(self, step: str) -> None:
        """A call with a step of its own is about to leave. Raises as `number` where `number` gave it."""
        with self._lock:
            if step in self._numbers:
                self._admit(step)
            self._count(step, 1)

    def end(self, step: str) -> None:
        """A call that had begun has ended, after all else is told of it."""
        with self._lock:
            self._count(step, -1)

    def leave_open(self, content: Content, step: str) -> None:
        """The same call again is this step."""
        with self._lock:
            self._leave_open(content, step)
            if step in self._redirected:
                self._leave_open(self._redirected[step], step)

    def redirect(self, content: Content, there: Content, step: str) -> None:
        """The call is made on as another one, which is the same step; where that is left open, so is the first."""
        with self._lock:
            self._redirected.setdefault(step, content)
            self._leave_open(there, step)

    def close(self, step: str) -> None:
        """The step is over, whichever call it was that ended it."""
        with self._lock:
            without = {content: [each for each in left if each != step] for content, left in self._open.items()}
            self._open = {content: left for content, left in without.items() if left}
            self._redirected.pop(step, None)
            self._over.add(step)
            self._doubts.pop(step, None)

    def doubt(self, step: str, known: str) -> None:
        """Nobody knows whether the step happened; `known` is the call, and how it ended."""
        with self._lock:
            if step in self._numbers and step not in self._over:
                self._doubts[step] = known

    def trust(self, step: str) -> None:
        """It is known that the step has not happened, or whoever decides has found out whether it has."""
        with self._lock:
            self._doubts.pop(step, None)

    def diverge(self, step: str) -> None:
        """The step was another request before."""
        with self._lock:
            if step in self._numbers and self._diverged_at is None:
                self._diverged_at = step

    def _leave_open(self, content: Content, step: str) -> None:
        left = self._open.setdefault(content, [])
        if step not in left:
            left.append(step)

    def _next(self) -> str:
        number = self.position + 1
        while str(number) in self._given:
            number += 1
        step = checked_step(self._workflow_id, str(number))
        self.position = number
        self._given.add(step)
        self._numbers.add(step)
        return step

    def _count(self, step: str, by: int) -> None:
        self._under_way[step] = self._under_way.get(step, 0) + by
        if not self._under_way[step]:
            del self._under_way[step]

    def _admit(self, step: str | None) -> None:
        """Raise where a call may not leave; its step is None where it would get a new number."""
        if step in self._under_way:  # it is redirected, or sent twice: the step has left already
            return
        if self._diverged_at is not None:
            raise self._diverged(self._diverged_at)
        if step not in self._doubts:
            for doubted, known in self._doubts.items():
                raise self._unknown(doubted, known)

    def _diverged(self, step: str) -> WorkflowDivergedError:
        detail = (
            f"Nothing was sent. Step {step} of workflow {self._workflow_id} was another request when it was first made, so that "
            "this run does not repeat that one, and further numbers would be those of other calls. Find out from the checkpoint "
            "what was done; resume() then goes on behind it. Calls that are named by named_step() still go."
        )
        error = WorkflowDivergedError("workflow-diverged", _NONE_SENT, detail, "no", "after_check")
        error.step = step
        return error

    def _unknown(self, step: str, known: str) -> OutcomeUnknownError:
        detail = (
            f"This call was not sent, since step {step} of workflow {self._workflow_id} may have happened ({known}). Make that "
            f"call again, unchanged: the proxy tells what became of it. go_on({step!r}) lets other calls go before that is known."
        )
        error = OutcomeUnknownError("outcome-unknown", _NONE_SENT, detail, "unknown", "after_check")
        error.step = step
        return error
