"""A relay in front of a Redis server that stops at a command: before the server has it, then before its client hears of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

LONGEST: Final = 20.0
"""Seconds after which a test that waits for a command or a reply has failed."""


class Passage:
    """One connection through the gate, and what came from either side and was not passed on."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.commands = b""
        self.replies = b""
        self.keeps_commands = False
        self.keeps_replies = False

    def close(self) -> None:
        """End both sides; what is held is lost."""
        for side in (self.client, self.server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Gate:
    """Carries bytes both ways, until a command holds the word of `stop_at`: then that connection stops."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        self._changed = threading.Condition()
        self._passages: list[Passage] = []
        self._word: bytes | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def stop_at(self, word: bytes) -> None:
        """Keep back the next command that holds `word`, and all behind it."""
        with self._changed:
            self._word = word

    def until_kept(self) -> None:
        """Wait until a command, or its reply, is kept back."""
        with self._changed:
            kept = self._changed.wait_for(lambda: any(each.commands or each.replies for each in self._passages), LONGEST)
            assert kept, "nothing has come to be kept back"

    def pass_commands(self, *, keep_replies: bool = False) -> None:
        """Let the commands that are kept back reach the server, and, with `keep_replies`, none of its replies come back."""
        with self._changed:
            self._word = None
            for passage in [each for each in self._passages if each.keeps_commands]:
                passage.keeps_commands, passage.keeps_replies = False, keep_replies
                kept, passage.commands = passage.commands, b""
                passage.server.sendall(kept)

    def reset(self) -> None:
        """Stop at nothing any more; what is kept back is lost, with its connection."""
        with self._changed:
            self._word = None
            for passage in [each for each in self._passages if each.keeps_commands or each.keeps_replies]:
                passage.close()

    def close(self) -> None:
        """Carry nothing any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._changed:
            for passage in self._passages:
                passage.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                client.close()
                continue
            passage = Passage(client, server)
            with self._changed:
                self._passages.append(passage)
            for carry in (self._forth, self._back):
                threading.Thread(target=self._carry, args=(carry, passage), daemon=True).start()

    def _forth(self, passage: Passage) -> bool:
        data = passage.client.recv(1 << 20)
        with self._changed:
            if self._word is not None and self._word in data:
                passage.keeps_commands = True
            if data and passage.keeps_commands:
                passage.commands += data
                self._changed.notify_all()
            else:
                passage.server.sendall(data)
        return bool(data)

    def _back(self, passage: Passage) -> bool:
        data = passage.server.recv(1 << 20)
        with self._changed:
            if data and passage.keeps_replies:
                passage.replies += data
                self._changed.notify_all()
            else:
                passage.client.sendall(data)
        return bool(data)

    def _carry(self, carry: Callable[[Passage], bool], passage: Passage) -> None:
        with suppress(OSError):
            while carry(passage):
                pass
        with self._changed:
            passage.close()
            if passage in self._passages:
                self._passages.remove(passage)


@contextmanager
def gate(target_port: int) -> Iterator[Gate]:
    """A gate to a loopback port, listening on a port of its own."""
    between = Gate(target_port)
    try:
        yield between
    finally:
        between.close()
