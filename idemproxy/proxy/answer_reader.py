"""Reading one answer: bytes in, a head and a body out, by llhttp (through httptools), and nothing else accepted than an answer.

Limits of the head are larger than those for requests: an over-long answer to a write that has happened is a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httptools

from idemproxy.core.message import Indexed, field_values, indexed
from idemproxy.core.outcome import Unsure
from idemproxy.core.policy import KIB

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass

MAX_HEAD: Final = 256 * KIB
"""Also of a trailer, and of what is said between two pieces of a body, in the lines that begin chunks."""
MAX_INTERIM: Final = 100
"""How many interim answers (1xx) may come before the final one; their bytes count as its head's."""

_VERSIONS: Final = frozenset({"1.0", "1.1"})
_CONTINUE: Final = 100
_SWITCHING_PROTOCOLS: Final = 101
_FIRST_FINAL: Final = 200
_LAST: Final = 599
_SEPARATORS: Final = len(b": \r\n")


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """An answer up to its body. `length` is the declared Content-Length, None when the body is delimited otherwise, or absent."""

    status: int
    reason: bytes
    fields: Indexed
    length: int | None


class AnswerReader:
    """One answer on its way in, and then, where it ended well, the next. `to_head`: it has no body, whatever it announces.

    `offered` are the protocols for which the upstream may leave HTTP, as a value of `Upgrade`; `switched` says that it has: the
    head is a 101 then, and all its bytes up to the end of the connection are the body. `on_interim` is given each other interim
    answer but 100. `error` says why the answer can never be whole; `surplus` that more came than one answer, so that its
    connection cannot be trusted.
    """

    def __init__(self, *, to_head: bool) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._to_head = False
        self.next(to_head=to_head)

    def next(self, *, to_head: bool) -> None:
        """Be ready for the next answer of a connection, which this one has left in order.

        With the same parser: a parser and its reader hold each other, and such pairs would be garbage that only a search finds.
        """
        if self._to_head:
            self._parser = httptools.HttpResponseParser(self)  # the other one still waits for a body that was only announced
        self.offered: bytes | None = None
        self.on_interim: Callable[[AnswerHead], None] | None = None
        self.head: AnswerHead | None = None
        self.switched = False
        self.finished = False
        self.error: Unsure | None = None
        self.surplus = False
        self.keep_alive = False
        self.buffered = 0
        self._chunks: list[bytes] = []
        self._to_head = to_head
        self._until_close = False
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._told_bytes = 0
        """Of the fields of all heads so far, where that may be too much: those of interim answers count too."""
        self._interim = 0
        self._framing_bytes = 0
        """Behind the head, since the last piece of the body."""
        self._trailer_bytes = 0

    def leave(self) -> None:
        """There is no next answer: let go of the parser, with which this is a cycle, and of what was read last."""
        self._parser = None
        self.head = None
        self._fields = []
        self._chunks.clear()

    def feed(self, data: bytes) -> None:
        """Read what came."""
        if self.head is None:
            self._head_bytes += len(data)
        elif self.switched:
            self._keep(data)
            return
        else:
            self._framing_bytes += len(data)  # llhttp keeps none of it, but httptools a field of the trailer that goes on and on
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            if self.switched:
                self._keep(data[exc.args[0] :])
        except httptools.HttpParserError as exc:
            self._fail_invalid(f"the upstream's answer is not valid HTTP: {exc}")
            self.surplus = True
        if self._head_bytes > MAX_HEAD and self.head is None:
            self._fail_over_long()
        elif self._framing_bytes > MAX_HEAD or self._trailer_bytes > MAX_HEAD:
            self._fail_over_framed()

    def _keep(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self.buffered += len(data)

    def _fail_over_long(self) -> None:
        self.fail(Unsure(f"the head of the upstream's answer exceeds {MAX_HEAD} bytes", "http_response_header_section_size"))

    def _fail_over_framed(self) -> None:
        reason = f"a trailer, or what is said of a chunk, in the upstream's answer exceeds {MAX_HEAD} bytes"
        self.fail(Unsure(reason, "http_response_trailer_section_size"))

    def _fail_invalid(self, reason: str) -> None:
        self.fail(Unsure(reason, "http_protocol_error"))

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
            return
        self._trailer_bytes += len(name) + len(value) + _SEPARATORS
        if self._trailer_bytes > MAX_HEAD:
            self._fail_over_framed()

    def on_headers_complete(self) -> None:
        """A head is whole: an interim one, the last of HTTP, or the one whose body follows."""
        if self.finished or self.error is not None:
            return  # what follows is no answer to this request
        status, version, fields = self._parser.get_status_code(), self._parser.get_http_version(), indexed(self._fields)
        if status < _FIRST_FINAL or self._head_bytes > MAX_HEAD:  # with less than that, the last head alone is not too long
            self._told_bytes += sum([len(name) + len(value) + _SEPARATORS for name, value in fields])
        if version not in _VERSIONS or not _CONTINUE <= status <= _LAST:
            self._fail_invalid(f"the upstream's answer is none of HTTP/1.1: its version is {version}, its status {status:03}")
        elif self._told_bytes > MAX_HEAD:
            self._fail_over_long()
        elif status == _SWITCHING_PROTOCOLS:
            self._switch(fields)
        elif status < _FIRST_FINAL:
            self._pass_over(status, fields)
        else:
            self._begin_body(status, fields)

    def _switch(self, fields: Indexed) -> None:
        """The upstream leaves HTTP, which it may do for a protocol that it was offered (RFC 9110, section 7.8)."""
        chosen = _protocols(field_values(fields, b"upgrade"))
        if not (self._parser.should_upgrade() and chosen and chosen <= _protocols([self.offered or b""])):
            self._fail_invalid("the upstream switched protocols unasked")
            return
        self.switched = self._until_close = True
        self.head = AnswerHead(_SWITCHING_PROTOCOLS, self._reason, fields, None)

    def _pass_over(self, status: int, fields: Indexed) -> None:
        """An interim answer: the final one follows (RFC 9110, section 15.2). 100 is between us and the upstream."""
        self._interim += 1
        if self._interim > MAX_INTERIM:
            self._fail_invalid(f"the upstream gave more than {MAX_INTERIM} interim answers")
        elif status != _CONTINUE and self.on_interim is not None:
            self.on_interim(AnswerHead(status, self._reason, fields, None))

    def _begin_body(self, status: int, fields: Indexed) -> None:
        """Find out how the body ends (RFC 9112, section 6.3)."""
        lengths = field_values(fields, b"content-length")
        codings = field_values(fields, b"transfer-encoding")
        bodiless = self._to_head or status in {204, 304}
        if codings and not bodiless and [coding.lower() for coding in codings] != [b"chunked"]:
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
            self._framing_bytes = 0
            self._chunks.append(data)
            self.buffered += len(data)

    def on_message_complete(self) -> None:
        """The message is whole; after an interim one, the next begins with an empty head."""
        if self.head is None:
            self._reason = b""
            self._fields.clear()
        elif not self.switched and self.error is None:
            self.finished = True


def _protocols(values: list[bytes]) -> set[bytes]:
    """The protocols that values of `Upgrade` name, in lower case: most are compared so, and none differ by case alone."""
    return {name.strip().lower() for value in values for name in value.split(b",")} - {b""}
