"""What a person wants done to a record, read from the JSON that says so and checked before the store is asked.

Every reader raises RefusedError with one sentence that tells what to correct.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import orjson

from idemproxy.admin.refusal import Cause, RefusedError
from idemproxy.core.hop import FRAMING, HOP_BY_HOP, OURS
from idemproxy.core.message import Answer, Fields, field_values
from idemproxy.core.policy import Policy
from idemproxy.core.record import MICROSECONDS, Source, pack_answer
from idemproxy.core.transition import Completion, Verb

LONGEST: Final = MappingProxyType({"who": 200, "why": 2_000})
"""Characters that a person's name and reason may have."""

MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32_768
"""For the names and values of all headers together."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A token (RFC 9110, section 5.6.2)."""
_VALUE: Final = re.compile(r"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
"""A field value (RFC 9110, section 5.5): no line break, and no white space at its ends."""
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
"""Statuses whose answers have no body (RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5)."""

_ALWAYS: Final = frozenset({"fence", "who", "why"})
_ANSWER: Final = frozenset({"status", "headers", "body", "body_base64"})


@dataclass(frozen=True, slots=True)
class Wish:
    """An act that is asked for. `resolution` is what completes the record, for Verb.RESOLVE_COMPLETED alone."""

    verb: Verb
    fence: int
    who: str
    why: str
    resolution: Completion | None = None


def read_object(content: bytes) -> Mapping[str, Any]:
    """The members of a JSON object."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as failure:
        raise _invalid(f"The body is not JSON: {failure}.") from failure
    if not isinstance(document, dict):
        raise _invalid("The body is not a JSON object.")
    return document


def read_forget(document: Mapping[str, Any]) -> Wish:
    """`fence`, `who` and `why`."""
    return Wish(Verb.FORGET, *_always(document, _ALWAYS))


def read_resolve(document: Mapping[str, Any], policy: Policy) -> Wish:
    """As for `forget`, and `as`; for a completed one also `status`, `headers`, and `body` or `body_base64`.

    `policy` is the route's: how long its answers are kept, how long they may be, and which fields are not replayed.
    """
    match document.get("as"):
        case "completed":
            said = _always(document, _ALWAYS | _ANSWER | {"as"})
            return Wish(Verb.RESOLVE_COMPLETED, *said, _completion(_answer(document, policy), policy))
        case "not_executed":
            return Wish(Verb.RESOLVE_NOT_EXECUTED, *_always(document, _ALWAYS | {"as"}))
        case _:
            raise _invalid('`as` must be "completed" or "not_executed".')


def _always(document: Mapping[str, Any], allowed: frozenset[str]) -> tuple[int, str, str]:
    """`fence`, `who`, `why`, and no member but those that are allowed."""
    if unknown := sorted(document.keys() - allowed):
        raise _invalid(f"This act has no member {unknown[0]!r}; it has {', '.join(sorted(allowed))}.")
    fence = document.get("fence")
    if not isinstance(fence, int) or isinstance(fence, bool) or not 0 <= fence < 1 << 63:
        raise _invalid("`fence` must be the record's fence, a whole number: look at the record to learn it.")
    return fence, _line(document, "who"), _line(document, "why")


def _line(document: Mapping[str, Any], name: str) -> str:
    """One line of text: it goes into the log and onto terminals, so it may hold no control characters."""
    text = document.get(name)
    line = " ".join(text.split()) if isinstance(text, str) else ""
    if not 1 <= len(line) <= LONGEST[name] or not line.isprintable():
        raise _invalid(
            f"`{name}` must say {name}, in 1 to {LONGEST[name]:,} printable characters: it is kept in the audit trail."
        )
    return line


def _completion(answer: Answer, policy: Policy) -> Completion:
    return Completion(
        status=answer.status,
        retention=round(policy.retention * MICROSECONDS),
        expired_mark=round(policy.expired_mark * MICROSECONDS),
        source=Source.RESOLVED,
        answer=pack_answer(answer),
    )


def _answer(document: Mapping[str, Any], policy: Policy) -> Answer:
    status = document.get("status")
    if not isinstance(status, int) or isinstance(status, bool) or not 200 <= status <= 599:
        raise _invalid("`status` must be the status of a final answer, 200 to 599.")
    fields, body = _fields(document.get("headers", []), policy), _body(document)
    if _is_json(body) and not field_values(fields, b"content-type"):
        fields = (*fields, (b"Content-Type", b"application/json"))
    if len(body) > policy.max_stored_body:
        raise _invalid(f"The body has {len(body):,} bytes, and the record's route keeps at most {policy.max_stored_body:,}.")
    if body and status in _WITHOUT_BODY:
        raise _invalid(f"An answer with status {status} has no body.")
    return Answer(status, _reason(status), fields, body)


def _fields(headers: object, policy: Policy) -> Fields:
    """Fields that a replay can give; others are refused rather than dropped, so that what is resolved is what is replayed."""
    if not isinstance(headers, list) or len(headers) > MAX_HEADERS:
        raise _invalid(f"`headers` must be a list of at most {MAX_HEADERS} pairs [name, value].")
    fields = tuple(_field(pair, policy) for pair in headers)
    if sum(len(name) + len(value) for name, value in fields) > MAX_HEADER_BYTES:
        raise _invalid(f"The headers have more than {MAX_HEADER_BYTES:,} bytes.")
    return fields


def _field(pair: object, policy: Policy) -> tuple[bytes, bytes]:
    match pair:
        case [str(name), str(value)] if _NAME.fullmatch(name) and _VALUE.fullmatch(value):
            lower = name.lower().encode("ascii")
        case [str(name), _]:
            raise _invalid(f"The header {name[:100]!r} is not a name and a value on one line.")
        case _:
            raise _invalid("Each of `headers` must be a pair [name, value].")
    if lower in HOP_BY_HOP | FRAMING | OURS:
        raise _invalid(f"The header {name!r} belongs to the connection or to this proxy, which sets it itself: leave it out.")
    if lower in policy.replay_denied:
        raise _invalid(f"The header {name!r} is not replayed on the record's route: leave it out.")
    return name.encode("ascii"), value.encode("latin-1")


def _body(document: Mapping[str, Any]) -> bytes:
    match document.get("body"), document.get("body_base64"):
        case None, None:
            return b""
        case str(text), None:
            return text.encode("utf-8")
        case None, str(encoded):
            try:
                return base64.b64decode(encoded, validate=True)
            except ValueError as failure:
                raise _invalid("`body_base64` is not base64.") from failure
        case _:
            raise _invalid("Give `body`, a string, or `body_base64`, not both.")


def _is_json(body: bytes) -> bool:
    """Whether a body is a JSON object or array, which a client could not read without being told so."""
    try:
        return isinstance(orjson.loads(body), dict | list)
    except orjson.JSONDecodeError:
        return False


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b""


def _invalid(detail: str) -> RefusedError:
    return RefusedError(Cause.REQUEST_INVALID, detail)
