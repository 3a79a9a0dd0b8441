"""A workflow: the header fields of its steps, its checkpoint, and the memory that its agent saves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import quote

from idemproxy.agent.calls import Calls
from idemproxy.agent.checkpoint import Checkpoint, read_checkpoint
from idemproxy.agent.course import Course
from idemproxy.agent.names import checked_action, checked_id, spelled
from idemproxy.agent.pages import Pages, checked_proxy
from idemproxy.agent.problems import ProxyUnreachableError, WorkflowUnknownError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Workflow:
    """One workflow of an agent. Safe for several threads.

    Numbers and names are given in the order in which they are asked for, so they are the same on every run only if the agent
    calls in one order: for calls that run side by side, give each a name of its own.

    `headers` are fields of every request, such as those that make the proxy's scope. `timeout` is in seconds, and for the
    checkpoint and the memory only.
    """

    def __init__(
        self,
        workflow_id: str,
        *,
        proxy: str = "http://127.0.0.1:8080",
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.id = checked_id(workflow_id)
        self.proxy = checked_proxy(proxy)
        self.headers: Mapping[str, str] = MappingProxyType(dict(headers or {}))
        self.spelled_id = spelled(workflow_id)
        self.calls = Calls(self)
        """What the integrations with HTTP clients ask."""
        self.course = Course(self.id)
        """What has become of its steps, as far as this object has seen."""
        self._pages = Pages(self.proxy, self.headers, timeout)
        self._path = f"/_idemproxy/workflows/{quote(self.spelled_id, safe='')}"
        self._etag: str | None = None

    def __repr__(self) -> str:
        """Which workflow, and where."""
        return f"{type(self).__name__}({self.id!r}, proxy={self.proxy!r})"

    @property
    def position(self) -> int:
        """The number that was given last; 0 before the first. After `resume`, that of the last step which need not be made."""
        return self.course.position

    def next_step(self, action: str | None = None) -> dict[str, str]:
        """The header fields of the next write: 1, 2, 3, ... in call order.

        They belong to one operation: take them once, outside of a loop that retries. Raises ValueError, and, of calls that were
        made with a client of this workflow: WorkflowDivergedError after one with a number was refused as `key-reused`, until
        `resume`; OutcomeUnknownError while it is unknown whether one with a number happened, until that is known, or `go_on`.
        """
        named = _named(action)
        return self._fields(self.course.number(), named)

    def named_step(self, name: str, action: str | None = None) -> dict[str, str]:
        """The header fields of the write of this name; of the second one under that name, `name.2`, and so on.

        They belong to one operation: take them once, outside of a loop that retries. Raises ValueError.
        """
        named = _named(action)
        return self._fields(self.course.name(name), named)

    def go_on(self, step: str) -> None:
        """Let further numbers be given although it is unknown whether this step happened: for who has found out, or need not.

        The same call again is still this step. Nothing changes where its outcome is not unknown.
        """
        self.course.trust(step)

    def checkpoint(self) -> Checkpoint | None:
        """How far it has come; None where the proxy knows no such workflow yet.

        Raises IdemproxyError and ProxyUnreachableError.
        """
        try:
            found = read_checkpoint(self._pages.ask("GET", self._path).value)
        except WorkflowUnknownError:
            return None
        except (LookupError, TypeError, ValueError) as exc:
            raise ProxyUnreachableError(f"{self.proxy} is not an idemproxy of this version: it gives another checkpoint") from exc
        self._etag = found.etag
        return found

    def resume(self) -> Checkpoint | None:
        """The checkpoint; numbers then go on behind its `completed_run`.

        The next one may have failed, or its outcome may be unknown: it has the same key as before, so that the proxy decides.
        Whatever was unknown, or refused as `key-reused`, is left behind.
        Names begin anew: a step that is called again by its name is replayed. Without `resume` the numbers begin with 1, and the
        agent that runs from the start gets every finished step replayed.
        """
        found = self.checkpoint()
        self.course = Course(self.id, found.completed_run if found else 0)  # what is still under way belongs to the old one
        return found

    def load_memory(self) -> tuple[Any, str] | None:
        """What was saved, and its etag; None where nothing was. Raises IdemproxyError and ProxyUnreachableError."""
        try:
            page = self._pages.ask("GET", f"{self._path}/memory")
        except WorkflowUnknownError:
            return None
        self._etag = page.etag
        return page.value, page.etag or ""

    def save_memory(self, value: Any, *, etag: str | None = None) -> str:  # noqa: ANN401  # any JSON
        """Save anything that JSON can hold; the etag of what is now saved.

        It takes the place of what this object last loaded, saved or saw in a checkpoint (of nothing, where it saw nothing), or of
        what has the given `etag`; `*` is for whatever is there. Else raises MemoryChangedError: load it, and decide anew.
        Raises IdemproxyError and ProxyUnreachableError too; a save that may have been done is asked for again by itself.
        """
        expected = self._etag if etag is None else etag
        match expected:
            case None:
                condition = {"If-None-Match": "*"}
            case "*":
                condition = {}
            case _:
                condition = {"If-Match": expected}
        content = json.dumps(value, allow_nan=False).encode()
        page = self._pages.ask("PUT", f"{self._path}/memory", content, {"Content-Type": "application/json", **condition})
        self._etag = page.etag
        return page.etag or ""

    def _fields(self, step: str, action: dict[str, str]) -> dict[str, str]:
        return {"Workflow-Id": self.spelled_id, "Workflow-Step": spelled(step), **action}


def _named(action: str | None) -> dict[str, str]:
    return {} if action is None else {"Workflow-Action": checked_action(action)}
