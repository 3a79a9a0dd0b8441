"""Content codings: which of them a client takes (RFC 9110, section 12.5.3), and how they are undone (section 8.4)."""

from __future__ import annotations

import gzip
import zlib

import pytest

from idemproxy.core.coding import acceptable, names, pieces, undo

TEXT = b"one content, however it is wrapped" * 3
GZIP = gzip.compress(TEXT, mtime=0)
DEFLATE = zlib.compress(TEXT)
RAW_DEFLATE = zlib.compress(TEXT, wbits=-15)


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
    except zlib.error:
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
        pytest.param(GZIP, [b"br"], None, id="an unknown one"),
        pytest.param(GZIP, [b"br", b"gzip"], None, id="an unknown one below"),
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


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_the_bound(coding: bytes) -> None:
    """A content of exactly the bound is had, one of a byte more is not; and between two codings the bound is the same."""
    body = GZIP if coding == b"gzip" else DEFLATE
    twice = gzip.compress(gzip.compress(bytes(1_000_000)))
    assert [TEXT] * 2 == [undo(body, [coding], max_decoded=len(TEXT)), _joined(body, [coding], len(TEXT))]
    assert [None] * 2 == [undo(body, [coding], max_decoded=len(TEXT) - 1), _joined(body, [coding], len(TEXT) - 1)]
    assert [None] * 2 == [undo(twice, [b"gzip"] * 2, max_decoded=500), _joined(twice, [b"gzip"] * 2, 500)]


@pytest.mark.parametrize("count", [2, 3, 1000])
def test_gzip_in_several_members(count: int) -> None:
    """In pieces, one member after the other is one content, the bound is on all of it, and padding is nothing."""
    body, size = GZIP * count, len(TEXT) * count
    assert undo(body, [b"gzip"], max_decoded=size) is None
    assert [TEXT * count] * 2 == [_joined(body, [b"gzip"], size), _joined(body + bytes(100_000), [b"gzip"], size)]
    assert [None] * 2 == [_joined(body, [b"gzip"], size - 1), _joined(body[:-1], [b"gzip"], size)]
    assert [None] * 2 == [_joined(DEFLATE + bytes(1), [b"deflate"], size), _joined(GZIP + bytes(9) + b"x", [b"gzip"], size)]


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3 * 65_536, 1_000_000])
@pytest.mark.parametrize("seed", [b"\0", b"0123456789abcdef" * 8, GZIP], ids=["zeros", "repeats", "odd"])
def test_pieces_are_small_and_come_to_the_whole(coding: bytes, size: int, seed: bytes) -> None:
    """However well it packs, no more than 64 KiB are here at once, and nothing is lost between two pieces."""
    content = (seed * size)[:size]
    body = gzip.compress(content) if coding == b"gzip" else zlib.compress(content)
    found = list(pieces(zlib.compress(body), [coding, b"deflate"], max_decoded=2 * size + 100))

    assert content == b"".join(found)
    assert max(map(len, found), default=0) <= 64 * 1024
    assert all(found)
