"""Undoing a Content-Encoding, for the digest only.

A gzip header holds a time stamp and compressors differ, so the same content seldom has the same encoded bytes on a second
try. Content decoded here is never forwarded: what goes upstream is what arrived.
"""

from __future__ import annotations

import zlib

_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's wbits for each coding that is undone: 31 reads the gzip format, 15 the zlib format (RFC 9110, section 8.4.1)."""

_MOST_CODINGS = 2
"""A longer list of codings is not undone: a small body that unpacks to itself would be unpacked once for each."""


def names(values: list[bytes]) -> list[bytes]:
    """The codings that the values of the Content-Encoding fields name, in order and lower case; `identity` is none."""
    tokens = (token.strip().lower() for value in values for token in value.split(b","))
    return [token for token in tokens if token not in (b"", b"identity")]


def undo(body: bytes, codings: list[bytes], *, max_decoded: int) -> bytes | None:
    """The content of an encoded body, or None where the encoded bytes have to be compared.

    That is when a coding is unknown or too many are named, when the content of one would pass `max_decoded` bytes, and when the
    data is damaged, cut short, or followed by something (a second gzip member too).
    """
    if len(codings) > _MOST_CODINGS:
        return None
    content: bytes | None = body
    for coding in reversed(codings):  # The last one named was applied last.
        content = None if content is None else _decompressed(content, _WINDOW_BITS.get(coding), max_decoded)
    return content


def _decompressed(data: bytes, window_bits: int | None, limit: int) -> bytes | None:
    """The content of exactly one stream of at most `limit` bytes; never more than one byte over the limit is produced."""
    if window_bits is None:
        return None
    stream = zlib.decompressobj(window_bits)
    try:
        content = stream.decompress(data, limit + 1)
    except zlib.error:
        return None
    return content if len(content) <= limit and stream.eof and not stream.unused_data else None
