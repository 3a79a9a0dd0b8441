"""A store that keeps long answers compressed (zstd, level 3), whichever store it is that keeps them.

JSON of 4 KiB shrinks to a third or less, in about 10 µs. What begins with `core.record.COMPRESSED` is one zstd frame of the
whole answer, with its length and a checksum; everything else is as it was given, so that records from before stay readable.
An answer that cannot be decompressed, since it is damaged, is handed on as it lies, and opening it fails
(`core.record.unpack_answer`): so it does in a proxy without this library. Neither replays anything but what was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, TypeVar

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

from idemproxy.core.record import COMPRESSED, Identity, Phase, Record
from idemproxy.core.transition import Act, Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.store.base import Page, Store, Wake
from idemproxy.store.base_finding import Finding
from idemproxy.store.base_journal import Journals

Kept = TypeVar("Kept", Completion, Doubt)

_LEVEL: Final = 3
_LEAST: Final = 1024
"""Bytes: a shorter answer is left as it is; beside the record's own 600 bytes little would be saved."""
_WORTH: Final = 0.9
"""What does not shrink to less than this part, such as an image or a body that comes compressed, is left as it is."""
_LONG: Final = 256 * 1024
"""Bytes: a longer answer takes above half a millisecond, so that a thread compresses it."""
_LONG_TO_OPEN: Final = 2 * 1024 * 1024
"""Likewise to decompress, which is six times as fast."""

_FRAME_HEAD: Final = 18
"""Bytes, at most (RFC 8878, section 3.1.1)."""


class Packer:
    """Compresses and decompresses answers. One for each thread: what it holds on to must not be used in two at once."""

    def __init__(self) -> None:
        self._compressor = ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._decompressor = ZstdDecompressor()

    def packed(self, answer: bytes) -> bytes:
        """What is stored for an answer: see `_stays`."""
        if _stays(answer):
            return answer
        frame = self._compressor.compress(answer)
        return COMPRESSED + frame if len(frame) < len(answer) * _WORTH or answer.startswith(COMPRESSED) else answer

    def opened(self, stored: bytes) -> bytes:
        """The answer for what is stored, which is handed on as it lies where it is damaged."""
        if not _is_compressed(stored):
            return stored
        try:
            return self._decompressor.decompress(memoryview(stored)[1:], allow_extra_data=False)
        except (ZstdError, MemoryError):  # a damaged length may name more than there is
            return stored


class CompressedStore:
    """The store `inner`, whose long answers are compressed; keeps the promises of store.base.Store."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._packer = Packer()

    @property
    def name(self) -> str:
        """The name of the inner store."""
        return self._inner.name

    @property
    def journals(self) -> Journals:
        """The journals of the inner store: no answers are in them."""
        return self._inner.journals

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """As the inner store."""
        result = await self._inner.claim(identity, ask, watched=watched)
        if isinstance(result, Found) and _is_compressed(result.record.answer):
            return Found(await self._opened(result.record))
        return result

    async def read(self, identity: Identity) -> Record | None:
        """As the inner store."""
        record = await self._inner.read(identity)
        return await self._opened(record) if record is not None and _is_compressed(record.answer) else record

    # What has no answer in it, or one that stays as it is, is the inner store's own coroutine.

    def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Coroutine[Any, Any, Settled]:
        """As the inner store."""
        if _stays(completion.answer):
            return self._inner.complete(identity, hold, completion)
        return self._settled(self._inner.complete, identity, hold, completion)

    def mark_unknown(self, identity: Identity, hold: Hold, doubt: Doubt) -> Coroutine[Any, Any, Settled]:
        """As the inner store."""
        if _stays(doubt.answer):
            return self._inner.mark_unknown(identity, hold, doubt)
        return self._settled(self._inner.mark_unknown, identity, hold, doubt)

    async def resolve(self, identity: Identity, fence: int, resolution: Completion | None, who: str, why: str) -> Acted:
        """As the inner store."""
        if resolution is not None:
            resolution = await self._packed(resolution)
        return await self._inner.resolve(identity, fence, resolution, who, why)

    def start(self) -> Coroutine[Any, Any, None]:
        """As the inner store."""
        return self._inner.start()

    def close(self) -> Coroutine[Any, Any, None]:
        """As the inner store."""
        return self._inner.close()

    def check(self) -> Coroutine[Any, Any, None]:
        """As the inner store."""
        return self._inner.check()

    def inspect(self) -> Coroutine[Any, Any, Sequence[Finding]]:
        """As the inner store."""
        return self._inner.inspect()

    def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Coroutine[Any, Any, Sequence[bool]]:
        """As the inner store."""
        return self._inner.renew(holds, lease)

    def release(self, identity: Identity, hold: Hold) -> Coroutine[Any, Any, Settled]:
        """As the inner store."""
        return self._inner.release(identity, hold)

    def list(self, phase: Phase | None, limit: int, cursor: str) -> Coroutine[Any, Any, Page]:
        """As the inner store: what it lists is without answers."""
        return self._inner.list(phase, limit, cursor)

    def forget(self, identity: Identity, fence: int, who: str, why: str) -> Coroutine[Any, Any, Acted]:
        """As the inner store."""
        return self._inner.forget(identity, fence, who, why)

    def audit(self, identity: Identity) -> Coroutine[Any, Any, Sequence[Act]]:
        """As the inner store."""
        return self._inner.audit(identity)

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As the inner store."""
        return self._inner.watch(identity)

    async def _settled(
        self, settle: Callable[[Identity, Hold, Kept], Coroutine[Any, Any, Settled]], identity: Identity, hold: Hold, kept: Kept
    ) -> Settled:
        return await settle(identity, hold, await self._packed(kept))

    async def _packed(self, kept: Kept) -> Kept:
        """With the answer as it is stored."""
        answer = kept.answer
        if answer is None or _stays(answer):
            return kept
        packed = await asyncio.to_thread(Packer().packed, answer) if len(answer) > _LONG else self._packer.packed(answer)
        return replace(kept, answer=packed)

    async def _opened(self, record: Record) -> Record:
        """With the answer as it was given."""
        stored = record.answer or b""
        is_long = _opens_to(stored) > _LONG_TO_OPEN
        opened = await asyncio.to_thread(Packer().opened, stored) if is_long else self._packer.opened(stored)
        return replace(record, answer=opened)


def _stays(answer: bytes | None) -> bool:
    """Whether it is stored as it is, untried. What begins like a compressed one is compressed, so that each opens to itself."""
    return answer is None or (len(answer) < _LEAST and not answer.startswith(COMPRESSED))


def _is_compressed(stored: bytes | None) -> bool:
    return stored is not None and stored.startswith(COMPRESSED)


def _opens_to(stored: bytes) -> int:
    """How many bytes, as its frame's head says; 0 where there is none."""
    try:
        return frame_content_size(stored[1 : 1 + _FRAME_HEAD])
    except ZstdError:
        return 0
