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
