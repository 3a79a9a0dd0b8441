"""The canonical form of JSON: compact, with sorted names and one spelling for each number and string (RFC 8259).

The C scanner and the C encoder of the standard library do the work, so that a body costs little more than reading it; three
hooks make them exact: numbers stay text, a name that comes twice is refused, and so are NaN and Infinity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import NoReturn, TypeAlias

from idemproxy.core.fingerprint.number import Number, canonical, integer
from idemproxy.core.fingerprint.selection import Selection

Json: TypeAlias = object
"""None, bool, int, Number, str, list[Json] or dict[str, Json]."""

MOST_LEVELS = 100
"""Arrays and objects within one another. A limit of our own: Python's depends on its version and on who calls."""

_SPACE = " \t\n\r"

# A number cannot be written bare by the encoder, so it becomes a string that no JSON text has: a reader joins these two halves
# of a pair, when they stand together, to one character.
_NUMBER_MARK = "\ud800\udc00"


def canonical_json(body: bytes, selection: Selection | None) -> tuple[bytes, bytes | None]:
    """The form's name (`json`, or `json-part` where `selection` includes only parts) and the body in it.

    None for the body when it has to be compared as bytes: it is not UTF-8 or not JSON, begins with a byte order mark, has a
    name twice in one object, more than 100 levels, or a number with an exponent of more than 18 digits.

    An expression that fails on this body (a function that is given the wrong type) makes the whole document count.
    """
    try:
        document = read_json(body)
        if selection is not None:
            document = selection.without_excluded(document)
            if selection.include and (part := _part(document, selection)) is not None:
                return b"json-part", part
        return b"json", _written(document)
    except (ValueError, RecursionError):
        return b"json", None


def _part(document: Json, selection: Selection) -> bytes | None:
    try:
        return _written(selection.included(document))
    except Exception:  # noqa: BLE001 - an expression may fail with anything: the library lets Python's own errors through
        return None


def read_json(body: bytes) -> Json:
    """The document, with exact numbers.

    Raises ValueError or RecursionError for what is not JSON in UTF-8, has a name twice in one object, or more than 100 levels.
    """
    text = body.decode().strip(_SPACE)
    document, end = _DECODER.raw_decode(text)
    if end < len(text):
        raise ValueError("more than one value")
    if text.count("[") + text.count("{") > MOST_LEVELS and _is_too_deep(document):
        raise ValueError("too many levels")
    return document


def _is_too_deep(document: Json) -> bool:
    level = _containers([document])
    for _ in range(MOST_LEVELS):
        level = _containers(chain.from_iterable(node.values() if isinstance(node, dict) else node for node in level))
    return bool(level)


def _containers(values: Iterable[Json]) -> list[dict[str, Json] | list[Json]]:
    return [value for value in values if isinstance(value, dict | list)]


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name comes twice")
    return members


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _spelled(value: object) -> int | str:
    """What the encoder writes for a value that it does not know."""
    if not isinstance(value, Number):
        raise TypeError(f"{type(value).__name__} is no value of JSON")
    spelling = canonical(value.text)
    return spelling if isinstance(spelling, int) else _NUMBER_MARK + spelling


def _written(value: Json) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=integer, parse_constant=_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":"), default=_spelled)
