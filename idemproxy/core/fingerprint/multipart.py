"""The canonical form of `multipart/*`: its parts in order, without the boundary between them (RFC 2046, RFC 7578).

Encoders draw a new boundary for each try, so the bytes of a retry differ although it says the same. A body that is not
exactly in the form that encoders write (text before the first or after the last boundary, bare line feeds, folded header
lines, padding) is left to be compared as bytes: parsers read such bodies differently.

What counts of a part:

- its content, byte for byte; a Content-Transfer-Encoding is not undone;
- every header field, by lower-case name. The order of different names does not matter, the order of repeats does;
- of Content-Disposition and Content-Type the value in lower case and the parameters by name, quoted or not, in any order
  (`name`, `filename`, `filename*`, `charset`); of every other field, and where the parameters are malformed, the value as sent.

The content of a nested multipart is content like any other; its boundary counts.
"""

from __future__ import annotations

import re

from idemproxy.core.fingerprint.frame import framed, framed_list
from idemproxy.core.fingerprint.parameters import essence, parameters

_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\x00]*)")
_PARAMETERISED = frozenset({b"content-disposition", b"content-type"})


def canonical_multipart(body: bytes, content_type: bytes) -> bytes | None:
    """The parts of a body as netstrings, or None when it is malformed, cut short, or the type names no usable boundary."""
    boundary = (parameters(content_type) or {}).get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        return None
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if len(pieces) == 1 or pieces[0] != b"" or pieces[-1] not in (b"--", b"--\r\n"):
        return None
    written = []
    for part in pieces[1:-1]:
        canonical = _canonical_part(part)
        if canonical is None:
            return None
        written.append(canonical)
    return b"".join(written)


def _canonical_part(part: bytes) -> bytes | None:
    """One part, given from the end of its boundary: a line end, header lines, an empty line, the content."""
    if not part.startswith(b"\r\n"):
        return None
    head, empty_line, content = part.partition(b"\r\n\r\n")
    if not empty_line:
        return None
    fields = []
    for line in head.split(b"\r\n")[1:]:
        matched = _FIELD.fullmatch(line)
        if matched is None:
            return None
        name, value = matched[1].lower(), matched[2].rstrip(b" \t")
        fields.append((name, _canonical_value(name, value)))
    fields.sort(key=lambda field: field[0])
    return framed_list(item for field in fields for item in field) + framed(content)


def _canonical_value(name: bytes, value: bytes) -> bytes:
    """The value with its parameters in order of their names, or as it stands; the first letter says which."""
    found = parameters(value) if name in _PARAMETERISED else None
    if found is None:
        return b"=" + value
    return b";" + framed(essence(value)) + framed_list(item for pair in sorted(found.items()) for item in pair)
