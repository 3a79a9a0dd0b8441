"""One answer's bytes, in whatever pieces they come."""

from __future__ import annotations

import pytest

from idemproxy.proxy.answer_reader import MAX_HEAD, AnswerReader


def _read(data: bytes, piece: int) -> AnswerReader:
    reader = AnswerReader(to_head=False)
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
    return reader


@pytest.mark.parametrize("piece", [1 << 30, MAX_HEAD, 1 << 16], ids=["at once", "in two pieces", "in many pieces"])
@pytest.mark.parametrize("size", [300 * 1024, MAX_HEAD - 100])
def test_an_over_long_head_is_refused_however_it_comes(size: int, piece: int) -> None:
    """A head that arrives in one segment, with all of its body, is not read more generously than one that comes in pieces."""
    reader = _read(b"HTTP/1.1 200 OK\r\nX-Long: %b\r\nContent-Length: 2\r\n\r\nok" % (b"v" * size), piece)

    if size < MAX_HEAD:
        assert (True, None) == (reader.finished, reader.error)
    else:
        assert reader.error is not None
        assert (False, "http_response_header_section_size") == (reader.finished, reader.error.error)


@pytest.mark.parametrize("piece", [1, 7, 1 << 30], ids=["byte by byte", "in small pieces", "at once"])
def test_another_protocol_begins_right_behind_the_101(piece: int) -> None:
    """Whatever the pieces, its bytes are the body, unread, and have no end but the connection's."""
    reader = AnswerReader(to_head=False)
    reader.offered = b"foo/2, WebSocket"
    head = b"HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    data = head + b"HTTP/1.1 200 OK\r\n\r\n\0\xff"
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])

    before_the_end = reader.finished
    reader.end_of_connection()

    assert (101, True, None) == (reader.head and reader.head.status, reader.switched, reader.error)
    assert (False, True) == (before_the_end, reader.finished)
    assert data[len(head) :] == reader.take()
    assert not reader.keep_alive


@pytest.mark.parametrize("piece", [1, 1 << 30], ids=["byte by byte", "at once"])
def test_what_follows_no_answer_is_none(piece: int) -> None:
    """A sound answer in the same packet as one that is not does not become the answer."""
    reader = _read(b"HTTP/1.1 600 No\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", piece)

    assert reader.error is not None
    assert (None, False, "http_protocol_error") == (reader.head, reader.finished, reader.error.error)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"


@pytest.mark.parametrize("piece", [1 << 30, 1 << 16, 10_000], ids=["at once", "in large pieces", "in small pieces"])
@pytest.mark.parametrize(
    ("before", "filling", "after"),
    [
        pytest.param(b"0\r\nX-T: ", b"v", b"\r\n\r\n", id="a trailer's value"),
        pytest.param(b"0\r\n", b"n", b": v\r\n\r\n", id="a trailer's name"),
        pytest.param(b"0\r\n", b"X-T: 1234567890\r\n", b"\r\n", id="many trailer fields"),
    ],
)
def test_an_over_long_trailer_is_refused_however_it_comes(before: bytes, filling: bytes, after: bytes, piece: int) -> None:
    """Behind the body, too, no more is taken than a head may have; within that the answer is whole."""
    shorter = _read(CHUNKED + before + filling * ((MAX_HEAD - 100) // len(filling)) + after, piece)
    longer = _read(CHUNKED + before + filling * (MAX_HEAD // len(filling) + 1) + after, piece)

    assert (True, None, b"ok") == (shorter.finished, shorter.error, shorter.take())
    assert longer.error is not None
    assert (False, "http_response_trailer_section_size") == (longer.finished, longer.error.error)


@pytest.mark.parametrize(
    ("begin", "filling"),
    [
        pytest.param(b"0\r\nX-T: ", b"v", id="a trailer's value"),
        pytest.param(b"0\r\n", b"n", id="a trailer's name"),
        pytest.param(b"0\r\n", b"X-T: 1\r\n", id="trailer fields"),
        pytest.param(b"2;x=", b"v", id="a chunk's extension"),
        pytest.param(b"", b"0", id="a chunk's size"),
    ],
)
def test_what_never_ends_is_given_up(begin: bytes, filling: bytes) -> None:
    """What is no body and has no end is not listened to for ever, wherever in the answer it comes."""
    reader = _read(CHUNKED + begin, 1 << 30)
    fed = 0
    while reader.error is None and fed < 4 * MAX_HEAD:
        reader.feed(filling * (10_000 // len(filling)))
        fed += 10_000 // len(filling) * len(filling)

    assert reader.error is not None
    assert not reader.finished
    assert MAX_HEAD - 10_000 < fed <= MAX_HEAD + 10_000


def test_a_body_in_many_small_chunks_has_no_limit() -> None:
    """What counts is how much comes without any of the body: all lines together may be longer than that."""
    reader = AnswerReader(to_head=False)
    reader.feed(CHUNKED)
    chunks = b"1;extension\r\nx\r\n" * 1000
    for _ in range(100):
        reader.feed(chunks)
    reader.feed(b"0\r\n\r\n")

    assert len(chunks) * 100 > 4 * MAX_HEAD
    assert (True, None, 100_002) == (reader.finished, reader.error, len(reader.take()))


@pytest.mark.parametrize("piece", [1, 1 << 30], ids=["byte by byte", "at once"])
@pytest.mark.parametrize(
    ("before", "to_head"),
    [
        pytest.param(b"HTTP/1.1 201 Made\r\nA: 1\r\nContent-Length: 2\r\n\r\nok", False, id="sized"),
        pytest.param(CHUNKED + b"0\r\nX-T: 1\r\n\r\n", False, id="chunked, with a trailer"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", False, id="without a body"),
        pytest.param(
            b"HTTP/1.1 103 Hints\r\nA: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", False, id="after an interim one"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", False, id="of HTTP/1.0"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", True, id="to HEAD, sized"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", True, id="to HEAD, chunked"),
    ],
)
@pytest.mark.parametrize("after", [True, False], ids=["then HEAD", "then another"])
def test_the_next_answer_of_a_connection_is_read_like_its_first(before: bytes, piece: int, *, to_head: bool, after: bool) -> None:
    """Nothing of the answer before it is left: not its fields, its framing, its version, nor what was counted of it."""
    answer = b"HTTP/1.1 202 Sure\r\nB: 2\r\nContent-Length: 5\r\n\r\n" + b"hello" * (not after)
    reader = AnswerReader(to_head=to_head)
    for at in range(0, len(before), piece):
        reader.feed(before[at : at + piece])
    was_kept = reader.finished and reader.keep_alive and not reader.surplus

    reader.next(to_head=after)
    for at in range(0, len(answer), piece):
        reader.feed(answer[at : at + piece])

    first = AnswerReader(to_head=after)
    first.feed(answer)
    assert was_kept
    assert (first.head, True, True) == (reader.head, reader.finished, reader.keep_alive)
    assert (None, False, first.take()) == (reader.error, reader.surplus, reader.take())
