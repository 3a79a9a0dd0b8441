"""Content codings: which of them a client takes (RFC 9110, section 12.5.3), and how they are undone (section 8.4)."""

from __future__ import annotations

import gzip
import sys
import zlib

import brotli
import pytest
from zstandard import ZstdCompressionParameters, ZstdCompressor

from idemproxy.core.coding import UndecodableError, acceptable, names, pieces, undo

TEXT = b"one content, however it is wrapped" * 3
GZIP = gzip.compress(TEXT, mtime=0)
DEFLATE = zlib.compress(TEXT)
RAW_DEFLATE = zlib.compress(TEXT, wbits=-15)
BR = brotli.compress(TEXT)
ZSTD = ZstdCompressor(write_checksum=True).compress(TEXT)
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
"""A frame that holds no content (RFC 8878, section 3.1.2)."""
WRAP = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": lambda content: brotli.compress(content, quality=5),
    b"zstd": ZstdCompressor().compress,
}


def streamed(content: bytes, *, window: int) -> bytes:
    """A zstd frame that names no length, with a window of 2 to the power of `window` bytes."""
    one = ZstdCompressor(compression_params=ZstdCompressionParameters(window_log=window)).compressobj()
    return one.compress(content) + one.flush()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([b""], []),
        ([b"gzip"], [b"gzip"]),
        ([b"GZip ,\tbr"], [b"gzip", b"br"]),
        ([b"br", b"gzip, deflate"], [b"br", b"gzip", b"deflate"]),
        ([b"identity, gzip,,identity"], [b"gzip"]),
    ],
)
def test_names(values: list[bytes], expected: list[bytes]) -> None:
    """All fields are one list; case, white space, empty members and `identity` mean nothing."""
    assert expected == names(values)


@pytest.mark.parametrize(
    ("accept_encoding", "taken"),
    [
        pytest.param([], True, id="no field: everything"),
        pytest.param([b"gzip"], True, id="named"),
        pytest.param([b"GZIP"], True, id="named, in capitals"),
        pytest.param([b"x-gzip"], True, id="its older name"),
        pytest.param([b"br, gzip"], True, id="one of several"),
        pytest.param([b"br", b"gzip;q=0.001"], True, id="in a second field, unloved"),
        pytest.param([b"*"], True, id="any"),
        pytest.param([b"br;q=0, *;q=0.1"], True, id="any other"),
        pytest.param([b"gzip;q=1, *;q=0"], True, id="named, no other"),
        pytest.param([b"gzip ; Q=0.5"], True, id="white space, a weight in capitals"),
        pytest.param([b"gzip;q=nought"], True, id="a weight that is none"),
        pytest.param([b"gzip;q=0, gzip"], True, id="refused and taken"),
        pytest.param([b""], False, id="empty: the bare content only"),
        pytest.param([b" , "], False, id="nothing but a comma"),
        pytest.param([b"identity"], False, id="identity"),
        pytest.param([b"identity, *;q=0"], False, id="identity and no other"),
        pytest.param([b"br"], False, id="another"),
        pytest.param([b"gzipped"], False, id="a longer name"),
        pytest.param([b"gzip;q=0"], False, id="refused"),
        pytest.param([b"x-gzip;q=0"], False, id="refused by its older name"),
        pytest.param([b"*, gzip ;\tq=0.000"], False, id="any but this"),
        pytest.param([b"br, gzip;Q=0."], False, id="refused beside another"),
        pytest.param([b"identity;q=0"], True, id="neither it nor the bare content"),
        pytest.param([b"*;q=0"], True, id="nothing at all"),
        pytest.param([b"br, *;q=0"], True, id="another, and nothing else"),
        pytest.param([b"gzip;q=0, identity;q=0, *"], True, id="anything but these two"),
    ],
)
def test_which_coding_is_taken(accept_encoding: list[bytes], *, taken: bool) -> None:
    """A coding comes off only for a client that says it does not take it, and takes the bare content."""
    assert (1 if taken else 0) == acceptable([b"gzip"], accept_encoding)
    assert (1 if taken else 0) == acceptable([b"x-gzip"], accept_encoding)


