"""A client on one connection: writes the bytes that it is given, and reads answers."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from bench.soak.upstream import PIECE, reset
from bench.wire import REQUEST_BODY

LONGEST: Final = 30.0
"""Seconds that an answer may take."""

Farewell: TypeAlias = Literal["close", "half", "reset"]
"""How a client leaves: by closing, by closing its own side first, by a RST."""


class WrongAnswerError(Exception):
    """An answer that should not have been given, or none where one was due."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, with the size of its body, and its beginning for when it is not the right one."""

    status: int
    fields: dict[bytes, bytes]
    size: int
    beginning: bytes

    @property
    def told(self) -> str:
        """The first word of Idempotency-Status."""
        return self.fields.get(b"idempotency-status", b"").partition(b";")[0].decode()

    def must_be(self, *statuses: int, told: str | None = None, size: int | None = None) -> None:
        """Raise WrongAnswerError unless the answer is one of those."""
        if self.status not in statuses or told not in {None, self.told} or size not in {None, self.size}:
            text = f"{self.status} {self.told or '-'}, {self.size} bytes: {self.beginning!r}"
            raise WrongAnswerError(f"{text}; due were {statuses}, {told}, {size} bytes")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the proxy listens, and how it is spoken to."""

    port: int
    tls: ssl.SSLContext | None


class Wire:
    """One connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: Address) -> Wire:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", address.port, ssl=address.tls, limit=2**20))

    async def send(self, data: bytes) -> None:
        """Write, at the pace of the other side."""
        for at in range(0, len(data), len(PIECE)):
            self.writer.write(data[at : at + len(PIECE)])
            await self.writer.drain()

    async def head(self) -> Answer:
        """The next head, interim ones included."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = head[:-4].split(b"\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        return Answer(int(status.split(b" ")[1]), fields, 0, head[:300])

    async def answer(self) -> Answer:
        """The next final answer, whole."""
        found = await self.head()
        while found.status == 100:
            found = await self.head()
        size, beginning = 0, b""
        async for piece in self._body(found):
            size += len(piece)
            beginning = beginning or piece[:300]
        return Answer(found.status, found.fields, size, beginning)

    async def _body(self, head: Answer) -> AsyncIterator[bytes]:
        if head.fields.get(b"transfer-encoding") == b"chunked":
            while size := int(await self.reader.readline(), 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
            return
        left = int(head.fields.get(b"content-length", 0))
        while left:
            piece = await self.reader.readexactly(min(left, len(PIECE)))
            left -= len(piece)
            yield piece

    async def ask(self, data: bytes) -> Answer:
        """Write a request, and read its answer."""
        await self.send(data)
        return await self.answer()

    async def leave(self, how: Farewell) -> None:
        """End the connection in this way."""
        if how == "reset":
            reset(self.writer)
            return
        if how == "half" and self.writer.can_write_eof():
            with suppress(OSError):
                self.writer.write_eof()
                while await self.reader.read(len(PIECE)):
                    pass
        self.writer.close()


@asynccontextmanager
async def fresh(address: Address, how: Farewell = "close") -> AsyncIterator[Wire]:
    """A connection of one's own, left in this way."""
    wire = await Wire.open(address)
    try:
        yield wire
    finally:
        await wire.leave(how)


def new_key() -> str:
    """A key that nobody has used."""
    return f"soak-{uuid4()}"


def head_bytes(method: str, target: str, *lines: str, key: str | None = None, host: str = "api.test") -> bytes:
    """The head of a request."""
    keyed = () if key is None else (f"Idempotency-Key: {key}",)
    return "\r\n".join((f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, *keyed, "", "")).encode("latin-1")


def write(key: str | None, target: str = "/api/charges", body: bytes = REQUEST_BODY, host: str = "api.test") -> bytes:
    """A POST of JSON."""
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return head_bytes("POST", target, *lines, key=key, host=host) + body


def read(target: str = "/api/charges/1") -> bytes:
    """A GET."""
    return head_bytes("GET", target)
