"""A raw client: it says exactly what it is told to, and reads answers as they stand."""

from __future__ import annotations

import json
import socket
from typing import Any, Self
from uuid import uuid4

from tests.wire.bytestream import PATIENCE, ByteStream, Message
from tests.wire.combination import client_context, current


def new_key() -> str:
    """A key that no other test has used."""
    return f"key-{uuid4().hex}"


def request(method: str, target: bytes | str, *lines: bytes | str, body: bytes | None = None, key: str | None = None) -> bytes:
    """A request with `lines` as its field lines, after Host and before the key and the length of the body, where it has them."""
    target = target.encode() if isinstance(target, str) else target
    fields = [line.encode() if isinstance(line, str) else line for line in lines]
    if not any(line.lower().startswith(b"host:") for line in fields):
        fields.insert(0, b"Host: proxy.example")
    if key is not None:
        fields.append(b"Idempotency-Key: " + key.encode())
    if body is not None:
        fields.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([b"%b %b HTTP/1.1" % (method.encode(), target), *fields, b"", body or b""])


def status(answer: Message) -> int:
    """The status code."""
    return int(answer.start.split(b" ")[1])


def problem(answer: Message) -> tuple[int, Any, Any, Any]:
    """What a problem document comes to: status, type, executed, retry."""
    assert [b"application/problem+json"] == answer.values("content-type"), answer
    document = json.loads(answer.body)
    assert status(answer) == document["status"]
    return status(answer), document["type"], document["executed"], document["retry"]


def outcome(answer: Message) -> str:
    """The token of `Idempotency-Status`; "" when there is none."""
    match answer.values("idempotency-status"):
        case []:
            return ""
        case [value]:
            return value.partition(b";")[0].decode()
        case values:
            raise AssertionError(values)


class Client(ByteStream):
    """A connection to the proxy; with TLS as the combination in use says, unless `tls` says otherwise."""

    def __init__(self, port: int, *, tls: bool | None = None) -> None:
        sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        if current().client_tls if tls is None else tls:
            sock = client_context().wrap_socket(sock, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        super().__init__(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, data: bytes) -> Message:
        """Send a request and take its answer."""
        self.send(data)
        return self.message(bodiless=data.startswith(b"HEAD "))

    def leave(self) -> None:
        """Say that nothing more comes, and wait until the proxy has hung up: from then on it knows that nobody waits."""
        self.finish()
        assert self.ended()
        self.close()


def ask(port: int, data: bytes) -> Message:
    """One request on a connection of its own."""
    with Client(port) as client:
        return client.ask(data)