@pytest.mark.parametrize(
    ("codings", "accept_encoding", "expected"),
    [
        ([b"br", b"gzip"], b"br, gzip", 2),
        ([b"br", b"gzip"], b"br", 1),
        ([b"br", b"gzip"], b"br, identity;q=0", 1),
        ([b"br", b"gzip"], b"gzip", 0),
        ([b"br", b"gzip"], b"gzip, identity;q=0", 2),
        ([b"gzip", b"gzip"], b"", 0),
        ([], b"", 0),
        ([], b"*;q=0", 0),
    ],
)
def test_how_many_codings_stay(codings: list[bytes], accept_encoding: bytes, expected: int) -> None:
    """Of several codings those stay that are below the first one that is not taken: the last one applied comes off first."""
    assert expected == acceptable(codings, [accept_encoding])


def _joined(body: bytes, codings: list[bytes], max_decoded: int) -> bytes | None:
    """What the pieces come to; None where they cannot be had."""
    try:
        return b"".join(pieces(body, codings, max_decoded=max_decoded))
    except UndecodableError:
        return None


@pytest.mark.parametrize("in_pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    ("body", "codings", "expected"),
    [
        pytest.param(TEXT, [], TEXT, id="none"),
        pytest.param(GZIP, [b"gzip"], TEXT, id="gzip"),
        pytest.param(GZIP, [b"x-gzip"], TEXT, id="x-gzip"),
        pytest.param(DEFLATE, [b"deflate"], TEXT, id="deflate"),
        pytest.param(gzip.compress(b""), [b"gzip"], b"", id="gzip of nothing"),
        pytest.param(gzip.compress(DEFLATE), [b"deflate", b"gzip"], TEXT, id="two"),
        pytest.param(gzip.compress(DEFLATE), [b"gzip", b"deflate"], None, id="two in the wrong order"),
        pytest.param(gzip.compress(gzip.compress(GZIP)), [b"gzip"] * 3, None, id="three"),
        pytest.param(GZIP, [b"x-own"], None, id="an unknown one"),
        pytest.param(GZIP, [b"x-own", b"gzip"], None, id="an unknown one below"),
        pytest.param(RAW_DEFLATE, [b"deflate"], None, id="deflate without its wrapper"),
        pytest.param(DEFLATE, [b"gzip"], None, id="deflate for gzip"),
        pytest.param(b"", [b"gzip"], None, id="nothing, for gzip"),
        pytest.param(b"", [b"deflate"], None, id="nothing, for deflate"),
        pytest.param(TEXT, [b"gzip"], None, id="text, for gzip"),
        pytest.param(GZIP[:-1], [b"gzip"], None, id="gzip cut short"),
        pytest.param(GZIP[:5], [b"gzip"], None, id="gzip cut in its head"),
        pytest.param(DEFLATE[:-1], [b"deflate"], None, id="deflate cut short"),
        pytest.param(GZIP[:-8] + bytes(4) + GZIP[-4:], [b"gzip"], None, id="gzip with a wrong sum"),
        pytest.param(GZIP + b"more", [b"gzip"], None, id="gzip and more"),
        pytest.param(DEFLATE + DEFLATE, [b"deflate"], None, id="deflate twice"),
    ],
)
def test_undo(body: bytes, codings: list[bytes], expected: bytes | None, *, in_pieces: bool) -> None:
    """The codings gzip and deflate come off in the reverse order of their names; what is unknown or not whole stays as it is."""
    limit = len(gzip.compress(GZIP)) + len(TEXT)
    assert expected == (_joined(body, codings, limit) if in_pieces else undo(body, codings, max_decoded=limit))


@pytest.mark.parametrize(
    ("body", "codings"),
    [(BR, [b"br"]), (ZSTD, [b"zstd"]), (gzip.compress(BR), [b"br", b"gzip"]), (gzip.compress(ZSTD), [b"zstd", b"gzip"])],
)
def test_br_and_zstd_stay_for_a_fingerprint(body: bytes, codings: list[bytes]) -> None:
    """It is stored, and compared by another proxy, so that it must not depend on which libraries are installed in this one."""
    assert undo(body, codings, max_decoded=1000) is None
    assert TEXT == _joined(body, codings, 1000)


