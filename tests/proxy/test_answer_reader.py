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
