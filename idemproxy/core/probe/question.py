"""The question: a GET made of the request of a retry."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from idemproxy.core.fingerprint.json_form import read_json
from idemproxy.core.fingerprint.number import Number
from idemproxy.core.key import KeyInvalidError
from idemproxy.core.message import Fields, Request, field_values, without
from idemproxy.core.probe.rule import FIELD_OF, NAME, ProbeRule, compiled, has_dot_segment
from idemproxy.core.workflow import ID, STEP, find_workflow

_LONGEST_VALUE: Final = 1_000

# What speaks of a body, asks for another form of the answer than one that can be read here, or makes something else of a GET.
_NOT_PROBED: Final = frozenset(
    {
        b"accept-encoding",
        b"cache-control",
        b"digest",
        b"expect",
        b"pragma",
        b"prefer",
        b"range",
        b"repr-digest",
        b"transfer-encoding",
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
    }
)
_NOT_PROBED_KINDS: Final = (b"content-", b"if-")

_ASKED: Final[Fields] = (
    (b"Accept-Encoding", b"identity"),
    (b"Cache-Control", b"no-cache"),  # an absence from a cache is as old as the cache's copy (RFC 9111, section 5.2.1.4)
)
_ACCEPT: Final[Fields] = ((b"Accept", b"application/json"),)


class ProbeError(ValueError):
    """The question cannot be asked; the message says why, without any value of the request."""


def probe_request(rule: ProbeRule, request: Request, key: str, key_header: bytes) -> Request:
    """The GET that asks about the operation of `request`, as the client would ask it: with its credentials and other fields.

    Left out are the key's own field (`key_header`, in lower case) and what speaks of a body, of preferences or conditions, or of
    another method. The target is complete but for the upstream's base path: no route prefix is to be taken off it.
    Raises ProbeError when a value is missing, empty, too long, or not a scalar.
    """
    names = set(NAME.findall(rule.get))
    values = {"key": key} | {name: _field_value(request, field) for name, field in FIELD_OF.items() if name in names}
    if rule.from_request:
        document = _request_document(request.body)
        values |= {name: _body_value(name, text, document) for name, text in rule.from_request}
    target = NAME.sub(lambda found: _encoded(found[1], values[found[1]]), rule.get)
    if has_dot_segment(target):
        raise ProbeError("a value would be . or .. in the path, which leads elsewhere")
    return Request("GET", target.encode("ascii"), _fields(request.fields, key_header) + _ASKED)


def _fields(fields: Fields, key_header: bytes) -> Fields:
    """The client's fields that a probe has too; its Accept stays where it asks for some JSON, since APIs have versions there."""
    kept = tuple(
        pair for pair in without(fields, _NOT_PROBED | {key_header}) if not pair[0].lower().startswith(_NOT_PROBED_KINDS)
    )
    accepts = field_values(kept, b"accept")
    return kept if any(b"json" in value.lower() for value in accepts) else without(kept, frozenset({b"accept"})) + _ACCEPT


def _field_value(request: Request, name: bytes) -> str:
    """What a workflow's field says, or else its baggage: a request with several has come no further than its key."""
    try:
        workflow = find_workflow(request.fields)
    except KeyInvalidError as problem:
        raise ProbeError(f"the fields of the workflow name no single one: {problem}") from problem
    value = None if workflow is None else {ID: workflow.id, STEP: workflow.step}[name]
    if value is None:
        raise ProbeError(f"the request has no {name.decode('ascii')}, and the probe needs one")
    return value


def _request_document(body: bytes) -> object:
    try:
        return read_json(body)
    except (ValueError, RecursionError) as problem:
        raise ProbeError("the probe needs values of the request's body, and that is not JSON in plain UTF-8") from problem


def _body_value(name: str, text: str, document: object) -> str:
    try:
        value = compiled(text).search(document)
    except Exception as problem:  # an expression may fail with anything: the library lets Python's own errors through
        raise ProbeError(f"from_request.{name} fails on the request's body") from problem
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float() | Number():
            return str(value)
        case None:
            raise ProbeError(f"from_request.{name} finds nothing in the request's body")
        case _:
            raise ProbeError(f"from_request.{name} finds a list or an object in the request's body, and a target holds text")


def _encoded(name: str, value: str) -> str:
    if not value:
        raise ProbeError(f"the value of {{{name}}} is empty")
    if len(value) > _LONGEST_VALUE:
        raise ProbeError(f"the value of {{{name}}} has more than {_LONGEST_VALUE} characters")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as problem:
        raise ProbeError(f"the value of {{{name}}} is no well-formed text") from problem