@pytest.mark.parametrize(
    ("body", "codings", "expected"),
    [
        pytest.param(brotli.compress(b""), [b"br"], b"", id="br of nothing"),
        pytest.param(WRAP[b"zstd"](b""), [b"zstd"], b"", id="zstd of nothing"),
        pytest.param(WRAP[b"zstd"](TEXT), [b"zstd"], TEXT, id="zstd without a checksum"),
        pytest.param(streamed(TEXT, window=10), [b"zstd"], TEXT, id="zstd without a length"),
        pytest.param(streamed(TEXT, window=23), [b"zstd"], TEXT, id="the longest window"),
        pytest.param(ZSTD + SKIPPED + WRAP[b"zstd"](b"") + ZSTD, [b"zstd"], TEXT * 2, id="frames"),
        pytest.param(ZSTD * 2000, [b"zstd"], TEXT * 2000, id="many frames"),
        pytest.param(WRAP[b"br"](ZSTD), [b"zstd", b"br"], TEXT, id="zstd in br"),
        pytest.param(WRAP[b"zstd"](BR), [b"br", b"zstd"], TEXT, id="br in zstd"),
        pytest.param(b"", [b"br"], None, id="nothing, for br"),
        pytest.param(b"", [b"zstd"], None, id="nothing, for zstd"),
        pytest.param(TEXT, [b"br"], None, id="text, for br"),
        pytest.param(TEXT, [b"zstd"], None, id="text, for zstd"),
        pytest.param(BR[:-1], [b"br"], None, id="br cut short"),
        pytest.param(BR[:1], [b"br"], None, id="br cut in its head"),
        pytest.param(WRAP[b"br"](bytes(1_000_000))[:-1], [b"br"], None, id="much br cut short"),
        pytest.param(ZSTD[:-1], [b"zstd"], None, id="zstd cut in its checksum"),
        pytest.param(ZSTD[:-4], [b"zstd"], None, id="zstd without the checksum that it names"),
        pytest.param(ZSTD[:-9], [b"zstd"], None, id="zstd cut short"),
        pytest.param(ZSTD[:3], [b"zstd"], None, id="zstd cut in its head"),
        pytest.param(ZSTD + ZSTD[:-1], [b"zstd"], None, id="a second frame cut short"),
        pytest.param(ZSTD + SKIPPED[:-1], [b"zstd"], None, id="a skipped frame cut short"),
        pytest.param(BR[:9] + b"\xff\xff\xff" + BR[12:], [b"br"], None, id="br damaged"),
        pytest.param(ZSTD[:-4] + bytes(4), [b"zstd"], None, id="zstd with a wrong sum"),
        pytest.param(BR + b"more", [b"br"], None, id="br and more"),
        pytest.param(BR + bytes(1), [b"br"], None, id="br and a zero"),
        pytest.param(BR + BR, [b"br"], None, id="br twice"),
        pytest.param(WRAP[b"br"](bytes(1_000_000)) + b"more", [b"br"], None, id="much br and more"),
        pytest.param(WRAP[b"br"](GZIP * 9000) + b"more", [b"br"], None, id="br of many pieces and more"),
        pytest.param(ZSTD + b"more", [b"zstd"], None, id="zstd and more"),
        pytest.param(ZSTD + bytes(9), [b"zstd"], None, id="zstd and zeros"),
        pytest.param(streamed(TEXT, window=24), [b"zstd"], None, id="a window over the longest"),
    ],
)
def test_pieces_of_br_and_zstd(body: bytes, codings: list[bytes], expected: bytes | None) -> None:
    """For a replay they are undone where all of the content is there, and nothing else behind it."""
    assert expected == _joined(body, codings, 1_000_000)


