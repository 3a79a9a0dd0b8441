"""What names an operation: its key, sent, made of a workflow's step, or derived from what the workflow asks.

Agents tell where they are in `Workflow-Id`, `Workflow-Step` and `Workflow-Action`, or in members of the same names in `baggage`
(W3C Baggage), which tracing libraries carry by themselves; what a field says counts before what baggage says. An explicit key
comes first, and then the workflow only fills the journal. Without one, id and step make the key: `{workflow_id}_step_{step}`,
the scheme that agents use.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from idemproxy.core.key import MAX_KEY_LENGTH, KeyInvalidError, KeyMode, KeyRule, KeySource, explicit_key, parse_key, sole
from idemproxy.core.message import Fields, field_values, has_any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


ID: Final = b"workflow-id"
STEP: Final = b"workflow-step"
ACTION: Final = b"workflow-action"
BAGGAGE: Final = b"baggage"

NAMES: Final = frozenset({ID, STEP, ACTION})
CARRIERS: Final = NAMES | {BAGGAGE}
"""The fields in which a workflow may be told."""
_SHOWN: Final = {ID: "Workflow-Id", STEP: "Workflow-Step", ACTION: "Workflow-Action"}

_JOINT: Final = "_step_"
_TEXT: Final = re.compile(rb"[\x20-\x7e]{1,255}")
_QUOTED: Final = re.compile(rb'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')  # RFC 9651, section 3.3.3
_ESCAPE: Final = re.compile(rb'\\(["\\])')


@dataclass(frozen=True, slots=True)
class Workflow:
    """Where an agent is in its work: the id of the whole, and of this call its step and what it does, where they are told."""

    id: str = field(repr=False)
    step: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """What names an operation. `key` None: it is to be derived, once the fingerprint is known."""

    key: str | None = field(repr=False)
    workflow: Workflow | None = None


def find_name(fields: Fields, rule: KeyRule) -> Name | None:
    """The name of the operation that a request asks for, None when nothing in it names one. Raises KeyInvalidError."""
    key = explicit_key(fields, rule)
    workflow = find_workflow(fields)
    if key is None and KeySource.WORKFLOW in rule.sources:
        if workflow is not None:
            key = step_key(workflow)
        elif field_values(fields, STEP):
            raise KeyInvalidError("Workflow-Step names no operation without Workflow-Id: send both")
    is_named = key is not None or (workflow is not None and rule.mode is KeyMode.DERIVE)
    return Name(key, workflow) if is_named else None


def find_workflow(fields: Fields) -> Workflow | None:
    """Where the agent is, None where no id is told. Raises KeyInvalidError."""
    if not has_any(fields, CARRIERS):
        return None
    told = {name: values for name in CARRIERS if (values := field_values(fields, name))}
    for name, value in _members(told.get(BAGGAGE, [])):
        if name in NAMES and name not in told:
            told.setdefault(b"baggage " + name, []).append(value)
    ids, steps, actions = (told.get(name) or told.get(b"baggage " + name) for name in (ID, STEP, ACTION))
    if ids is None:
        return None
    return Workflow(
        id=parse_key(sole(ids, _SHOWN[ID]), _SHOWN[ID]),
        step=None if steps is None else parse_key(sole(steps, _SHOWN[STEP]), _SHOWN[STEP]),
        action=None if actions is None else _text(sole(actions, _SHOWN[ACTION]), _SHOWN[ACTION]),
    )


def step_key(workflow: Workflow) -> str | None:
    """The key that a workflow's id and step make together, None without a step. Raises KeyInvalidError."""
    if workflow.step is None:
        return None
    # Otherwise two pairs, such as (a, b_step_c) and (a_step_b, c), would make one key of two operations.
    if _JOINT in workflow.step or workflow.id.endswith(_JOINT.removesuffix("_")):
        raise KeyInvalidError(
            "`_step_` joins Workflow-Id and Workflow-Step: the step may not hold it, nor the id end with `_step`"
        )
    key = f"{workflow.id}{_JOINT}{workflow.step}"
    if len(key) > MAX_KEY_LENGTH:
        raise KeyInvalidError(
            f"the key of Workflow-Id and Workflow-Step has {len(key)} characters, and at most {MAX_KEY_LENGTH} are allowed"
        )
    return key


def derived_key(workflow: Workflow, route: str, fingerprint: str) -> str:
    """The key of a call that has no name of its own: the same for what one workflow asks again on one route."""
    parts = f"{workflow.id}\n{route}\n{fingerprint}".encode()  # none of which may hold a line feed
    return f"derived-{hashlib.sha256(parts).hexdigest()}"


def without_workflow(baggage: bytes) -> bytes:
    """A value of `baggage` without the members that are for this proxy; the others byte for byte. Empty when none is left."""
    members = baggage.split(b",")
    others = [member for member in members if member.partition(b"=")[0].strip().lower() not in NAMES]
    return baggage if len(others) == len(members) else b",".join(others).strip()


def _members(baggage: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The members of all lines: the name in lower case, and the value decoded and without its properties (W3C Baggage, 3.2.1)."""
    pairs = [member.partition(b";")[0].partition(b"=") for value in baggage for member in value.split(b",")]
    return [(name.strip().lower(), unquote_to_bytes(value.strip())) for name, equals, value in pairs if equals]


def _text(value: bytes, name: str) -> str:
    """A label: 1 to 255 characters of printable ASCII, quoted or not."""
    quoted = _QUOTED.fullmatch(value)
    text = value if quoted is None else _ESCAPE.sub(rb"\1", quoted[1])
    if not _TEXT.fullmatch(text):
        raise KeyInvalidError(f"the {name} is not 1 to {MAX_KEY_LENGTH} characters of printable ASCII")
    return text.decode("ascii")
