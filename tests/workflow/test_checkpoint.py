"""The checkpoint, put together from a journal and records that are given: outputs in every form, and what time has taken."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from dataclasses import replace

import orjson
import pytest

from idemproxy.core.journal import Entry, Memory, Note
from idemproxy.core.message import Answer
from idemproxy.core.record import Identity, Phase, Record, pack_answer
from idemproxy.workflow.checkpoint import History, checkpoint, output_of, standing

NOTE = Note(Identity("shared", "api", "hash"), "all", kept=100, step="1")
ENTRY = Entry(NOTE, at=1000)
RECORD = Record(
    phase=Phase.COMPLETED, fingerprint="v1:x", fence=7, owner="me", route="all", claimed_at=1000, lease_until=1010,
    settled_at=1005, expires_at=2000, forget_at=3000, status=201,
)  # fmt: skip
JSON = ((b"Content-Type", b"application/json"),)


def packed(body: bytes, *fields: tuple[bytes, bytes]) -> bytes:
    """An answer as stores keep it."""
    return pack_answer(Answer(201, b"Created", fields, body))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (packed(b'{"n": 1.10, "m": 123456789012345678901}', *JSON), (b'{"n": 1.10, "m": 123456789012345678901}', "json")),
        (packed(b" 1e400\r\n", *JSON), (b"1e400", "json")),
        (packed(b'{"a":1,"a":2}', (b"Content-Type", b"application/problem+json; charset=utf-8")), (b'{"a":1,"a":2}', "json")),
        (packed(b"{", *JSON), (b'"{"', "text")),
        (packed(b"NaN", *JSON), (b'"NaN"', "text")),
        (packed(b'"\xff"', *JSON), (b'"%b"' % base64.b64encode(b'"\xff"'), "base64")),
        (packed(b"{}", (b"Content-Type", b"text/plain")), (b'"{}"', "text")),
        (packed("é\n".encode()), (orjson.dumps("é\n"), "text")),
        (packed(b""), (b'""', "text")),
        (packed(b"\x00\xff"), (b'"AP8="', "base64")),
        (packed(gzip.compress(b"[1]"), *JSON, (b"Content-Encoding", b"gzip")), (b"[1]", "json")),
        (packed(zlib.compress(gzip.compress(b"[1]")), *JSON, (b"Content-Encoding", b"gzip, deflate")), (b"[1]", "json")),
        (packed(gzip.compress(b"a") + gzip.compress(b"b"), (b"Content-Encoding", b"x-gzip")), (b'"ab"', "text")),
        (packed(b"x", (b"Content-Encoding", b"x-own")), None),
        (packed(b"x", (b"Content-Encoding", b"gzip")), None),
        (packed(b"x" * 101), None),
        (packed(gzip.compress(b"x" * 101), (b"Content-Encoding", b"gzip")), None),
        (b"\x09what is this", None),
    ],
    ids=[
        "numbers",
        "huge",
        "twice",
        "broken",
        "nan",
        "not UTF-8",
        "other type",
        "text",
        "empty",
        "bytes",
        "gzip",
        "two codings",
        "two members",
        "unknown coding",
        "damaged",
        "long",
        "long inside",
        "unreadable",
    ],
)
def test_outputs(answer: bytes, expected: tuple[bytes, str] | None) -> None:
    """JSON stays as it is, number for number; other text is a string, the rest base64; what is too long is left out."""
    assert expected == output_of(answer, room=100)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"[" * 100 + b"]" * 100, "json"),
        (b"[" * 101 + b"]" * 101, "text"),
        (b'["\\"' + b"[" * 200 + b'"]', "json"),
        (b"[" + b"9" * 1000 + b"]", "json"),
        (b"[" + b"9" * 1001 + b"]", "text"),
        (b'["' + b"9" * 1001 + b'"]', "json"),
    ],
    ids=["levels", "too deep", "brackets", "digits", "too many digits", "digits of a text"],
)
def test_what_some_readers_do_not_take_is_told_as_text(body: bytes, encoding: str) -> None:
    """One such answer must not cost an agent the whole checkpoint."""
    found = output_of(packed(body, *JSON), room=10_000)

    assert encoding == (found and found[1])


def test_outputs_fill_the_room_that_there_is() -> None:
    """What does not fit is kept, and left out; a later one that fits is shown."""
    history = History(room=10)
    records = [replace(RECORD, answer=packed(body, *JSON)) for body in (b"[1,2,3]", b"[4,5]", b"[6]", b"7")]
    history.extend([ENTRY] * 4, records, now=1500)

    steps = json.loads(orjson.dumps(checkpoint("trip", history, None)))["step_history"]

    assert [([1, 2, 3], "json", True), (None, None, True), ([6], "json", True), (None, None, True)] == [
        (step["output"], step["output_encoding"], step["output_kept"]) for step in steps
    ]


def test_text_counts_as_it_is_written() -> None:
    """Its escapes make it longer than it was: here a character takes eight bytes."""
    history = History(room=15)
    history.extend([ENTRY, ENTRY], [replace(RECORD, answer=packed(b"\x00"))] * 2, now=1500)

    assert ["text", None] == [step["output_encoding"] for step in history.steps]


@pytest.mark.parametrize(
    ("record", "now", "expected"),
    [
        (None, 1099, ("FAILED", "absent", "no", "same_key", None)),
        (None, 1100, ("UNKNOWN", "absent", "unknown", "after_check", None)),
        (replace(RECORD, phase=Phase.EXPIRED), 2500, ("COMPLETED", "expired", "yes", "after_check", 201)),
        (replace(RECORD, phase=Phase.EXPIRED, status=402), 2500, ("FAILED", "expired", "yes", "after_check", 402)),
        (
            replace(RECORD, phase=Phase.UNKNOWN, status=502, answer=packed(b"1")),
            1500,
            ("UNKNOWN", "unknown", "unknown", "after_check", 502),
        ),
        (
            replace(RECORD, phase=Phase.IN_FLIGHT, status=None),
            1500,
            ("IN_PROGRESS", "in_flight", "in_progress", "same_key", None),
        ),
    ],
)
def test_steps_that_have_no_output(record: Record | None, now: int, expected: tuple[object, ...]) -> None:
    """Absence proves that nothing was done for as long as a record would be there; and days later `expired` is known."""
    history = History()
    history.extend([ENTRY], [record], now)

    [step] = history.steps
    names = ("status", "phase", "executed", "retry", "response_status")
    assert (*expected, None, None, False) == (
        *(step[name] for name in names),
        *(step[name] for name in ("output", "output_encoding", "output_kept")),
    )


def test_a_checkpoint_holds_the_memory_as_it_was_sent() -> None:
    """Byte for byte, whatever its numbers; and the ETag is that with which it is saved over."""
    page = orjson.dumps(checkpoint("trip", History(), Memory(b'{ "n": 1.0e500 }', 12, 0)))

    assert (
        b'{"workflow_id":"trip","current_step":null,"status":null,"agent_memory":{ "n": 1.0e500 },'
        b'"agent_memory_etag":"\\"12\\"","step_history":[]}'
    ) == page


def test_the_status_of_a_workflow() -> None:
    """What is unknown or under way comes before what came last, and the step is the last one that was begun."""
    history = History()
    notes = [Entry(replace(NOTE, step=step), 1000) for step in ("1", "2", "3")]
    history.extend(notes, [RECORD, replace(RECORD, phase=Phase.UNKNOWN), RECORD], now=1500)

    page = checkpoint("trip", history, None)

    assert ("3", "UNKNOWN") == (page["current_step"], page["status"])


def test_nothing_that_was_executed_is_to_be_sent_anew() -> None:
    """No record makes a caller use a new key, or send again what happened."""
    statuses = (None, 200, 301, 402, 500)
    told = {standing(replace(RECORD, phase=phase, status=status)) for phase in Phase for status in statuses}

    assert {("yes", "never"), ("yes", "after_check"), ("unknown", "after_check"), ("in_progress", "same_key")} == {
        (executed.value, retry.value) for executed, retry in told
    }
