"""A replay for a client that does not take the coding of the stored body: when it is decoded, and what its head says then."""

from __future__ import annotations

import gzip
import sys
import zlib

import brotli
import pytest
from zstandard import ZstdCompressor

from idemproxy.core.message import Answer, Fields
from idemproxy.core.policy import Policy
from idemproxy.core.record import StoredAnswer, head_bytes, unpack_answer
from idemproxy.core.replay import MAX_DECODED, decoded_body, decoded_head, decoded_length, keep, passed_on, surplus_codings

TEXT = b'{"id": "ch_1"}'
GZIP = gzip.compress(TEXT, mtime=0)
BR = brotli.compress(TEXT)
ZSTD = ZstdCompressor().compress(TEXT)
PLAIN_ONLY: Fields = ((b"Host", b"x"), (b"accept-encoding", b"identity"))


def stored(*fields: tuple[bytes, bytes], body: bytes = GZIP, status: int = 201) -> StoredAnswer:
    """An answer as a record has it."""
    packed = keep(Answer(status, b"Sure, made", fields, body), passed_on(b"Sure, made", fields), Policy())
    assert packed is not None
    return unpack_answer(packed)


def decoded(given: StoredAnswer, surplus: list[bytes]) -> StoredAnswer:
    """The answer of which a replay without the codings `surplus` is made, its body in one piece."""
    length = decoded_length(given, surplus)
    if length is None:
        return given
    body = b"".join(decoded_body(given, surplus))
    assert length == len(body)
    return StoredAnswer(given.status, decoded_head(given, surplus), body)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param([(b"Content-Encoding", b"gzip")], [b"gzip"], id="coded"),
        pytest.param([(b"A", b""), (b"content-ENCODING", b"X-GZIP"), (b"B", b"1")], [b"x-gzip"], id="among others, in any case"),
        pytest.param([(b"Content-Encoding", b"br"), (b"Content-Encoding", b"gzip")], [b"br", b"gzip"], id="twice"),
        pytest.param([], [], id="not coded"),
        pytest.param([(b"Content-Encoding", b"")], [], id="coded with nothing"),
        pytest.param([(b"Content-Encoding", b"identity")], [], id="identity"),
        pytest.param([(b"X-Content-Encoding", b"gzip")], [], id="another field"),
        pytest.param([(b"A", b"content-encoding: gzip")], [], id="another field's value"),
        pytest.param([(b"Content-Encoding", b"gzip"), (b"Cache-Control", b"private,No-Transform")], [], id="no-transform"),
        pytest.param([(b"Content-Encoding", b"gzip"), (b"Cache-Control", b"no-store")], [b"gzip"], id="no-store"),
    ],
)
def test_what_comes_off(fields: list[tuple[bytes, bytes]], expected: list[bytes]) -> None:
    """Every coding that the client does not take; none where the upstream forbids to transform what it sent."""
    assert expected == surplus_codings(stored(*fields), PLAIN_ONLY)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), []),
        (((b"Accept-Encoding", b"gzip"),), []),
        (((b"Accept-Encoding", b"br"), (b"ACCEPT-ENCODING", b"gzip")), []),
        (((b"X-Accept-Encoding", b"identity"),), []),
        (((b"Accept-Encoding", b""),), [b"gzip"]),
        (((b"Accept-Encoding", b"br"), (b"Accept-Encoding", b"zstd")), [b"gzip"]),
        (((b"Accept-Encoding", b"br"), (b"cache-control", b"max-age=0, no-transform")), []),
    ],
)
def test_for_whom(asked: Fields, expected: list[bytes]) -> None:
    """Only for a client that says what it takes, in one field or several, and does not ask for the bytes as they are."""
    assert expected == surplus_codings(stored((b"Content-Encoding", b"gzip")), asked)


def test_a_part_stays_as_it_is() -> None:
    """What a 206 holds is a part of the coded bytes."""
    assert [] == surplus_codings(
        stored((b"Content-Encoding", b"gzip"), (b"Content-Range", b"bytes 0-9/99"), status=206), PLAIN_ONLY
    )


