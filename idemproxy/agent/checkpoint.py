"""A checkpoint: how far a workflow has come, as the proxy tells it."""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is not needed when an agent starts
    from typing import Any

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_PRESSING = frozenset({"UNKNOWN", "IN_PROGRESS"})


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `status` is IN_PROGRESS, COMPLETED, UNKNOWN or FAILED; `executed` and `retry` are as in a problem.

    `output` is what the API answered: a JSON value, a text, or bytes; None where nothing is kept, or (`output_kept`) where it is
    too long to be shown here. `step` and `action` are None where the call had none. Times are RFC 3339 texts in UTC.
    """

    step: str | None
    action: str | None
    status: str
    phase: str
    response_status: int | None
    output: Any
    output_encoding: str | None
    output_kept: bool
    executed: str
    retry: str
    key: str
    upstream: str
    route: str
    begun_at: str
    settled_at: str | None
    expires_at: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A workflow: its steps in the order in which they were first begun, and what its agent has saved.

    `current_step` is the last one that was begun. `status` is UNKNOWN or IN_PROGRESS where any step is, else that of the last
    one; None before the first.
    """

    workflow_id: str
    current_step: str | None
    status: str | None
    steps: tuple[Step, ...]
    memory: Any
    etag: str | None

    def completed(self, step: str) -> Step | None:
        """The step of this name, if it is completed."""
        of_this_name = [each for each in self.steps if each.step == step]
        return of_this_name[-1] if of_this_name and all(each.status == "COMPLETED" for each in of_this_name) else None

    @property
    def completed_run(self) -> int:
        """The last number that is COMPLETED, with none before it that is UNKNOWN or IN_PROGRESS; 0 without one.

        A step before it that FAILED, whether its record is there or not, the agent has gone past; one behind it is the next.
        """
        statuses: dict[int, set[str]] = {}
        for each in self.steps:
            if each.step is not None and _NUMBER.fullmatch(each.step):
                statuses.setdefault(int(each.step), set()).add(each.status)
        pressing = min((number for number, told in statuses.items() if told & _PRESSING), default=None)
        completed = (number for number, told in statuses.items() if told == {"COMPLETED"})
        return max((number for number in completed if pressing is None or number < pressing), default=0)


def read_checkpoint(document: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of a page of the proxy. Raises KeyError where a member is missing."""
    return Checkpoint(
        workflow_id=document["workflow_id"],
        current_step=document["current_step"],
        status=document["status"],
        steps=tuple(_read_step(each) for each in document["step_history"]),
        memory=document["agent_memory"],
        etag=document["agent_memory_etag"],
    )


def _read_step(document: Mapping[str, Any]) -> Step:
    members = {name: document[name] for name in Step.__slots__}
    if members["output_encoding"] == "base64":
        members["output"] = binascii.a2b_base64(members["output"])
    return Step(**members)
