"""A client on one connection: it asks, reads all of the answer, asks again. It is in this process, on the load's core."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from statistics import median
from time import perf_counter
from uuid import uuid4

from bench.load import SILENCE, WrongAnswerError

_AT_LEAST = 5


def p50_ms(port: int, request: Callable[[bytes], bytes], seconds: float) -> float:
    """The median time from before a request is written until its answer is read, after a warm-up of a fifth of `seconds`.

    `request` makes one of a key. Raises WrongAnswerError for an answer that is not 200.
    """
    run = uuid4().hex.encode()
    with closing(socket.create_connection(("127.0.0.1", port), timeout=SILENCE)) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took: list[float] = []
        began, number = perf_counter(), 0
        while (now := perf_counter()) < began + seconds or len(took) < _AT_LEAST:
            asked = request(b"%b-%d" % (run, number))
            before = perf_counter()
            wire.sendall(asked)
            _read_answer(wire)
            if now > began + seconds / 5:
                took.append(perf_counter() - before)
            number += 1
    return median(took) * 1e3


def _read_answer(wire: socket.socket) -> None:
    """Read an answer with a Content-Length."""
    answer = b""
    while (head_end := answer.find(b"\r\n\r\n")) < 0 or len(answer) < head_end + 4 + _length(answer[: head_end + 2]):
        data = wire.recv(65_536)
        if not data:
            raise WrongAnswerError("the server closed a connection")
        answer += data
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise WrongAnswerError(answer.decode("utf-8", "replace"))


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0])


def post(path: bytes, key: bytes, content_type: bytes, body: bytes) -> bytes:
    """A write, as it is sent."""
    return b"POST %b HTTP/1.1\r\nHost: api.example\r\nContent-Type: %b\r\nIdempotency-Key: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        path,
        content_type,
        key,
        len(body),
        body,
    )
