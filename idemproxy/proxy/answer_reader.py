"""Reading one answer: bytes in, a head and a body out, by llhttp (through httptools), and nothing else accepted than an answer.

Limits of the head are larger than those for requests: an over-long answer to a write that has happened is a loss.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import httptools

from idemproxy.core.message import Fields, field_values
from idemproxy.core.outcome import Unsure
from idemproxy.core.policy import KIB

MAX_HEAD: Final = 256 * KIB

_SWITCHING_PROTOCOLS: Final = 101
_FIRST_FINAL: Final = 200
_LAST: Final = 599


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """An answer up to its body. `length` is the declared Content-Length, None when the body is delimited otherwise."""

    status: int
    reason: bytes
    fields: Fields
    length: int | None


class AnswerReader:
    """One answer on its way in. `to_head`: it answers a HEAD request, and so has no body whatever it announces.

    `error` says why it can never be whole; `surplus` that more came than one answer, so that its connection cannot be trusted.
    """

    def __init__(self, *, to_head: bool) -> None:
        self.head: AnswerHead | None = None
        self.finished = False
        self.error: Unsure | None = None
        self.surplus = False
        self.keep_alive = False
        self.buffered = 0
        self._chunks: deque[bytes] = deque()
        self._to_head = to_head
        self._until_close = False
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Read what came."""
        if self.head is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.surplus = True  # on_headers_complete has seen to it
        except httptools.HttpParserError as exc:
            self.fail(Unsure(f"the upstream's answer is not valid HTTP: {exc}", "http_protocol_error"))
            self.surplus = True
        if self.head is None and self._head_bytes > MAX_HEAD:
            self._fail_over_long()

    def _fail_over_long(self) -> None:
        self.fail(Unsure(f"the head of the upstream's answer exceeds {MAX_HEAD} bytes", "http_response_header_section_size"))

    def end_of_connection(self) -> None:
        """The upstream has said all: an answer that is delimited by the end of the connection is whole now."""
        if self._until_close and self.head is not None:
            self.finished = True

    def fail(self, outcome: Unsure) -> None:
        """Note why the answer will never be whole, unless it is, or that is known already."""
        if self.error is None and not self.finished:
            self.error = outcome
            self.keep_alive = False

    def take(self) -> bytes:
        """What has arrived of the body since the last time."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        self.buffered = 0
        return data

    # What llhttp tells.

    def on_message_begin(self) -> None:
        """A second message is one too many."""
        if self.finished:
            self.surplus = True

    def on_status(self, reason: bytes) -> None:
        """The reason phrase, perhaps in pieces."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; trailers are dropped, as a proxy may (RFC 9110, section 6.5.1)."""
        if self.head is None:
            self._fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is whole: find out how the body ends."""
        status = self._parser.get_status_code()
        if status == _SWITCHING_PROTOCOLS:
            self.fail(Unsure("the upstream switched protocols unasked", "http_protocol_error"))
            return
        if self.finished or status < _FIRST_FINAL:
            return  # an informational answer: the final one follows
        if status > _LAST:
            self.fail(Unsure(f"the upstream's status {status} is not valid", "http_protocol_error"))
            return
        fields = tuple(self._fields)
        if sum(len(name) + len(value) for name, value in fields) > MAX_HEAD:
            self._fail_over_long()
            return
        lengths = field_values(fields, b"content-length")
        codings = field_values(fields, b"transfer-encoding")
        bodiless = self._to_head or status in {204, 304}
        if not bodiless and codings and [coding.lower() for coding in codings] != [b"chunked"]:
            self.fail(Unsure("the upstream used a transfer coding other than chunked", "http_response_transfer_coding"))
            return
        self._until_close = not (bodiless or lengths or codings)
        self.keep_alive = self._parser.should_keep_alive() and not self._until_close
        self.head = AnswerHead(status, self._reason, fields, int(lengths[0]) if lengths else None)
        if self._to_head:
            self.finished = True  # llhttp would wait for the body that is only announced

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.finished:
            self.surplus = True
        else:
            self._chunks.append(data)
            self.buffered += len(data)

    def on_message_complete(self) -> None:
        """The message is whole; after an informational one, the next begins with an empty head."""
        if self.head is None:
            self._reason = b""
            self._fields.clear()
        else:
            self.finished = True
