"""What a replay says of a stored answer that cannot be read."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from idemproxy.core.record import COMPRESSED, Phase, Record
from idemproxy.proxy.answers import replayed

COMPLETED = Record(Phase.COMPLETED, "v1:same", 7, "me", "all", 1_000_000, 2_000_000, settled_at=3_000_000, status=201)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (COMPRESSED + b"...", "a stored answer is compressed: it takes idemproxy[compression] to read it, or it is damaged"),
        (b"\xff201", "a stored answer has version b'\\xff'; this program reads version b'\\x01'"),
        (b"\x01201\x00\x00\x00\xffCreated", "a stored answer is cut short"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_logged(answer: bytes, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """One error tells the key's hash and why, and nothing of the answer; the caller hears that it happened, with its status."""
    reply = await replayed(replace(COMPLETED, answer=answer), "hash", ())

    told = [(line.levelno, line.getMessage()) for line in caplog.records]
    assert [(logging.ERROR, f"an answer was not replayed, key hash: {why}")] == told
    assert (409, "response-unavailable") == (reply.status, reply.slug)
    assert isinstance(reply.body, bytes)
    assert b"answered with status 201" in reply.body
