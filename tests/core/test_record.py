"""Records: the phases, what a record is found by, and the form in which an answer is kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Answer, Fields
from idemproxy.core.record import (
    AnswerFormatError,
    Identity,
    Phase,
    Record,
    StoredAnswer,
    head_bytes,
    pack_answer,
    unpack_answer,
)

ANSWER = Answer(
    201, b"Created", ((b"ETag", b'"1"'), (b"x-ODD", b""), (b"Link", b"<a>"), (b"link", b"<b>: c")), b"\x00\r\n\r\n\xff"
)
HEAD = b'Created\r\nETag: "1"\r\nx-ODD: \r\nLink: <a>\r\nlink: <b>: c\r\n'
PACKED = b"\x01201\x00\x00\x00\x36" + HEAD + b"\x00\r\n\r\n\xff"

# What may stand in a field's name (RFC 9110, section 5.6.2), and in its value or a reason phrase (sections 5.5 and 15).
NAMES = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=12).map(str.encode)
VALUES = st.binary(max_size=24).map(lambda value: value.translate(None, b"\r\n\x00").strip(b" \t"))
FIELDS: st.SearchStrategy[Fields] = st.lists(
    st.tuples(NAMES | st.sampled_from([b"Link", b"link", b"X-A"]), VALUES), max_size=8
).map(tuple)
ANSWERS = st.builds(Answer, st.integers(100, 599), VALUES, FIELDS, st.binary(max_size=200))


def fields_of(head: bytes) -> tuple[bytes, Fields]:
    """The reason phrase and the fields that a head says, read line by line."""
    reason, *lines, end = head.split(b"\r\n")
    assert b"" == end
    return reason, tuple((name, value) for name, _, value in (line.partition(b": ") for line in lines))


# The form of a kept answer


def test_version_1_written() -> None:
    """What is stored is version 1, as written here by hand: a later program must read what this one has stored."""
    assert PACKED == pack_answer(ANSWER)


def test_version_1_read() -> None:
    """A stored answer of version 1 gives the status, the head as it goes on the wire, and the body."""
    assert StoredAnswer(201, HEAD, b"\x00\r\n\r\n\xff") == unpack_answer(PACKED)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(answer=ANSWERS)
def test_round_trip(answer: Answer) -> None:
    """Any answer comes back byte for byte: reason, fields in order with case and repeats, and binary body."""
    stored = unpack_answer(pack_answer(answer))
    assert answer == Answer(stored.status, *fields_of(stored.head), stored.body)


@pytest.mark.parametrize(
    ("answer", "head"),
    [
        (Answer(204, b"", ()), b"\r\n"),
        (Answer(200, b"OK", ()), b"OK\r\n"),
        (Answer(200, b"OK", ((b"A", b"1"), (b"A", b"1"))), b"OK\r\nA: 1\r\nA: 1\r\n"),
    ],
    ids=["no reason", "no fields", "a field twice"],
)
def test_head(answer: Answer, head: bytes) -> None:
    """The head is the reason phrase and the field lines, each ended by CRLF, also where there is nothing to say."""
    assert (head, StoredAnswer(answer.status, head, b"")) == (
        head_bytes(answer.reason, answer.fields),
        unpack_answer(pack_answer(answer)),
    )


def is_read(packed: bytes) -> bool:
    """Whether these bytes are taken for a stored answer."""
    try:
        unpack_answer(packed)
    except AnswerFormatError:
        return False
    return True


def test_unknown_version() -> None:
    """Version 1 is read, and an answer of any other version is not."""
    assert [1] == [version for version in range(256) if is_read(bytes([version]) + PACKED[1:])]


def test_cut_short() -> None:
    """An answer that ends before its head does, wherever, is not read."""
    assert [] == [length for length in range(8 + len(HEAD)) if is_read(PACKED[:length])]


@pytest.mark.parametrize("status", [b"   ", b"2x1", b"-12", b"+12", b"2\xb21"])
def test_damaged_status(status: bytes) -> None:
    """An answer whose status is not three digits is not read."""
    assert not is_read(PACKED[:1] + status + PACKED[4:])


# The record


def test_phases() -> None:
    """A record is in one of the four phases of the contract's vocabulary, by these names."""
    assert {"in_flight", "completed", "unknown", "expired"} == {phase.value for phase in Phase}


def test_identity_is_one_line() -> None:
    """An identity is written as scope, upstream and key, in this order, without white space."""
    assert "shared/payments/0a1b" == str(Identity("shared", "payments", "0a1b"))


def test_each_part_makes_another_identity() -> None:
    """Scope, upstream and key: each of them alone makes another record."""
    identities = [Identity(scope, upstream, key) for scope in ("shared", "s") for upstream in ("a", "b") for key in ("1", "2")]
    assert (8, 8) == (len(set(identities)), len(set(map(str, identities))))


def test_an_answer_is_not_shown() -> None:
    """What an upstream answered stays out of the representations of a record and of an opened answer's body."""
    record = Record(Phase.COMPLETED, "v1:0", 1, "owner", "route", 1, 2, answer=b"card 4242")
    assert (False, False) == ("4242" in repr(record), "4242" in repr(StoredAnswer(200, b"OK\r\n", b"card 4242")))