def test_what_is_said_of_a_decoded_body() -> None:
    """No coding, no digest of the coded bytes, a weak ETag; all else is as it was, in its order, with case and repeats."""
    given = stored(
        (b"Link", b"<a>"),
        (b"content-encoding", b"gzip"),
        (b"ETAG", b'"1"'),
        (b"Vary", b"Accept-Encoding"),
        (b"X-Odd", b""),
        (b"Content-Digest", b"sha-256=:AAAA:"),
        (b"repr-digest", b"sha-256=:AAAA:"),
        (b"Digest", b"sha-256=AAAA"),
        (b"Content-MD5", b"AAAA"),
        (b"Location", b"/x: y"),
        (b"link", b"<b>"),
    )
    left = (
        (b"Link", b"<a>"),
        (b"ETAG", b'W/"1"'),
        (b"Vary", b"Accept-Encoding"),
        (b"X-Odd", b""),
        (b"Location", b"/x: y"),
        (b"link", b"<b>"),
    )
    assert StoredAnswer(201, head_bytes(b"Sure, made", left), TEXT) == decoded(given, [b"gzip"])


@pytest.mark.parametrize(("etag", "expected"), [(b'"1"', b'W/"1"'), (b'W/"1"', b'W/"1"'), (b"odd", b"odd"), (b"", b"")])
def test_etag(etag: bytes, expected: bytes) -> None:
    """A strong one becomes weak, since these are other bytes; a weak one, or what is none, stays."""
    given = stored((b"ETag", etag), (b"Content-Encoding", b"gzip"))
    assert head_bytes(b"Sure, made", ((b"ETag", expected),)) == decoded(given, [b"gzip"]).head


@pytest.mark.parametrize(
    "lines", [[b"deflate, gzip"], [b"deflate", b"gzip"], [b"identity", b"DEFLATE", b"gzip"]], ids=["one", "two", "three"]
)
@pytest.mark.parametrize(("surplus", "left"), [([b"gzip"], True), ([b"deflate", b"gzip"], False)])
def test_a_list_of_codings_is_shortened(lines: list[bytes], surplus: list[bytes], *, left: bool) -> None:
    """The codings that stay are said once, where the first was said."""
    inner = zlib.compress(TEXT)
    given = stored((b"A", b"1"), *((b"Content-Encoding", value) for value in lines), (b"B", b"2"), body=gzip.compress(inner))
    told = ((b"A", b"1"), *(((b"Content-Encoding", b"deflate"),) if left else ()), (b"B", b"2"))
    assert StoredAnswer(201, head_bytes(b"Sure, made", told), inner if left else TEXT) == decoded(given, surplus)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        pytest.param(b"x-own", BR, id="unknown"),
        pytest.param(b"gzip", b"this is not gzip", id="damaged"),
        pytest.param(b"br", b"this is not br", id="damaged br"),
        pytest.param(b"zstd", b"this is not zstd", id="damaged zstd"),
        pytest.param(b"gzip", GZIP[:-3], id="cut short"),
        pytest.param(b"br", BR[:-3], id="br cut short"),
        pytest.param(b"zstd", ZSTD[:-3], id="zstd cut short"),
        pytest.param(b"gzip", b"", id="empty"),
    ],
)
def test_what_cannot_be_decoded_is_given_as_stored(coding: bytes, body: bytes) -> None:
    """Head and body, all of it."""
    given = stored((b"Content-Encoding", coding), (b"ETag", b'"1"'), (b"Digest", b"x"), body=body)
    assert given == decoded(given, [coding])


@pytest.mark.parametrize(("coding", "body"), [(b"br", BR), (b"zstd", ZSTD)])
def test_br_and_zstd_where_their_libraries_are(monkeypatch: pytest.MonkeyPatch, coding: bytes, body: bytes) -> None:
    """The content, as of any coding; head and body as they are stored in a proxy without them."""
    given = stored((b"Content-Encoding", coding), (b"ETag", b'"1"'), body=body)
    bare = StoredAnswer(201, head_bytes(b"Sure, made", ((b"ETag", b'W/"1"'),)), TEXT)
    assert [coding] == surplus_codings(given, PLAIN_ONLY)
    assert bare == decoded(given, [coding])

    for library in ("brotli", "backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, library, None)
    assert given == decoded(given, [coding])


def test_the_bound_of_a_decoded_body() -> None:
    """64 MiB are given, one byte more is given as stored."""
    most = gzip.compress(bytes(MAX_DECODED), compresslevel=1)
    over = most + gzip.compress(b"1")
    assert MAX_DECODED == 64 << 20
    assert bytes(MAX_DECODED) == decoded(stored((b"Content-Encoding", b"gzip"), body=most), [b"gzip"]).body
    assert over == decoded(stored((b"Content-Encoding", b"gzip"), body=over), [b"gzip"]).body


def test_gzip_in_several_members() -> None:
    """A server that compresses piece by piece is decoded wholly."""
    assert TEXT * 3 == decoded(stored((b"Content-Encoding", b"gzip"), body=GZIP * 3), [b"gzip"]).body
