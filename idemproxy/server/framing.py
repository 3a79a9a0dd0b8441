"""Where each request of a connection begins and ends, and what is refused before anyone reads it.

llhttp reads the requests; this stands in front of it, and gives it one head, or one body, at a time. There are three reasons:
what llhttp (or aiohttp around it) lets through and we do not, limits that it does not have, and two faults of aiohttp 3.14 by
which requests run into each other: it loses what follows in the same packet as a request with `Upgrade`, and takes the last
trailer field of a body for the first field of the next request. So trailers end here, as RFC 9110, section 6.5.1, allows.
Sources: RFC 9112, sections 2.2, 3, 5 and 7.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from idemproxy.core.problem import Problem, Slug, problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Split: TypeAlias = tuple[bytes, bytes]

_KIB: Final = 1024
_END: Final = b"\r\n\r\n"
_LINES_AT_ONCE: Final = 1024
"""Chunks in one step: aiohttp stops reading when it has four times as many, and is to be asked whether it has."""

_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) [!-~]+ HTTP/1\.([01])")
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t -~]*)?\r\n")
_TRAILER: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~]*\r\n")
_TRANSFER_ENCODING: Final = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client may send, in bytes, and how long that may take, in seconds."""

    line: int = 16 * _KIB
    """A request line, or the line that begins a chunk."""
    field: int = 32 * _KIB
    """One field line, name and value."""
    fields: int = 200
    """Field lines of a head, and the same again of a trailer."""
    head: int = 256 * _KIB
    """All of a head."""
    head_seconds: float = 30.0
    """From the beginning of a connection, or from the first byte of a later request, until that request's head is whole."""
    idle_seconds: float = 620.0
    """Between two requests: longer than any load balancer keeps a connection, so that it is never we who hang up on one."""
    linger_seconds: float = 10.0
    """How long a client that is still sending is listened to after its request was refused, so that it finds the answer."""
    min_rate: int = 500
    """Bytes of a body in a second, on average and beyond the patience that silence has."""


UNREADABLE: Final = problem(Slug.BAD_REQUEST, "The request is not valid HTTP/1.1, so nothing was done with it.")
_NOT_ASCII: Final = problem(
    Slug.BAD_REQUEST, "The request's line holds bytes that are not ASCII, so nothing was done with it: percent-encode them."
)
_CHUNKED_1_0: Final = problem(
    Slug.BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding, so nothing was done with the request: use HTTP/1.1."
)
_CONNECT: Final = problem(Slug.BAD_REQUEST, "This is no proxy for CONNECT: send a path, as in `POST /charges`.", status=405)


class UnreadableError(Exception):
    """A request that is not read on, and why; nor is anything that follows on its connection."""

    def __init__(self, found: Problem) -> None:
        super().__init__(found.detail)
        self.problem = found


def over(what: str, limit: int, status: int = 431) -> Problem:
    """The problem of what is longer than it may be."""
    return problem(Slug.BAD_REQUEST, f"{what} {limit} bytes, so nothing was done with the request.", status=status)


def fault_of(head: bytes, limits: ClientLimits) -> Problem | None:
    """What is wrong with a whole head, beyond what llhttp finds: limits, spaces in the first line, versions, characters."""
    line, _, fields = head.partition(b"\r\n")
    if len(line) > limits.line:
        return over("The request line exceeds", limits.line, 414)
    if len(head) > limits.head:
        return over("The request's head exceeds", limits.head)
    if len(fields) > limits.field and max(map(len, fields.split(b"\r\n"))) > limits.field:
        return over("A field of the request exceeds", limits.field)
    if fields.count(b"\r\n") - 1 > limits.fields:
        detail = f"The request has more than {limits.fields} fields, so nothing was done with it."
        return problem(Slug.BAD_REQUEST, detail, status=431)
    if not line.isascii():
        return _NOT_ASCII
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        return UNREADABLE
    if found[1] == b"CONNECT":
        return _CONNECT
    if found[2] == b"0" and _TRANSFER_ENCODING.search(fields):
        return _CHUNKED_1_0  # RFC 9112, section 6.1: its framing is faulty
    return None


