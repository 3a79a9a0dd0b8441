"""The verdict: what an answer to the probe proves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

from idemproxy.core.fingerprint.json_form import read_json
from idemproxy.core.fingerprint.number import Number
from idemproxy.core.message import Answer
from idemproxy.core.probe.rule import ProbeRule, compiled


@dataclass(frozen=True, slots=True)
class Done:
    """The operation happened; `answer` is what its callers get from now on."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class NotDone:
    """There is no trace of the operation; this counts only after `settle`."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """The probe proved nothing. `reason` holds nothing of any body."""

    reason: str


Verdict: TypeAlias = Done | NotDone | Unclear


def judge_probe(rule: ProbeRule, status: int, body: bytes) -> Verdict:
    """What a whole answer to the probe proves."""
    if status in rule.absent_status:
        return NotDone()
    if not 200 <= status < 300:
        return Unclear(f"the probe was answered with {status}")
    try:
        document = read_json(body)
    except (ValueError, RecursionError):
        return Unclear(f"the probe was answered with {status} and a body that is not JSON")
    try:
        found = compiled(rule.found).search(document)
        absent = None if rule.absent is None else compiled(rule.absent).search(document)
        match _is_true(found), _is_true(absent):
            case True, False:
                return _done(rule, document, found)
            case False, True:
                return NotDone()
            case True, True:
                return Unclear("the probe's answer is both found and absent")
            case _:
                return Unclear("the probe's answer is neither found nor absent")
    except Exception as problem:  # noqa: BLE001 - an expression may fail with anything, and its message may quote the body
        return Unclear(f"an expression fails on the probe's answer ({type(problem).__name__})")


def _done(rule: ProbeRule, document: object, found: object) -> Verdict:
    value = found if rule.answer_body is None else compiled(rule.answer_body).search(document)
    if value is None:
        return Unclear("the operation was found, but answer.body selects nothing of the probe's answer")
    # An unpaired surrogate has no UTF-8; its escape in Python is the one in JSON.
    body = _written(value).encode("utf-8", "backslashreplace")
    reason = HTTPStatus(rule.answer_status).phrase if rule.answer_status in set(HTTPStatus) else ""
    return Done(Answer(rule.answer_status, reason.encode("ascii"), ((b"Content-Type", b"application/json"),), body))


def _is_true(value: object) -> bool:
    """Truth as JMESPath has it: null, false and what is empty are false, and 0 is true."""
    return not (value is None or value is False or (isinstance(value, str | list | dict) and not value))


def _written(value: object) -> str:
    """Compact JSON, in which numbers stand as they were read. Raises TypeError or ValueError for what is no JSON."""
    match value:
        case dict():
            return "{" + ",".join(f"{_written(name)}:{_written(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case Number():
            return value.text
        case _:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
