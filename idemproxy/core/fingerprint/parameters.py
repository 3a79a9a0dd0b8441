"""Field values with parameters: `multipart/form-data; boundary=x`, `form-data; name="a"` (RFC 9110, section 5.6.6)."""

from __future__ import annotations

import re
from functools import lru_cache

_PARAMETER = re.compile(rb';[ \t]*(?:([^\s;="]+)=(?:"((?:[^"\\]|\\.)*+)"|([^\s;"]+))[ \t]*)?', re.DOTALL)


@lru_cache(maxsize=32)
def essence(value: bytes) -> bytes:
    """The part before the parameters, in lower case: `application/json` of `Application/JSON; charset=utf-8`."""
    return value.partition(b";")[0].strip().lower()


def parameters(value: bytes) -> dict[bytes, bytes] | None:
    """Parameters by lower-case name, or None when they are not well formed or a name comes twice.

    A quoted value is what stands between its quotes, backslashes included: senders disagree on what those mean, so
    they are compared as they stand.
    """
    found: dict[bytes, bytes] = {}
    position = value.find(b";")
    while 0 <= position < len(value):
        matched = _PARAMETER.match(value, position)
        if matched is None:
            return None
        position = matched.end()
        name, quoted, token = matched.groups()
        if name is None:  # An empty parameter, as in `a/b; c=d;`.
            continue
        if name.lower() in found:
            return None
        found[name.lower()] = token if quoted is None else quoted
    return found
