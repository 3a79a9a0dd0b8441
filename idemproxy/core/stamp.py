"""The stamp: the key, written into the forwarded request where the upstream keeps it, so that a probe can find it later.

Everything else of the request stays as it came, byte for byte. A request that cannot carry the stamp must not be forwarded
without it: its outcome could not be found out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias
from urllib.parse import quote_plus, unquote_to_bytes

from idemproxy.core.coding import names
from idemproxy.core.fingerprint.json_form import read_json
from idemproxy.core.fingerprint.parameters import essence
from idemproxy.core.fingerprint.selection import Token, pointer
from idemproxy.core.hop import FRAMING, HOP_BY_HOP, OURS, speaks_of_client
from idemproxy.core.message import Request, field_values

Place: TypeAlias = Literal["header", "json", "form"]

# RFC 9110, section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TAKEN: Final = (
    HOP_BY_HOP | FRAMING | OURS | {b"authorization", b"content-encoding", b"content-type", b"cookie", b"expect", b"host", b"via"}
)
_DIGESTS: Final = (b"content-digest", b"content-md5", b"digest", b"repr-digest")
_FORM: Final = b"application/x-www-form-urlencoded"
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
"""Finds where a value ends, whatever the size of its numbers."""


@dataclass(frozen=True, slots=True)
class StampRule:
    """Where the key is written: a header field, a JSON Pointer to a member of the body, or the name of a form field."""

    place: Place
    name: str


class StampError(ValueError):
    """The request cannot carry the stamp; the message says why, without any value of the request."""


def check_stamp(rule: StampRule) -> list[str]:
    """What is wrong with a rule, one sentence for each problem; empty when nothing is."""
    match rule.place:
        case "header" if not _TOKEN.fullmatch(rule.name):
            return [f"{rule.name!r} is not the name of a header field: letters, digits and hyphens, such as X-Request-Ref"]
        case "header" if (name := rule.name.lower().encode("ascii")) in _TAKEN or speaks_of_client(name):
            return [f"{rule.name!r} has a meaning of its own in every message: choose another field"]
        case "json" if not rule.name.startswith("/"):
            return [f"{rule.name!r} is no JSON Pointer to a member: begin it with a slash, as in /metadata/ref (RFC 6901)"]
        case "json":
            return _pointer_problems(rule.name)
        case "form" if not rule.name:
            return ["the form field has no name: give it one"]
        case _:
            return []


def _pointer_problems(text: str) -> list[str]:
    try:
        pointer(text)
    except ValueError as problem:
        return [f"{text!r}: {problem}"]
    return []


def stamp(request: Request, rule: StampRule, key: str) -> Request:
    """The request with the key in its place; the same request where it stands there already.

    A body that grew makes the framing fields stale: they are made anew for the upstream anyway. Raises StampError.
    """
    match rule.place:
        case "header":
            return _stamp_header(request, rule.name, key.encode("ascii"))
        case "json":
            _refuse_sealed(request)
            return replace(request, body=_stamp_json(request.body, rule.name, key))
        case "form":
            _refuse_sealed(request)
            if [essence(value) for value in field_values(request.fields, b"content-type")] != [_FORM]:
                raise StampError(f"the key is to be written into a form, and the request's type is not {_FORM.decode('ascii')}")
            return replace(request, body=_stamp_form(request.body, rule.name, key))


def _refuse_sealed(request: Request) -> None:
    """Refuse a body that is encoded, or that a field vouches for byte by byte: changed, it would be another."""
    if names(field_values(request.fields, b"content-encoding")):
        raise StampError("the key is to be written into the body, and that has a Content-Encoding: send it without")
    for name in _DIGESTS:
        if field_values(request.fields, name):
            raise StampError(
                f"the key is to be written into the body, and {name.decode('ascii')} says what that is: leave it out"
            )


def _stamp_header(request: Request, name: str, key: bytes) -> Request:
    written = name.encode("ascii")
    match field_values(request.fields, written.lower()):
        case []:
            return replace(request, fields=(*request.fields, (written, key)))
        case [value] if value == key:
            return request
        case _:
            raise StampError(f"the field {name} has another value than the key: leave it out")


def _stamp_form(body: bytes, name: str, key: str) -> bytes:
    if _BROKEN_ESCAPE.search(body):
        raise StampError("the form has a percent sign without two hexadecimal digits after it")
    wanted = name.encode("utf-8")
    pairs = [pair.partition(b"=") for pair in body.replace(b"+", b" ").split(b"&") if pair]
    found = {unquote_to_bytes(value) if equals else None for field, equals, value in pairs if unquote_to_bytes(field) == wanted}
    if found == {key.encode("ascii")}:
        return body
    if found:
        raise StampError(f"the form has another value in {name} than the key: leave it out")
    separator = b"&" if body and not body.endswith(b"&") else b""
    return b"%b%b%b=%b" % (body, separator, quote_plus(name).encode("ascii"), quote_plus(key).encode("ascii"))


def _stamp_json(body: bytes, where: str, key: str) -> bytes:
    """The body with one member more, put first in its object, so that no byte of what the client wrote is touched."""
    try:
        document = read_json(body)
    except (ValueError, RecursionError) as problem:
        raise StampError("the key is to be written into a JSON body, and this body is not JSON in plain UTF-8") from problem
    text = body.decode("utf-8")
    *above, last = pointer(where)
    holder, at = document, _after_space(text, 0)
    for token in above:
        holder, number = _child(holder, token, where)
        at = _start_of_child(text, at, number)
    if not isinstance(holder, dict):
        raise StampError(f"the key is to be written to {where}, and there is no object to hold it")
    if last.name in holder:
        if holder[last.name] == key:
            return body
        raise StampError(f"the body has another value at {where} than the key: leave it out")
    comma = "," if holder else ""
    return f"{text[: at + 1]}{json.dumps(last.name)}:{json.dumps(key)}{comma}{text[at + 1 :]}".encode()


def _child(holder: object, token: Token, where: str) -> tuple[object, int]:
    """A value in an object or an array, and how many stand before it."""
    match holder:
        case dict() if token.name in holder:
            return holder[token.name], list(holder).index(token.name)
        case list() if token.index is not None and token.index < len(holder):
            return holder[token.index], token.index
        case _:
            raise StampError(f"the key is to be written to {where}, and the way there does not exist in the body")


def _start_of_child(text: str, at: int, number: int) -> int:
    """Where a value begins, by how many stand before it in the object or array that begins at `at`; the text is valid JSON."""
    is_object = text[at] == "{"
    at = _after_space(text, at + 1)
    for before in range(number + 1):
        if before:
            at = _after_space(text, _after_space(text, _DECODER.raw_decode(text, at)[1]) + 1)  # the value, and the comma
        if is_object:
            at = _after_space(text, _after_space(text, _DECODER.raw_decode(text, at)[1]) + 1)  # the name, and the colon
    return at


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
