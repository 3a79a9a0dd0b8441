"""The bytes that every series has in common: what is asked, and what the upstream answers."""

from __future__ import annotations

from typing import Final

REQUEST_BYTES: Final = 300
ANSWER_BYTES: Final = 500


def _padded(start: bytes, size: int) -> bytes:
    """A JSON object of exactly `size` bytes that begins with `start` and is filled up by one string."""
    end = b'"}'
    return start + b"x" * (size - len(start) - len(end)) + end


REQUEST_BODY: Final = _padded(
    b'{"amount": 4200, "currency": "eur", "capture": true, "lines": [1, 2, 3], "note": "', REQUEST_BYTES
)
# Without white space: a server that parses what it stores and writes it anew then gives the same bytes.
ANSWER_BODY: Final = _padded(b'{"id":"ch_1","amount":4200,"currency":"eur","status":"succeeded","receipt":"', ANSWER_BYTES)
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (ANSWER_BYTES, ANSWER_BODY)

_FIELDS: Final = (
    b"Host: api.example\r\nUser-Agent: bench/1\r\nAccept: application/json\r\nAuthorization: Bearer 0123456789abcdef\r\n"
)
READ: Final = b"GET /charges/ch_1 HTTP/1.1\r\n%b\r\n" % _FIELDS
WRITE_BEFORE_KEY: Final = b"POST /charges HTTP/1.1\r\n%bContent-Type: application/json\r\nIdempotency-Key: " % _FIELDS
WRITE_AFTER_KEY: Final = b"\r\nContent-Length: %d\r\n\r\n%b" % (REQUEST_BYTES, REQUEST_BODY)


def write(key: bytes) -> bytes:
    """A POST with this key; servers without idempotency pass the key on or drop it."""
    return WRITE_BEFORE_KEY + key + WRITE_AFTER_KEY
