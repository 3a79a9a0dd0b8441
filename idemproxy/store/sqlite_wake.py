"""Waking between the processes of one host: a datagram on loopback says which record was settled.

A datagram may be lost, forged or meant for a process that is gone: all that follows is that a waiter looks too late or once
too often, so nothing here is confirmed or trusted.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from idemproxy.core.record import Identity
from idemproxy.store.base import Wake
from idemproxy.store.base_wake import LocalWakes

_LOOPBACK: Final = "127.0.0.1"
_LONGEST: Final = 2048


class ProcessWakes:
    """The waiters of this process, and its address for the others; the socket is opened when it is first needed."""

    def __init__(self) -> None:
        self._local = LocalWakes()
        self._socket: socket.socket | None = None

    @contextmanager
    def watch(self, identity: Identity) -> Iterator[Wake]:
        """As LocalWakes.watch, and for what other processes tell."""
        self._opened()
        with self._local.watch(identity) as wake:
            yield wake

    def port(self) -> int | None:
        """Where this process hears of settlements; None when it can have no socket, and then its waiters are only late."""
        opened = self._opened()
        return None if opened is None else int(opened.getsockname()[1])

    def settled(self, identity: Identity, ports: Iterable[int]) -> None:
        """Wake who waits for `identity` here, and tell the processes at `ports`."""
        self._local.wake(identity)
        for port in ports:
            opened = self._opened()
            if opened is not None and port != self.port():
                with suppress(OSError):  # a full buffer, or the process is gone: it, too, is only late
                    opened.sendto(str(identity).encode(), (_LOOPBACK, port))

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket | None:
        if self._socket is None:
            with suppress(OSError):
                opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                opened.settimeout(0)
                opened.bind((_LOOPBACK, 0))
                asyncio.get_running_loop().add_reader(opened, self._received, opened)
                self._socket = opened
        return self._socket

    def _received(self, opened: socket.socket) -> None:
        with suppress(OSError):
            while True:
                parts = opened.recv(_LONGEST).decode(errors="replace").split("/")
                if len(parts) == 3:
                    self._local.wake(Identity(*parts))
