"""A proxy on the way out, as `use-tls-and-egress-proxies.md` has one: it opens a tunnel for who knows its password."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Final

CREDENTIALS: Final = b64encode(b"ann:an example").decode()


class _Tunnels(ThreadingTCPServer):
    daemon_threads = True


class _Gate(StreamRequestHandler):
    """One connection: a CONNECT, and then bytes both ways."""

    rbufsize = 0  # what follows the head is the tunnel's

    def handle(self) -> None:
        """Read the request, and open a tunnel to where it says."""
        _, target, _ = self.rfile.readline().decode().split()
        fields = dict(line.split(": ", 1) for line in iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ""))
        if fields.get("Proxy-Authorization") != f"Basic {CREDENTIALS}":
            self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as upstream:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_carry, args=(upstream, self.connection), daemon=True)
            back.start()
            _carry(self.connection, upstream)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes, up to its end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def egress_proxy() -> Iterator[str]:
    """Its address."""
    with _Tunnels(("127.0.0.1", 0), _Gate) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()