@pytest.mark.parametrize("coding", [b"br", b"zstd"])
def test_pieces_without_the_library(monkeypatch: pytest.MonkeyPatch, coding: bytes) -> None:
    """Where it is not installed the coding is not undone, and the message says what to install; the others are."""
    for library in ("brotli", "backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(UndecodableError, match=r"idemproxy\[compression\]"):
        list(pieces(WRAP[coding](TEXT), [coding], max_decoded=1000))
    assert TEXT == _joined(GZIP, [b"gzip"], 1000)


def test_pieces_with_an_old_brotli(monkeypatch: pytest.MonkeyPatch) -> None:
    """One before 1.2 would decode all of a body at once, so that it is none."""
    monkeypatch.setattr(brotli, "Decompressor", object)
    assert _joined(BR, [b"br"], 1000) is None


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_the_bound(coding: bytes) -> None:
    """A content of exactly the bound is had, one of a byte more is not; and between two codings the bound is the same."""
    body = GZIP if coding == b"gzip" else DEFLATE
    twice = gzip.compress(gzip.compress(bytes(1_000_000)))
    assert [TEXT] * 2 == [undo(body, [coding], max_decoded=len(TEXT)), _joined(body, [coding], len(TEXT))]
    assert [None] * 2 == [undo(body, [coding], max_decoded=len(TEXT) - 1), _joined(body, [coding], len(TEXT) - 1)]
    assert [None] * 2 == [undo(twice, [b"gzip"] * 2, max_decoded=500), _joined(twice, [b"gzip"] * 2, 500)]


@pytest.mark.parametrize("coding", [b"br", b"zstd"])
def test_the_bound_of_pieces(coding: bytes) -> None:
    """It is on what comes out, of all frames together; of a body that unpacks to 50 MB no more than the bound is given."""
    body, bomb = WRAP[coding](TEXT), WRAP[coding](bytes(50_000_000))
    assert [TEXT, None] == [_joined(body, [coding], len(TEXT)), _joined(body, [coding], len(TEXT) - 1)]
    assert [TEXT * 2, None] == [_joined(ZSTD * 2, [b"zstd"], 2 * len(TEXT)), _joined(ZSTD * 2, [b"zstd"], 2 * len(TEXT) - 1)]

    found: list[bytes] = []
    with pytest.raises(UndecodableError, match="too long"):
        found.extend(pieces(bomb, [coding], max_decoded=1_000_000))
    assert 1_000_000 - 64 * 1024 < sum(map(len, found)) <= 1_000_000


@pytest.mark.parametrize("count", [2, 3, 1000])
def test_gzip_in_several_members(count: int) -> None:
    """In pieces, one member after the other is one content, the bound is on all of it, and padding is nothing."""
    body, size = GZIP * count, len(TEXT) * count
    assert undo(body, [b"gzip"], max_decoded=size) is None
    assert [TEXT * count] * 2 == [_joined(body, [b"gzip"], size), _joined(body + bytes(100_000), [b"gzip"], size)]
    assert [None] * 2 == [_joined(body, [b"gzip"], size - 1), _joined(body[:-1], [b"gzip"], size)]
    assert [None] * 2 == [_joined(DEFLATE + bytes(1), [b"deflate"], size), _joined(GZIP + bytes(9) + b"x", [b"gzip"], size)]


@pytest.mark.parametrize("coding", WRAP)
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3 * 65_536, 1_000_000])
@pytest.mark.parametrize("seed", [b"\0", b"0123456789abcdef" * 8, GZIP], ids=["zeros", "repeats", "odd"])
def test_pieces_are_small_and_come_to_the_whole(coding: bytes, size: int, seed: bytes) -> None:
    """However well it packs, no more than 64 KiB are here at once, and nothing is lost between two pieces."""
    content = (seed * size)[:size]
    body = WRAP[coding](content)
    found = list(pieces(zlib.compress(body), [coding, b"deflate"], max_decoded=2 * size + 100))

    assert content == b"".join(found)
    assert max(map(len, found), default=0) <= 64 * 1024
    assert all(found)