class Framing:
    """Splits what comes on a connection, in the order in which it comes, into what llhttp may have at once."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._state: Callable[[Framing, bytes], Split] = Framing._in_head  # no bound method: that would be a cycle
        self._head = bytearray()
        self._line = bytearray()
        self._left = 0
        self._trailers = 0
        self.head_ended = False
        """Whether the last `split` ended a head: then `sized` or `chunked` is due, if the request has a body."""
        self.between = True
        """Whether the last request is whole."""

    @property
    def head_begun(self) -> bool:
        """Whether part of a head is here, and not all of it."""
        return bool(self._head)

    def sized(self, length: int) -> None:
        """So many bytes of body follow."""
        self._left = length
        self._state = Framing._in_sized_body
        self.between = False

    def chunked(self) -> None:
        """A body in chunks follows."""
        self._left = 0
        self._trailers = 0
        self._state = Framing._in_chunks
        self.between = False

    def _end_of_body(self) -> None:
        self._state = Framing._in_head
        self.between = True

    def split(self, data: bytes) -> Split:
        """What may be read now, up to the end of a head or of a body, and what comes behind that. Raises UnreadableError."""
        self.head_ended = False
        return self._state(self, data)

    def _in_head(self, data: bytes) -> Split:
        if not self._head:
            data = data.lstrip(b"\r\n")  # empty lines in front of a request are nothing (RFC 9112, section 2.2)
            if (found := data.find(_END)) >= 0:  # it is all here, as is usual
                head = data[: found + len(_END)]
                return self._end_of_head(head, head, data[len(head) :])
        last = bytes(self._head[1 - len(_END) :])
        found = (last + data).find(_END)
        if found < 0:
            self._keep(data)
            return data, b""
        end = found + len(_END) - len(last)
        self._head += data[:end]
        return self._end_of_head(bytes(self._head), data[:end], data[end:])

    def _keep(self, data: bytes) -> None:
        """Keep part of a head, as long as it may still become one."""
        limits = self._limits
        self._head += data
        if len(self._head) > limits.line and self._head.find(b"\r\n", 0, limits.line + 2) < 0:
            raise UnreadableError(over("The request line exceeds", limits.line, 414))
        if len(self._head) > limits.head:
            raise UnreadableError(over("The request's head exceeds", limits.head))

    def _end_of_head(self, head: bytes, part: bytes, rest: bytes) -> Split:
        self._head.clear()
        if (fault := fault_of(head, self._limits)) is not None:
            raise UnreadableError(fault)
        self.head_ended = True
        return part, rest

    def _in_sized_body(self, data: bytes) -> Split:
        part, rest = data[: self._left], data[self._left :]
        self._left -= len(part)
        if not self._left:
            self._end_of_body()
        return part, rest

    def _in_chunks(self, data: bytes) -> Split:
        at = 0
        lines = 0
        while at < len(data) and lines < _LINES_AT_ONCE:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            else:
                lines += 1
                size, at = self._chunk_size(data, at)
                if size is None:
                    break
                if not size:
                    self._state = Framing._in_trailers
                    break
                self._left = size + len(b"\r\n")
        return data[:at], data[at:]

    def _chunk_size(self, data: bytes, at: int) -> tuple[int | None, int]:
        """The size in the line at `at`, once that is whole, and where the chunk begins."""
        found = None if self._line else _CHUNK_LINE.match(data, at, at + self._limits.line)
        if found is None:
            line, end = self._next_line(data, at)
            if line is None:
                return None, end
            found = _CHUNK_LINE.fullmatch(line)
            if found is None:
                raise UnreadableError(UNREADABLE)
        else:
            end = found.end()
        return int(found[1], 16), end

    def _in_trailers(self, data: bytes) -> Split:
        at = 0
        while at < len(data):
            line, at = self._next_line(data, at)
            if line == b"\r\n":
                self._end_of_body()
                return line, data[at:]
            if line is not None:
                self._trailers += 1
                if _TRAILER.fullmatch(line) is None:
                    raise UnreadableError(UNREADABLE)
                if self._trailers > self._limits.fields:
                    raise UnreadableError(UNREADABLE)
        return b"", b""

    def _next_line(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """The line that goes on at `at`, once it is whole, and where the next one begins."""
        end = data.find(b"\n", at) + 1 or len(data)
        self._line += data[at:end]
        if len(self._line) > self._limits.line:
            raise UnreadableError(over("A line in the request's body exceeds", self._limits.line, 400))
        if not self._line.endswith(b"\n"):
            return None, end
        line = bytes(self._line)
        self._line.clear()
        return line, end
