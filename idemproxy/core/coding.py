"""Content codings (RFC 9110, section 8.4): what a body is wrapped in, what of it a client takes, and how it is undone.

For fingerprints (`undo`) only gzip and deflate are, wherever the proxy runs: a fingerprint is stored, and compared by another
proxy, so that it must not depend on what is installed. For replays (`pieces`) br and zstd are too, where their libraries are.
"""

from __future__ import annotations

import re
import sys
import zlib
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SAME: Final = MappingProxyType({b"x-gzip": b"gzip", b"x-compress": b"compress"})
"""Older names, to be taken for the newer ones (RFC 9110, section 8.4.1)."""

_WINDOW_BITS: Final = MappingProxyType({b"gzip": 31, b"deflate": 15})
"""zlib's wbits for each coding that is undone for a fingerprint: 31 reads the gzip format, 15 the zlib format (RFC 9110,
section 8.4.1). A coding more, and the proxies of a store disagree on its records until the last one has it."""

_MOST_CODINGS: Final = 2
"""A longer list of codings is not undone: a small body that unpacks to itself would be unpacked once for each."""

_PIECE: Final = 64 * 1024
"""How much is decoded at once, in bytes, before and after."""

_BR_PIECE: Final = _PIECE // 4
"""Likewise of br, after: brotli gives what is in its buffers when the bound is passed, which is then up to 32 KiB."""

_ZSTD_WINDOW_LOG: Final = 23

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


class UndecodableError(ValueError):
    """The content of an encoded body cannot be had, and the encoded bytes have to do; the message says why."""


def pieces(body: bytes, codings: list[bytes], *, max_decoded: int) -> Iterator[bytes]:
    """The content of an encoded body, of which only a piece is ever here; each takes as long as it takes to decode it.

    Raises UndecodableError, perhaps after some pieces, where `undo` has no content; but `br` and `zstd` are undone, and behind a
    gzip or zstd stream there may be another one, as servers send that compress piece by piece (RFC 1952, section 2.2; RFC 8878,
    section 3), and behind gzip zeros.
    """
    if len(codings) > _MOST_CODINGS:
        raise UndecodableError("too many codings")
    content: Iterator[bytes] = (body[at : at + _PIECE] for at in range(0, len(body), _PIECE))
    for coding in reversed(codings):
        decoded = _DECODERS.get(_SAME.get(coding, coding))
        if decoded is None:
            raise UndecodableError("an unknown coding")
        content = _within(max_decoded, decoded(content))
    yield from content


def _within(limit: int, content: Iterator[bytes]) -> Iterator[bytes]:
    """What is decoded, without empty pieces, as long as it is of at most `limit` bytes."""
    size = 0
    try:
        for piece in content:
            size += len(piece)
            if size > limit:
                raise UndecodableError("too long")
            if piece:
                yield piece
    except ImportError as exc:
        raise UndecodableError("it takes idemproxy[compression] to decode it") from exc


# What the decoders below have in common: they are given pieces of what is wrapped, none of them empty, and yield pieces of what
# is in it, some perhaps empty; they raise UndecodableError where it is damaged, cut short or followed by something. Each imports
# its library when it begins, so that who decodes nothing does without, and raises ImportError where there is none.


def _from_zlib(window_bits: int, wrapped: Iterator[bytes]) -> Iterator[bytes]:
    one = zlib.decompressobj(window_bits)
    try:
        for data in wrapped:
            left, has_more = data, False
            while left or has_more:
                if one.eof:
                    if window_bits != _WINDOW_BITS[b"gzip"]:
                        raise UndecodableError("followed by something")
                    left = left.lstrip(b"\0")
                    if not left:
                        break
                    one = zlib.decompressobj(window_bits)
                piece = one.decompress(left, _PIECE)
                has_more = len(piece) == _PIECE and not one.eof
                left = one.unused_data if one.eof else one.unconsumed_tail
                yield piece
    except zlib.error as exc:
        raise UndecodableError(str(exc)) from exc
    if not one.eof:
        raise UndecodableError("cut short")


def _from_br(wrapped: Iterator[bytes]) -> Iterator[bytes]:
    """RFC 7932. The window is of up to 16 MiB, as the content fills it. What follows the stream is an error of brotli's."""
    from brotli import Decompressor, error  # noqa: PLC0415

    if not hasattr(Decompressor, "can_accept_more_data"):
        raise ImportError("brotli bounds what it decodes at once since 1.2")
    one = Decompressor()
    try:
        for data in wrapped:
            piece = one.process(data, output_buffer_limit=_BR_PIECE)
            while piece or not one.can_accept_more_data():  # it may take more, and have much to give yet, too
                yield piece
                piece = one.process(b"", output_buffer_limit=_BR_PIECE)
    except error as exc:
        raise UndecodableError(str(exc)) from exc
    if not one.is_finished():
        raise UndecodableError("cut short")


def _from_zstd(wrapped: Iterator[bytes]) -> Iterator[bytes]:
    """RFC 8878. The window is of up to 8 MiB: no server may ask for more (RFC 9659, section 3)."""
    # Not zstandard, with which answers are stored: it bounds what it decodes at once only where it does not tell the end.
    if sys.version_info >= (3, 14):
        from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError  # noqa: PLC0415
    else:
        from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError  # noqa: PLC0415

    options: dict[int, int] = {DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    one = ZstdDecompressor(options=options)
    try:
        for data in wrapped:
            left = data
            while left or not (one.needs_input or one.eof):
                if one.eof:
                    one = ZstdDecompressor(options=options)
                piece = one.decompress(left, _PIECE)
                left = one.unused_data if one.eof else b""
                yield piece
    except ZstdError as exc:
        raise UndecodableError(str(exc)) from exc
    if not one.eof:
        raise UndecodableError("cut short")


_DECODERS: Final[MappingProxyType[bytes, Callable[[Iterator[bytes]], Iterator[bytes]]]] = MappingProxyType(
    {coding: partial(_from_zlib, bits) for coding, bits in _WINDOW_BITS.items()} | {b"br": _from_br, b"zstd": _from_zstd}
)
"""What undoes a coding for a replay. Each decoder holds a piece of what is wrapped and one of what is in it, and its window."""
