"""The other side of a connection by hand: a listening socket, a thread for each connection, and certificates of any kind."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias

import trustme

from tests.wire.bytestream import PATIENCE, ByteStream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Play: TypeAlias = Callable[[socket.socket], None]
"""What happens on a connection; when it returns, or the other side hangs up, the connection is closed."""


@cache
def authority() -> trustme.CA:
    """Whom the proxy is told to trust."""
    return trustme.CA()


@cache
def stranger() -> trustme.CA:
    """Whom nobody trusts."""
    return trustme.CA()


@cache
def context_of(*names: str, expired: bool = False) -> ssl.SSLContext:
    """A server with a certificate of the authority."""
    begin, end = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in ((2001, 2002) if expired else (2001, 2999)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*names, not_before=begin, not_after=end).configure_cert(context)
    return context


def write_pair(leaf: trustme.LeafCert, directory: Path, name: str) -> dict[str, str]:
    """Write a certificate and its key; the settings that name them."""
    certificate, key = directory / f"{name}-certificate.pem", directory / f"{name}-key.pem"
    certificate.write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return {"certificate_file": str(certificate), "key_file": str(key)}


class Peer:
    """Listens on a loopback port; each connection is played by a thread. `seen` is what the plays have noted, in order."""

    def __init__(self, play: Play) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        self.play = play
        self.seen: list[bytes] = []
        self._open: dict[socket.socket, threading.Thread] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no more, and end every connection."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock, thread in list(self._open.items()):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                sock.settimeout(PATIENCE)
                thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
                self._open[sock] = thread
                thread.start()

    def _run(self, sock: socket.socket) -> None:
        with suppress(OSError, EOFError):
            self.play(sock)
        with suppress(OSError):
            sock.close()


@contextmanager
def peers(**plays: Play) -> Iterator[dict[str, Peer]]:
    """Peers by name, closed with the context."""
    found = {name: Peer(play) for name, play in plays.items()}
    try:
        yield found
    finally:
        for peer in found.values():
            peer.close()


def over_tls(context: ssl.SSLContext, play: Callable[[ByteStream], None]) -> Play:
    """Speak TLS first. A socket that is taken over is closed by the play that takes it."""

    def take(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False) as secured:
            play(ByteStream(secured))

    return take


def answering(stream: ByteStream) -> None:
    """Answer every request."""
    while True:
        stream.message()
        stream.send(OK)


def connections_to(ports: set[int]) -> int:
    """How many sockets of this machine are connected to one of these loopback ports, and not given up by who connected."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(there.rpartition(":")[2], 16) in ports and state == "01" for _, _, there, state, *_ in lines)
