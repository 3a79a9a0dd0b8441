"""What compression promises beside the contract of all stores: an answer is replayed byte for byte, or not at all."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.core.message import Answer
from idemproxy.core.record import COMPRESSED, AnswerFormatError, Identity, Phase, pack_answer, unpack_answer
from idemproxy.core.transition import Acted, Doubt, Found, Hold
from idemproxy.store.base import Store
from idemproxy.store.compressed import CompressedStore, Packer
from tests.store.harness import Harness
from tests.store.steps import ask, completion, granted, identity

ME: Final = identity()
ON_REAL_STORES: Final = pytest.mark.parametrize("harness", ["sqlite", "redis"], indirect=True)
_BODY: Final = b"[%b]" % b",".join(b'{"id": "item_%d", "amount": %d, "paid": true}' % (n, n * 7) for n in range(200))
LONG: Final = pack_answer(Answer(201, b"Created", ((b"Content-Type", b"application/json"),), _BODY))
SHORT: Final = pack_answer(Answer(201, b"Created", ((b"Content-Type", b"application/json"),), b'{"id": "item_1"}'))
NOISE: Final = pack_answer(Answer(200, b"OK", ((b"Content-Type", b"image/png"),), random.Random(5).randbytes(5000)))  # noqa: S311


async def _complete(store: Store, hold: Hold) -> None:
    await store.complete(ME, hold, completion(LONG))


async def _doubt(store: Store, hold: Hold) -> None:
    await store.mark_unknown(ME, hold, Doubt(500, answer=LONG))


async def _resolve(store: Store, hold: Hold) -> None:
    await store.mark_unknown(ME, hold, Doubt(500))
    assert Acted.DONE == await store.resolve(ME, hold.fence, completion(LONG), "ann", "seen in the ledger")


async def stored(store: Store, of: Identity = ME) -> bytes | None:
    """What a store gives for an answer."""
    record = await store.read(of)
    assert record is not None
    return record.answer


@ON_REAL_STORES
@pytest.mark.parametrize(
    ("settle", "phase"), [(_complete, Phase.COMPLETED), (_doubt, Phase.UNKNOWN), (_resolve, Phase.COMPLETED)]
)
async def test_a_long_answer_is_stored_short_and_found_byte_for_byte(
    harness: Harness, settle: Callable[[Store, Hold], Awaitable[None]], phase: Phase
) -> None:
    """However an answer came to be kept, the store has less than a third of its bytes, and claims and reads bring all of them."""
    inner = await harness.open()
    store = CompressedStore(inner)

    await settle(store, await granted(store, ME))
    found, kept = await store.claim(ME, ask()), await stored(inner)

    assert isinstance(found, Found)
    assert (phase, LONG) == (found.record.phase, found.record.answer)
    assert LONG == await stored(store)
    assert kept is not None
    assert len(kept) < len(LONG) / 3


@ON_REAL_STORES
@pytest.mark.parametrize("answer", [SHORT, NOISE, None], ids=["short", "does not shrink", "not kept"])
async def test_what_would_not_gain_is_stored_as_it_is(harness: Harness, answer: bytes | None) -> None:
    """A short answer, one that does not shrink, and none at all are in the store as they were given."""
    inner = await harness.open()
    store = CompressedStore(inner)

    await store.complete(ME, await granted(store, ME), completion(answer))

    assert (answer, answer) == (await stored(inner), await stored(store))


@ON_REAL_STORES
async def test_an_answer_from_before_is_found_as_it_was(harness: Harness) -> None:
    """What was stored without compression is found with it."""
    inner = await harness.open()
    await inner.complete(ME, await granted(inner, ME), completion(LONG))

    found = await CompressedStore(inner).claim(ME, ask())

    assert isinstance(found, Found)
    assert LONG == found.record.answer


@ON_REAL_STORES
async def test_a_proxy_that_cannot_decompress_replays_nothing(harness: Harness) -> None:
    """Without this library a compressed answer does not open, and the error says what it takes."""
    inner = await harness.open()
    store = CompressedStore(inner)
    await store.complete(ME, await granted(store, ME), completion(LONG))

    with pytest.raises(AnswerFormatError, match=r"compressed: it takes idemproxy\[compression\]"):
        unpack_answer(await stored(inner) or b"")


@ON_REAL_STORES
@pytest.mark.parametrize("size", [300_000, 3_000_000])
async def test_an_answer_that_takes_a_thread_is_the_same(harness: Harness, size: int) -> None:
    """Answers that are compressed, and decompressed, beside the loop come back whole."""
    store = CompressedStore(await harness.open())
    answer = pack_answer(Answer(200, b"OK", (), _BODY * (size // len(_BODY) + 1)))

    await store.complete(ME, await granted(store, ME), completion(answer))

    assert answer == await stored(store)


def test_a_damaged_byte_replays_nothing_wrong() -> None:
    """Whichever byte of a compressed answer is another one: it does not open, or it opens to the answer."""
    packer = Packer()
    packed = packer.packed(LONG)
    damaged = [packed[:place] + bytes([packed[place] ^ 0x41]) + packed[place + 1 :] for place in range(1, len(packed))]
    damaged += [packed[:length] for length in range(1, len(packed))]

    opened = [packer.opened(each) for each in damaged]

    assert {True} == {each in {wrong, LONG} for each, wrong in zip(opened, damaged, strict=True)}
    assert len([each for each in opened if each == LONG]) < len(damaged) // 100


@ON_REAL_STORES
async def test_a_frame_that_says_it_is_huge_is_not_believed(harness: Harness) -> None:
    """A damaged length neither takes the memory that it names nor fails the claim."""
    huge = COMPRESSED + b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x0f" + b"\x00" * 20
    inner = await harness.open()
    await inner.complete(ME, await granted(inner, ME), completion(huge))

    assert huge == await stored(CompressedStore(inner))


@given(
    st.builds(
        lambda start, part, times: start + part * times, st.sampled_from([b"", COMPRESSED]), st.binary(), st.integers(0, 500)
    )
)
def test_whatever_is_packed_opens_to_itself(answer: bytes) -> None:
    """Any bytes at all, of any length, also those that begin as a compressed answer does."""
    packer = Packer()

    assert answer == packer.opened(packer.packed(answer))
