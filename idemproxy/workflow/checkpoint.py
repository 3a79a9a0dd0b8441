"""The checkpoint of a workflow, put together from its journal and from the records of its steps. Nothing is asked of anyone here.

An output is what the upstream answered, its content codings undone: JSON as it came, number for number; else text, or base64.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from idemproxy.core.coding import UndecodableError, names
from idemproxy.core.fingerprint.json_form import MOST_LEVELS, read_json
from idemproxy.core.fingerprint.parameters import essence
from idemproxy.core.journal import StepStatus, step_status, workflow_status
from idemproxy.core.message import field_values
from idemproxy.core.policy import MIB
from idemproxy.core.problem import Executed, Retry
from idemproxy.core.record import AnswerFormatError, Phase, Record, time_shown, unpack_answer
from idemproxy.core.replay import decoded_body, read_head

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from idemproxy.core.journal import Entry, Memory
    from idemproxy.core.record import Identity
    from idemproxy.workflow.answers import Shown

MAX_OUTPUTS: Final = 4 * MIB
"""So many bytes of outputs are in one checkpoint; what is beyond is there by its key."""

SETTLED: Final = frozenset({Phase.COMPLETED, Phase.EXPIRED})
ABSENT: Final = "absent"
"""The phase of a step without a record."""

_FIRST_ERROR: Final = 400
_LEFT_OUT: Final = (None, None)
_WHITE: Final = b" \t\r\n"
"""What may stand around a JSON value, and is no part of it (RFC 8259, section 2)."""
_LONG_NUMBER: Final = re.compile(rb"[0-9]{1001}")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")


@dataclass(slots=True)
class History:
    """The steps of a workflow, as they are shown one after the other; `room` is what is left for outputs, in bytes."""

    room: int = MAX_OUTPUTS
    steps: list[Shown] = field(default_factory=list)
    statuses: list[StepStatus] = field(default_factory=list)

    def extend(
        self, entries: Sequence[Entry], records: Sequence[Record | None], now: int, forgotten: Collection[Identity] = ()
    ) -> None:
        """The next steps, each with its record as it stands at `now`, in microseconds; `forgotten` were removed by a person."""
        for entry, record in zip(entries, records, strict=True):
            is_forgotten = record is None and entry.note.record in forgotten
            self._add(entry, record, StepStatus.UNKNOWN if is_forgotten else step_status(entry, record, now))

    def _add(self, entry: Entry, record: Record | None, status: StepStatus) -> None:
        note = entry.note
        self.statuses.append(status)
        output, encoding = self._output(record)
        executed, retry = _absent(status) if record is None else standing(record)
        self.steps.append(
            {
                "step": note.step,
                "action": note.action,
                "status": status.value,
                "phase": ABSENT if record is None else record.phase.value,
                "response_status": None if record is None else record.status,
                "output": output,
                "output_encoding": encoding,
                "output_kept": _keeps(record),
                "executed": executed.value,
                "retry": retry.value,
                "key": note.record.key_hash,
                "upstream": note.record.upstream,
                "route": note.route,
                "begun_at": time_shown(entry.at),
                "settled_at": None if record is None else time_shown(record.settled_at),
                "expires_at": None if record is None else time_shown(record.expires_at),
            }
        )

    def _output(self, record: Record | None) -> tuple[orjson.Fragment | None, str | None]:
        """The output as JSON, and how it is written; both None where there is none, or no room for it."""
        if record is None or not _keeps(record):
            return _LEFT_OUT
        found = output_of(record.answer or b"", self.room)
        if found is None or len(found[0]) > self.room:
            return _LEFT_OUT
        written, encoding = found
        self.room -= len(written)
        return orjson.Fragment(written), encoding


def checkpoint(workflow_id: str, history: History, memory: Memory | None) -> Shown:
    """The whole page: `current_step` is the last one begun, and None where that has no name."""
    status = workflow_status(history.statuses)
    return {
        "workflow_id": workflow_id,
        "current_step": history.steps[-1]["step"] if history.steps else None,
        "status": None if status is None else status.value,
        "agent_memory": None if memory is None else orjson.Fragment(memory.content.strip(_WHITE)),
        "agent_memory_etag": None if memory is None else etag(memory.version),
        "step_history": history.steps,
    }


def etag(version: int) -> str:
    """The strong entity tag of a memory (RFC 9110, section 8.8.3)."""
    return f'"{version}"'


def standing(record: Record) -> tuple[Executed, Retry]:
    """Whether an operation was carried out, and how its caller may try again, as a retry would be told.

    An error that the upstream answered is what every retry with the same key gets, too: to try anew takes a new key, and first a
    look at whether the error says that nothing was done.
    """
    match record:
        case Record(phase=Phase.IN_FLIGHT):
            return Executed.IN_PROGRESS, Retry.SAME_KEY
        case Record(phase=Phase.UNKNOWN):
            return Executed.UNKNOWN, Retry.AFTER_CHECK
        case Record(phase=Phase.EXPIRED):
            return Executed.YES, Retry.AFTER_CHECK
        case Record(status=int(status)) if status >= _FIRST_ERROR:
            return Executed.YES, Retry.AFTER_CHECK
        case _:
            return Executed.YES, Retry.NEVER


def _absent(status: StepStatus) -> tuple[Executed, Retry]:
    """The same of a step without a record: it was not carried out, or that is not known (any more)."""
    if status is StepStatus.FAILED:
        return Executed.NO, Retry.SAME_KEY
    return Executed.UNKNOWN, Retry.AFTER_CHECK


def _keeps(record: Record | None) -> bool:
    """Whether the answer is there to be given again."""
    return record is not None and record.phase is Phase.COMPLETED and record.answer is not None


def output_of(packed: bytes, room: int) -> tuple[bytes, str] | None:
    """The body of a stored answer as JSON text, and how it is written there: `json`, `text` or `base64`.

    None where it is longer than `room` bytes, or in a coding that is not undone here. What is written may be longer, too.
    """
    try:
        stored = unpack_answer(packed)
        _, fields = read_head(stored.head)
        codings = names(field_values(fields, b"content-encoding"))
        body = _joined(decoded_body(stored, codings), room) if codings else stored.body
    except (AnswerFormatError, UndecodableError):
        return None
    if body is None or len(body) > room:
        return None
    if _says_json(field_values(fields, b"content-type")) and is_json(body):
        return body.strip(_WHITE), "json"
    try:
        return orjson.dumps(body.decode("utf-8")), "text"
    except UnicodeDecodeError:
        return b'"%b"' % base64.b64encode(body), "base64"


def is_json(text: bytes) -> bool:
    """Whether a text is JSON that can stand within another, and that whoever reads the whole can read.

    Some readers take no value of many levels, and no number of more than a few thousand digits: that one answer is such a value
    must not cost them the checkpoint.
    """
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # also for a number beyond the range of a double, and half a surrogate pair
        try:
            read_json(text)
        except (ValueError, RecursionError):
            return False
    has_long_number = _LONG_NUMBER.search(text) and _LONG_NUMBER.search(_STRING.sub(b"", text))
    return not has_long_number and not _is_deep(text)


def _is_deep(text: bytes) -> bool:
    """Whether a JSON text has more levels than the proxy takes itself."""
    if text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return False
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > MOST_LEVELS


def _says_json(content_types: list[bytes]) -> bool:
    return any(kind == b"application/json" or kind.endswith(b"+json") for kind in map(essence, content_types))


def _joined(pieces: Iterator[bytes], room: int) -> bytes | None:
    """All of it, None as soon as it is longer than `room`."""
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > room:
            return None
        found.append(piece)
    return b"".join(found)
