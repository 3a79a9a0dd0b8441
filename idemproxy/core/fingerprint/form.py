"""The canonical form of `application/x-www-form-urlencoded`: its decoded pairs, in order."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from idemproxy.core.fingerprint.frame import framed

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NO_VALUE = b"-"


def canonical_form(body: bytes) -> bytes | None:
    """The pairs of a form as netstrings, or None when a percent sign is not followed by two hexadecimal digits.

    Percent escapes and `+` are decoded to bytes, so the spelling of a character does not matter and no character set is
    assumed. Empty pairs (`a=1&&b=2`) carry nothing and are skipped, as in the WHATWG URL standard. Unlike there, `a` and
    `a=` differ: some servers read the first as null and the second as an empty text.
    """
    if _BROKEN_ESCAPE.search(body):
        return None
    written = []
    for pair in body.replace(b"+", b" ").split(b"&"):
        if pair:
            name, equals, value = pair.partition(b"=")
            written.append(framed(_decoded(name)))
            written.append(framed(_decoded(value)) if equals else _NO_VALUE)
    return b"".join(written)


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text) if b"%" in text else text
