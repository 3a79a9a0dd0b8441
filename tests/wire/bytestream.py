"""HTTP/1.1 read from a socket with nothing interpreted but where a message ends: what the tests compare is what was there."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass, field

PATIENCE = 10.0
"""Seconds after which a test that waits for bytes has failed."""


@dataclass(frozen=True)
class Message:
    """A request or an answer as it was on the wire. `lines` are the field lines, `raw` is all of it, `trailers` without CRLF."""

    start: bytes
    lines: tuple[bytes, ...]
    body: bytes
    raw: bytes = field(repr=False)
    trailers: tuple[bytes, ...] = ()

    def values(self, name: str) -> list[bytes]:
        """The values of a field, in order."""
        found = [line.partition(b":") for line in self.lines]
        return [value.strip() for key, _, value in found if key.lower() == name.lower().encode()]

    def lines_without(self, *names: str) -> list[bytes]:
        """The field lines but those of some names, in order."""
        dropped = {name.lower().encode() for name in names}
        return [line for line in self.lines if line.partition(b":")[0].lower() not in dropped]


class ByteStream:
    """One side of a connection. `raw` is every byte that came; over TLS, of what was said within it.

    Over TLS an end in order is a goodbye of its own (close_notify, RFC 8446, section 6.1) and then FIN. One without the goodbye,
    which anybody on the way can bring about, is no better than a reset, and Python's OpenSSL does not tell them apart: reading
    raises ConnectionResetError for both. There is no half-closed connection: both event loops hang up at the other's goodbye.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each of our writes leaves by itself, when it is made
        self.raw = bytearray()
        self._at = 0

    def send(self, data: bytes) -> None:
        """Send it all."""
        self.sock.sendall(data)

    def finish(self) -> None:
        """Say that nothing more comes (FIN), and keep listening."""
        self._say_goodbye()
        with suppress(OSError):  # the other side has gone
            socket.socket.shutdown(self.sock, socket.SHUT_WR)  # the method of an SSLSocket would forget how to decipher

    def close(self) -> None:
        """Say goodbye (FIN), and hear no more."""
        self._say_goodbye()
        self.sock.close()

    def drop(self) -> None:
        """End the connection without a goodbye within TLS (FIN alone), as when the machine between both gives up."""
        self.sock.close()

    def reset(self) -> None:
        """Hang up as a crash does (RST)."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def cut(self) -> None:
        """End it from another thread: who reads or writes finds that it has ended."""
        with suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def _say_goodbye(self) -> None:
        if isinstance(self.sock, ssl.SSLSocket) and self.sock.fileno() >= 0:
            self.sock.settimeout(0)
            with suppress(OSError, ValueError):  # ValueError: both have said it already
                self.sock.unwrap()  # does not wait for the other side's
            self.sock.settimeout(PATIENCE)

    def ended(self) -> bool:
        """Wait for the other side's end; whether it came before any byte that has not been read."""
        try:
            return len(self.raw) == self._at and not self._receive()
        except ConnectionResetError:
            return True

    def wait_for_end(self) -> None:
        """Wait until the other side has hung up, reading what it still says."""
        while self._receive():
            pass

    def silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long. What TLS says for itself is nothing."""
        self.sock.settimeout(seconds)
        try:
            self._receive()
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(PATIENCE)
        return False

    def some(self) -> bytes:
        """What has come and was not read, waiting for some; b"" at the end."""
        if len(self.raw) == self._at:
            self._receive()
        return self.exactly(len(self.raw) - self._at)

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes. Raises EOFError."""
        while len(self.raw) - self._at < count:
            if not self._receive():
                raise EOFError(bytes(self.raw[self._at :]))
        self._at += count
        return bytes(self.raw[self._at - count : self._at])

    def until(self, mark: bytes) -> bytes:
        """The next bytes up to and with `mark`. Raises EOFError."""
        while (found := self.raw.find(mark, self._at)) < 0:
            if not self._receive():
                raise EOFError(bytes(self.raw[self._at :]))
        return self.exactly(found + len(mark) - self._at)

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        while self._receive():
            pass
        return self.exactly(len(self.raw) - self._at)

    def head(self) -> Message:
        """The next message up to its body. Raises EOFError."""
        raw = self.until(b"\r\n\r\n")
        start, *lines = raw[:-4].split(b"\r\n")
        return Message(start, tuple(lines), b"", raw)

    def message(self, *, bodiless: bool = False) -> Message:
        """The next whole message; `bodiless` when no body follows whatever the head says. Raises EOFError."""
        begun = self._at
        head = self.head()
        body = b""
        trailers: tuple[bytes, ...] = ()
        is_answer = head.start.startswith(b"HTTP/")
        if bodiless or (is_answer and head.start.split(b" ")[1] in {b"100", b"103", b"204", b"304"}):
            pass
        elif head.values("transfer-encoding"):
            body, trailers = self._chunks()
        elif lengths := head.values("content-length"):
            body = self.exactly(int(lengths[0]))
        elif is_answer:
            body = self.rest()
        return Message(head.start, head.lines, body, bytes(self.raw[begun : self._at]), trailers)

    def _chunks(self) -> tuple[bytes, tuple[bytes, ...]]:
        body = b""
        while size := int(self.until(b"\r\n").partition(b";")[0], 16):
            body += self.exactly(size)
            self.exactly(2)
        trailers = []
        while (line := self.until(b"\r\n")) != b"\r\n":
            trailers.append(line[:-2])
        return body, tuple(trailers)

    def _receive(self) -> int:
        try:
            data = self.sock.recv(1 << 18)
        except ssl.SSLZeroReturnError:  # the other side's goodbye, after ours
            return 0
        except ssl.SSLEOFError as exc:
            raise ConnectionResetError("FIN or RST, and no goodbye before") from exc
        self.raw += data
        return len(data)
