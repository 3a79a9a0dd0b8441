"""Content codings (RFC 9110, section 8.4): what a body is wrapped in, what of it a client takes, and how it is undone."""

from __future__ import annotations

import re
import zlib
from gzip import GzipFile
from io import BytesIO
from types import MappingProxyType
from typing import Final

_SAME: Final = MappingProxyType({b"x-gzip": b"gzip", b"x-compress": b"compress"})
"""Older names, to be taken for the newer ones (RFC 9110, section 8.4.1)."""

_WINDOW_BITS: Final = MappingProxyType({b"gzip": 31, b"deflate": 15})
"""zlib's wbits for each coding that is undone: 31 reads the gzip format, 15 the zlib format (RFC 9110, section 8.4.1)."""

_MOST_CODINGS: Final = 2
"""A longer list of codings is not undone: a small body that unpacks to itself would be unpacked once for each."""

_NEVER: Final = re.compile(rb"q=0(?:\.0*)?")
"""The weight that refuses. One that cannot be read refuses nothing."""


def names(values: list[bytes]) -> list[bytes]:
    """The codings that the values of the Content-Encoding fields name, in order and lower case; `identity` is none."""
    tokens = (token.strip().lower() for value in values for token in value.split(b","))
    return [token for token in tokens if token not in (b"", b"identity")]


def acceptable(codings: list[bytes], accept_encoding: list[bytes]) -> int:
    """How many of a body's codings, from the one applied first, may stay on it for a client with these Accept-Encoding values.

    All of them where there is no such field, or where the client does not take the bare content either: it is not helped by
    losing them (RFC 9110, section 12.5.3).
    """
    if not accept_encoding:
        return len(codings)
    wanted = _wanted(accept_encoding)
    others = wanted.get(b"*", False)
    taken = [wanted.get(_SAME.get(coding, coding), others) for coding in codings]
    count = taken.index(False) if False in taken else len(codings)
    takes_bare = wanted.get(b"identity", wanted.get(b"*", True))
    return count if count or takes_bare else len(codings)


def _wanted(accept_encoding: list[bytes]) -> dict[bytes, bool]:
    """Whether a client takes each coding that it names, `identity` and `*` among them; one that it names twice if one says so."""
    wanted: dict[bytes, bool] = {}
    for member in b",".join(accept_encoding).lower().split(b","):
        name, *parameters = (part.strip() for part in member.split(b";"))
        if name:
            name = _SAME.get(name, name)
            wanted[name] = wanted.get(name, False) or not any(map(_NEVER.fullmatch, parameters))
    return wanted


def undo(body: bytes, codings: list[bytes], *, max_decoded: int, members: bool = False) -> bytes | None:
    """The content of an encoded body; None where it cannot be had, and the encoded bytes have to do.

    That is when a coding is unknown or too many are named, when the content of one would pass `max_decoded` bytes, and when the
    data is damaged, cut short, or followed by something. With `members`, what follows a gzip stream may be another one, as
    servers send that compress piece by piece (RFC 1952, section 2.2).
    """
    if len(codings) > _MOST_CODINGS:
        return None
    content: bytes | None = body
    for coding in reversed(codings):  # The last one named was applied last.
        if content is None:
            break
        bits = _WINDOW_BITS.get(_SAME.get(coding, coding))
        try:
            content = None if bits is None else _decompressed(content, bits, max_decoded, members=members)
        except (zlib.error, OSError, EOFError):  # damaged; no gzip at all, or followed by what is none; cut short
            content = None
    return content


def _decompressed(data: bytes, window_bits: int, limit: int, *, members: bool) -> bytes | None:
    """What is wrapped, of at most `limit` bytes; never more than one byte over the limit is produced."""
    if members and data and window_bits == _WINDOW_BITS[b"gzip"]:
        with GzipFile(fileobj=BytesIO(data)) as stream:
            content = stream.read(limit + 1)
        return content if len(content) <= limit else None
    one = zlib.decompressobj(window_bits)
    content = one.decompress(data, limit + 1)
    return content if len(content) <= limit and one.eof and not one.unused_data else None
