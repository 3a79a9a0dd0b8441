"""Content codings (RFC 9110, section 8.4): what a body is wrapped in, what of it a client takes, and how it is undone."""

from __future__ import annotations

import re
import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAME: Final = MappingProxyType({b"x-gzip": b"gzip", b"x-compress": b"compress"})
"""Older names, to be taken for the newer ones (RFC 9110, section 8.4.1)."""

_WINDOW_BITS: Final = MappingProxyType({b"gzip": 31, b"deflate": 15})
"""zlib's wbits for each coding that is undone: 31 reads the gzip format, 15 the zlib format (RFC 9110, section 8.4.1)."""

_MOST_CODINGS: Final = 2
"""A longer list of codings is not undone: a small body that unpacks to itself would be unpacked once for each."""

_PIECE: Final = 64 * 1024
"""How much is decoded at once, in bytes, before and after."""

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


def undo(body: bytes, codings: list[bytes], *, max_decoded: int) -> bytes | None:
    """The content of an encoded body; None where it cannot be had, and the encoded bytes have to do.

    That is when a coding is unknown or too many are named, when the content of one would pass `max_decoded` bytes, and when the
    data is damaged, cut short, or followed by something.
    """
    if len(codings) > _MOST_CODINGS:
        return None
    content: bytes | None = body
    for coding in reversed(codings):  # The last one named was applied last.
        if content is None:
            break
        bits = _WINDOW_BITS.get(_SAME.get(coding, coding))
        try:
            content = None if bits is None else _decompressed(content, bits, max_decoded)
        except zlib.error:
            content = None
    return content


def _decompressed(data: bytes, window_bits: int, limit: int) -> bytes | None:
    """What is wrapped, of at most `limit` bytes; never more than one byte over the limit is produced."""
    one = zlib.decompressobj(window_bits)
    content = one.decompress(data, limit + 1)
    return content if len(content) <= limit and one.eof and not one.unused_data else None


def pieces(body: bytes, codings: list[bytes], *, max_decoded: int) -> Iterator[bytes]:
    """The content of an encoded body, of which only a piece is ever here; each takes as long as it takes to decode it.

    Raises zlib.error where `undo` has no content; but behind a gzip stream there may be another one, as servers send that
    compress piece by piece (RFC 1952, section 2.2), and zeros.
    """
    if len(codings) > _MOST_CODINGS:
        raise zlib.error("too many codings")
    content: Iterator[bytes] = (body[at : at + _PIECE] for at in range(0, len(body), _PIECE))
    for coding in reversed(codings):
        bits = _WINDOW_BITS.get(_SAME.get(coding, coding))
        if bits is None:
            raise zlib.error("an unknown coding")
        content = _unwrapped(content, bits, max_decoded)
    yield from content


def _unwrapped(wrapped: Iterator[bytes], window_bits: int, limit: int) -> Iterator[bytes]:
    one = zlib.decompressobj(window_bits)
    size = 0
    for data in wrapped:
        left, has_more = data, False
        while left or has_more:
            if one.eof:
                if window_bits != _WINDOW_BITS[b"gzip"]:
                    raise zlib.error("followed by something")
                left = left.lstrip(b"\0")
                if not left:
                    break
                one = zlib.decompressobj(window_bits)
            piece = one.decompress(left, _PIECE)
            has_more = len(piece) == _PIECE and not one.eof
            left = one.unused_data if one.eof else one.unconsumed_tail
            size += len(piece)
            if size > limit:
                raise zlib.error("too long")
            if piece:
                yield piece
    if not one.eof:
        raise zlib.error("cut short")
