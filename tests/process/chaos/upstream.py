"""The upstream of the fault suite, a process of its own: `python -m tests.process.chaos.upstream --port N --ledger FILE`.

    POST /...                   one effect each time, under the key in `X-Operation`; suffers the fault in `Chaos-Fault`
    GET  /.../effects/{key}     {"effects": [...]}: what the key's effects have made

An effect is in the file before its answer leaves. What goes wrong with a request, as `Chaos-Fault` says it:

    reset-before  reset-after   the connection is reset, instead of the effect or of the answer
    lost-after    cut-after     it is closed without an answer, or after half of it
    hang-after                  nothing more is said
    slow-before=S slow-after=S  so many seconds pass first; the effect happens whoever waits for it
    500-before    502-after...  another answer, without or with the effect; 503 says when to come again
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final, cast

import httptools

from tests.process.chaos.ledger import ARRIVED, EFFECT, Entry, read_entries, resource

_RESET: Final = struct.pack("ii", 1, 0)


class Books:
    """How many effects each key has had, and the file that knows."""

    def __init__(self, path: Path) -> None:
        self.effects: Counter[str] = Counter()
        if path.exists():
            self.effects.update(entry.key for entry in read_entries(path) if entry.what == EFFECT)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, key: str, attempt: str, what: str) -> None:
        """Write something down; it outlives this process from here on."""
        if what == EFFECT:
            self.effects[key] += 1
        os.write(self._file, Entry(time.monotonic(), key, attempt, what).line())


class Conversation(asyncio.Protocol):
    """One connection, on which requests come one after the other."""

    def __init__(self, books: Books, working: set[asyncio.Task[None]]) -> None:
        self._books = books
        self._working = working
        self._transport = cast("asyncio.Transport", None)
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._fields: dict[bytes, str] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._parser.feed_data(data)

    def on_url(self, target: bytes) -> None:
        """The request target, perhaps in pieces."""
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the request."""
        self._fields[name.lower()] = value.decode("ascii")

    def on_message_complete(self) -> None:
        """A request is whole: act on it, and go on with it whoever hangs up."""
        target, fields, method = self._target.decode("ascii"), self._fields, self._parser.get_method()
        self._begin()
        if method == b"GET":
            key = target.rpartition("/")[2]
            made = [resource(key, number + 1) for number in range(self._books.effects[key])]
            # Not quite as it was answered at first: who was told one must not be told the other later.
            self._answer(200, b'{"effects":[%b]}' % b",".join(b'{"found":true,%b' % each[1:] for each in made))
            return
        task = asyncio.get_running_loop().create_task(self._act(fields))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _act(self, fields: dict[bytes, str]) -> None:
        key, attempt = fields[b"x-operation"], fields[b"chaos-attempt"]
        fault, _, seconds = fields.get(b"chaos-fault", "").partition("=")
        what, _, when = fault.partition("-")
        self._books.note(key, attempt, f"{ARRIVED} {fault}".strip())
        if when == "before" and await self._suffers(what, seconds, b""):
            return
        self._books.note(key, attempt, EFFECT)
        body = resource(key, self._books.effects[key])
        if when == "after" and await self._suffers(what, seconds, body):
            return
        self._answer(201, body, b"Location: /effects/%b\r\nX-Attempt: %b\r\n" % (key.encode(), attempt.encode()))

    async def _suffers(self, what: str, seconds: str, body: bytes) -> bool:
        """Let a fault happen; whether it takes the place of what was to come."""
        match what:
            case "slow":
                await asyncio.sleep(float(seconds))
                return False
            case "hang":
                pass
            case "reset":
                self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._transport.abort()
            case "lost":
                self._transport.close()
            case "cut":
                self._write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[: len(body) // 2]))
                self._transport.close()
            case status:
                self._answer(int(status), b'{"error":"failed as asked"}')
        return True

    def _answer(self, status: int, body: bytes, fields: bytes = b"") -> None:
        if status == 503:
            fields = b"Retry-After: 1\r\n"
        head = b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n" % (status, fields, len(body))
        self._write(head + body)

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


async def serve(port: int, ledger: Path) -> None:
    """Serve until killed."""
    books = Books(ledger)
    working: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Conversation(books, working), "127.0.0.1", port, backlog=1024)
    sys.stderr.write(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stderr.flush()
    await server.serve_forever()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.chaos.upstream")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.ledger))


if __name__ == "__main__":
    main()
