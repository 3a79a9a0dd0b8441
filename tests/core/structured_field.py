"""A strict reader of one structured-field item (RFC 9651): a token; its parameters integers, strings, tokens or true."""

from __future__ import annotations

import re
from typing import TypeAlias

Bare: TypeAlias = bool | int | str

_TOKEN = r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*"
_VALUE = rf'(?P<integer>-?[0-9]{{1,15}})|"(?P<string>(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"|(?P<token>{_TOKEN})'
_PARAMETER = re.compile(rf"; *(?P<name>[a-z*][a-z0-9_\-.*]*)(?:=(?:{_VALUE}))?")
_ITEM = re.compile(rf"(?P<token>{_TOKEN})")


def read_item(text: str) -> tuple[str, dict[str, Bare]]:
    """The token and its parameters; a parameter without a value is true. Raises ValueError, also for a parameter given twice."""
    item = _ITEM.match(text)
    if item is None:
        raise ValueError(f"no token at the beginning: {text!r}")
    parameters: dict[str, Bare] = {}
    place = item.end()
    while place < len(text):
        found = _PARAMETER.match(text, place)
        if found is None or found["name"] in parameters:
            raise ValueError(f"no new parameter at {place}: {text!r}")
        parameters[found["name"]] = _value(found)
        place = found.end()
    return item["token"], parameters


def _value(found: re.Match[str]) -> Bare:
    if found["integer"] is not None:
        return int(found["integer"])
    if found["string"] is not None:
        return re.sub(r"\\(.)", r"\1", found["string"])
    return found["token"] is None or found["token"]
