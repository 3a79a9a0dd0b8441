"""A scripted upstream: it records every byte that it gets, and plays what a test tells it to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from tests.wire.bytestream import PATIENCE, ByteStream, Message
from tests.wire.combination import current, server_context


class Line(ByteStream):
    """A connection as the upstream sees it."""

    def __init__(self, sock: socket.socket, upstream: Upstream) -> None:
        super().__init__(sock)
        self._upstream = upstream

    def request(self) -> Message:
        """The next whole request, recorded. Raises EOFError when there is none."""
        return self._upstream.record(self.message())

    def request_head(self) -> Message:
        """The next request up to its body, recorded. Raises EOFError when there is none."""
        return self._upstream.record(self.head())


Play: TypeAlias = Callable[[Line], None]
"""What happens on a connection; when it returns, or the proxy hangs up, the connection is closed."""


def answers(*answer: bytes) -> Play:
    """Answer each request of a connection with the next of `answer`, and with the last one from then on."""

    def play(line: Line) -> None:
        left = list(answer)
        while True:
            line.request()
            line.send(left.pop(0) if len(left) > 1 else left[0])

    return play


def nothing(line: Line) -> None:
    """Accept, and do not even read."""
    line.wait_for_end()


class Upstream:
    """Listens on a loopback port; each connection is played by a thread. With TLS as the combination in use says."""

    def __init__(self, port: int = 0) -> None:
        self._combination = current()
        self._listening = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.port: int = self._listening.getsockname()[1]
        self._play: Play = nothing
        self._changed = threading.Condition()
        self._open: dict[Line, threading.Thread] = {}
        self.requests: list[Message] = []
        """What arrived since `plays` was last told, in order."""
        self.lines: list[Line] = []
        """The connections since then, in order."""
        self.errors: list[BaseException] = []
        """What went wrong in a play, other than that the proxy hung up."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self._combination.scheme}://127.0.0.1:{self.port}"

    def plays(self, play: Play) -> None:
        """From now on, on new connections; those that are open are ended, and what was recorded is forgotten."""
        assert self._combination == current(), "a fixture that makes an upstream must itself ask for `combination`"
        self.hang_up()
        with self._changed:
            self._play = play
            self.requests.clear()
            self.lines.clear()

    def hang_up(self) -> None:
        """End every connection, and wait until its play is over."""
        with self._changed:
            playing = dict(self._open)
        for line, thread in playing.items():
            line.cut()
            thread.join(PATIENCE)
        with self._changed:
            found, self.errors = self.errors, []
        if found:
            raise found[0]

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.hang_up()

    def record(self, message: Message) -> Message:
        """Note what arrived."""
        with self._changed:
            self.requests.append(message)
            self._changed.notify_all()
        return message

    def wait_for_requests(self, count: int) -> list[Message]:
        """Those that have arrived, when there are `count`."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, PATIENCE), f"{len(self.requests)} of {count} came"
            return list(self.requests)

    def wait_for_lines(self, count: int) -> list[Line]:
        """The connections, when there are `count`."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.lines) >= count, PATIENCE), f"{len(self.lines)} of {count} came"
            return list(self.lines)

    def wait_for_end_of(self, line: Line) -> None:
        """Wait until a connection's play is over, as it is when the proxy has hung up."""
        with self._changed:
            assert self._changed.wait_for(lambda: line not in self._open, PATIENCE), "the connection is still open"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            if self._combination.upstream_tls:
                sock = server_context().wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
                )
            with self._changed:
                line = Line(sock, self)
                thread = threading.Thread(target=self._run, args=(line, self._play), daemon=True)
                self._open[line] = thread
                self.lines.append(line)
                self._changed.notify_all()
                thread.start()

    def _run(self, line: Line, play: Play) -> None:
        try:
            if isinstance(line.sock, ssl.SSLSocket):
                line.sock.do_handshake()
            play(line)
        except (EOFError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass
        except BaseException as exc:  # noqa: BLE001 - told to the test by hang_up
            if line.sock.fileno() >= 0:
                self.errors.append(exc)
        finally:
            line.close()
            with self._changed:
                self._open.pop(line, None)
                self._changed.notify_all()
