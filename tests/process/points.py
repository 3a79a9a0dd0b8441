"""Points of the journey at which a proxy can be held, from outside, so that it is killed there and nowhere else.

Of a store: before what it is asked for is written, and after, before the proxy hears of it. For SQLite that is its lock, held
by the test, and the proxy's event loop, stopped while the thread that writes goes on. For Redis it is a gate in front of it.
Of an upstream: before the first byte, by a listener whose queue is full. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from http.client import HTTPResponse
from pathlib import Path
from typing import Final, Protocol, Self

import pytest
import redis

from idemproxy.core.record import Identity
from idemproxy.store.redis_form import Keys
from tests.process.asking import LONGEST, Answer, eventually
from tests.process.gate import Gate
from tests.processes import Program

SEIZE: Final = 0x4206
INTERRUPT: Final = 0x4207
ALL_KINDS: Final = 0x40000000
"""`ptrace` and `waitpid` of Linux: stop one thread of a child, and learn that it has stopped."""

SYN_SENT: Final = "02"
"""A connection in /proc/net/tcp that has been asked for."""


def hashed(key: str) -> str:
    """The hash under which a key's record is known."""
    return sha256(key.encode()).hexdigest()


def unread(here: int, there: int) -> int:
    """How many bytes, sent from the loopback port `there` to `here`, lie in the kernel and were not read."""
    with Path("/proc/net/tcp").open() as table:
        for line in table:
            fields = line.split()
            if fields[1].endswith(f":{here:04X}") and fields[2].endswith(f":{there:04X}"):
                return int(fields[4].partition(":")[2], 16)
    return 0


def stop_event_loop(program: Program) -> None:
    """Stop the main thread of a proxy, which runs its event loop, and no other; only its end lets go of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (SEIZE, INTERRUPT):
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(program.process.pid), None, None) < 0:
            pytest.skip(f"this machine lets nobody stop a thread: {os.strerror(ctypes.get_errno())}")
    os.waitpid(program.process.pid, ALL_KINDS)


class Place(Protocol):
    """A store at which proxies can be held."""

    url: str
    """As the proxies that are held reach it."""
    aside: str
    """As others do, who are not."""

    def phase(self, key: str) -> str | None:
        """The phase that the store holds for a key, not aged; None without a record."""

    def stop_before(self, word: bytes, /) -> None:
        """From now on nothing is written: for Redis from the next command that holds `word`."""

    def until_asked(self, here: int, there: int, /) -> None:
        """Wait until the proxy has asked: it had to read what came to its port `here` from `there` to do so."""

    def write_unheard(self, proxy: Program, key: str, phase: str, /) -> None:
        """Let what was asked be written, so that the record of `key` comes into `phase`, and its proxy not hear of it."""

    def let_pass(self) -> None:
        """Let what was held back reach the store, and be answered."""

    def go_on(self) -> None:
        """Hold nobody any more; what was held back is lost."""


class SqlitePlace:
    """A SQLite file, which only other processes have open."""

    def __init__(self, file: Path) -> None:
        self.url = self.aside = f"sqlite:///{file}"
        self._file = file
        self._lock: sqlite3.Connection | None = None

    def phase(self, key: str) -> str | None:
        """As Place.phase."""
        if not self._file.exists():
            return None
        with closing(sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)) as connection:
            query = "SELECT phase FROM record WHERE key_hash = ?"
            row = connection.execute(query, [hashed(key)]).fetchone()
        return None if row is None else str(row[0])

    def stop_before(self, _word: bytes, /) -> None:
        """As Place.stop_before: whatever it is."""
        self._lock = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False, timeout=5)
        self._lock.execute("BEGIN IMMEDIATE")

    def until_asked(self, here: int, there: int, /) -> None:
        """As Place.until_asked."""
        eventually(lambda: not unread(here, there))

    def write_unheard(self, proxy: Program, key: str, phase: str, /) -> None:
        """As Place.write_unheard."""
        stop_event_loop(proxy)
        self.go_on()
        eventually(lambda: self.phase(key) == phase)

    def let_pass(self) -> None:
        """As Place.let_pass: whoever waits for the lock tries again by itself."""
        self.go_on()

    def go_on(self) -> None:
        """As Place.go_on."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


class RedisPlace:
    """A Redis server behind a gate."""

    def __init__(self, port: int, gate: Gate) -> None:
        self.url = f"redis://127.0.0.1:{gate.port}/0"
        self.aside = f"redis://127.0.0.1:{port}/0"
        self._gate = gate
        self._client = redis.Redis(port=port)

    def phase(self, key: str) -> str | None:
        """As Place.phase."""
        found = self._client.hget(Keys("idemproxy:").of(Identity("shared", "api", hashed(key)))[0].decode(), "phase")
        return found.decode() if isinstance(found, bytes) else None

    def stop_before(self, word: bytes, /) -> None:
        """As Place.stop_before."""
        self._gate.stop_at(word)

    def until_asked(self, _here: int, _there: int, /) -> None:
        """As Place.until_asked."""
        self._gate.until_kept()

    def write_unheard(self, _proxy: Program, key: str, phase: str, /) -> None:
        """As Place.write_unheard."""
        self._gate.pass_commands(keep_replies=True)
        self._gate.until_kept()
        assert self.phase(key) == phase

    def let_pass(self) -> None:
        """As Place.let_pass."""
        self._gate.pass_commands()

    def go_on(self) -> None:
        """As Place.go_on."""
        self._gate.reset()


class Asked:
    """A client that has sent its request and has read nothing, with little room for what comes."""

    def __init__(self, program: Program, request: bytes) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(LONGEST)
        self._socket.connect(("127.0.0.1", program.port))
        self._socket.sendall(request)
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def first_byte(self) -> bytes:
        """Wait for the first byte of the reply, and read no more."""
        return self._socket.recv(1)

    def rest(self) -> bytes:
        """What still comes, until the connection ends."""
        data = b""
        with suppress(ConnectionResetError):
            while piece := self._socket.recv(1 << 20):
                data += piece
        return data

    def answer(self) -> Answer:
        """The whole answer."""
        with HTTPResponse(self._socket, method="POST") as response:
            response.begin()
            return Answer(response.status, response.getheaders(), response.read())


class FullUpstream:
    """A listener whose queue has one place, which is taken: who connects is kept waiting, and asks again every other second."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=0)
        self._listening.settimeout(20)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._taken = socket.create_connection(("127.0.0.1", self.port))

    def until_wanted(self) -> None:
        """Wait until somebody asks to be connected."""
        eventually(self._is_wanted)

    def _is_wanted(self) -> bool:
        with Path("/proc/net/tcp").open() as table:
            fields = [line.split() for line in table]
        return any(each[2].endswith(f":{self.port:04X}") and each[3] == SYN_SENT for each in fields)

    def accept(self) -> socket.socket:
        """Make room; the connection of the one who waited, which the kernel makes, whether or not that process runs."""
        self._listening.accept()[0].close()
        self._taken.close()
        connection, _ = self._listening.accept()
        connection.settimeout(20)
        return connection

    def close(self) -> None:
        """Listen no more."""
        self._taken.close()
        self._listening.close()


@contextmanager
def full_upstream() -> Iterator[FullUpstream]:
    """An upstream that nobody can reach, and that refuses nobody."""
    upstream = FullUpstream()
    try:
        yield upstream
    finally:
        upstream.close()
