"""An agent's memory: kept as it was sent, saved only over what its agent has seen, and only where it is JSON of a fair size."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.process.asking import Answer, problem
from tests.workflow.conftest import BOB, House

MIB = 1024 * 1024
CHANGED = problem(412, "memory-changed", "no", "after_check")
BAD = problem(400, "bad-request", "no", "new_key")
JSON = ("Content-Type", "application/json")


def tag(answer: Answer) -> str:
    """Its ETag."""
    return answer.field("ETag") or ""


@pytest.mark.parametrize(
    "memory",
    [
        b'{"at": "12", "seen": [1, 2]}',
        b" [12345678901234567890123, 1.10, 1e400, -0]\n",
        b"null",
        b'"\\ud800 \xc3\xa9"',
        b"[" * 100 + b"]" * 100,
    ],
)
@pytest.mark.parametrize("kind", [(), (JSON,), (("Content-Type", "Application/JSON; charset=utf-8"),)])
def test_what_is_saved_comes_back_byte_for_byte(house: House, memory: bytes, kind: tuple[tuple[str, str], ...]) -> None:
    """Whatever its numbers and its white space, under the ETag with which it was saved; and a first save makes a workflow."""
    saved = house.put(memory, *kind)
    loaded, page = house.get(f"workflows/{house.name}/memory"), house.get(f"workflows/{house.name}")

    assert (204, b"", "no-store", "idemproxy") == (
        saved.status,
        saved.body,
        saved.field("Cache-Control"),
        saved.field("Proxy-Status"),
    )
    assert (200, memory, "application/json", tag(saved)) == (
        loaded.status,
        loaded.body,
        loaded.field("Content-Type"),
        tag(loaded),
    )
    assert tag(saved).startswith('"')
    assert b'"agent_memory":%b,"agent_memory_etag":%b,' % (memory.strip(), json.dumps(tag(saved)).encode()) in page.body
    assert {"workflow_id": house.name, "current_step": None, "status": None, "step_history": []} == {
        name: value for name, value in page.document.items() if not name.startswith("agent_memory")
    }


def test_where_nothing_was_saved(house: House) -> None:
    """404, whether the workflow is known or not, and for a foreign scope as for an unknown workflow."""
    before = house.get(f"workflows/{house.name}/memory")
    house.step("1")
    after = house.get(f"workflows/{house.name}/memory")
    house.put(b"1")
    foreign = house.get(f"workflows/{house.name}/memory", BOB)

    assert [problem(404, "workflow-unknown", "unknown", "same_key")] * 3 == [each.problem for each in (before, after, foreign)]
    assert before.document["detail"] == foreign.document["detail"]


def test_a_save_over_another_version_is_refused(house: House) -> None:
    """412 with the ETag that there is, and nothing is changed; over that one it succeeds."""
    first = tag(house.put(b"1"))
    second = tag(house.put(b"2", ("If-Match", first)))
    late = house.put(b"3", ("If-Match", first))
    kept = house.get(f"workflows/{house.name}/memory").body
    third = house.put(b"3", ("If-Match", second))

    assert (CHANGED, second, b"2", 204) == (late.problem, tag(late), kept, third.status)
    assert 3 == len({first, second, tag(third)})


def test_a_save_that_is_sent_again_is_the_same_save(house: House) -> None:
    """A client that did not get its answer repeats itself, and is told the ETag that it missed."""
    first = tag(house.put(b"1", ("If-None-Match", "*")))
    second = tag(house.put(b"2", ("If-Match", first)))

    assert second == tag(house.put(b"2", ("If-Match", first)))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("If-Match", '"0"'), 412),
        (("If-Match", "{etag}"), 204),
        (("If-Match", "*"), 204),
        (("If-Match", 'W/"x", "other", {etag}'), 204),
        (("If-Match", "W/{etag}"), 412),
        (("If-Match", '"0{bare}"'), 412),
        (("If-Match", '""'), 412),
        (("If-None-Match", "*"), 412),
        (("If-Match", "{bare}"), 400),
        (("If-Match", "*, *"), 400),
        (("If-Match", '"a'), 400),
        (("If-None-Match", "{etag}"), 400),
    ],
)
def test_conditions_on_a_memory_that_is_there(house: House, condition: tuple[str, str], expected: int) -> None:
    """Strong tags match, `*` any of them; weak and foreign ones never; what is not understood is refused."""
    etag = tag(house.put(b"1"))
    name, value = condition

    found = house.put(b"2", (name, value.format(etag=etag, bare=etag.strip('"'))))

    assert (expected, b"2" if expected == 204 else b"1") == (found.status, house.get(f"workflows/{house.name}/memory").body)
    assert expected != 412 or etag == tag(found)


@pytest.mark.parametrize(
    ("condition", "expected"), [(("If-Match", "*"), 412), (("If-Match", '"1"'), 412), (("If-None-Match", "*"), 204)]
)
def test_conditions_on_a_memory_that_is_not_there(house: House, condition: tuple[str, str], expected: int) -> None:
    """There is nothing to match, and the refusal has no ETag."""
    found = house.put(b"2", condition)

    assert (expected, expected == 204) == (found.status, bool(tag(found)))


def test_opposite_conditions_are_refused(house: House) -> None:
    """If-Match and If-None-Match together say nothing that could be done."""
    assert BAD == house.put(b"1", ("If-Match", "*"), ("If-None-Match", "*")).problem


def test_of_saves_at_once_one_succeeds(house: House) -> None:
    """All have seen the same version; the others are told of it."""
    etag = tag(house.put(b"0"))
    with ThreadPoolExecutor() as threads:
        saves = list(threads.map(lambda number: house.put(b"%d" % number, ("If-Match", etag)), range(1, 9)))

    [won] = [save for save in saves if save.status == 204]
    assert [CHANGED] * 7 == [save.problem for save in saves if save is not won]
    assert (b"%d" % (saves.index(won) + 1), tag(won)) == (
        (loaded := house.get(f"workflows/{house.name}/memory")).body,
        tag(loaded),
    )


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_the_longest_memory(house: House, over: int, *, chunked: bool) -> None:
    """1 MiB to the byte; beyond it 413, and nothing is saved."""
    body = b'"' + b"x" * (MIB - 2 + over) + b'"'
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    found = house.send(framed, "Transfer-Encoding: chunked") if chunked else house.put(body)

    assert (413 if over else 204) == found.status
    assert not over or problem(413, "body-too-large", "no", "never") == found.problem
    assert (404 if over else 200) == house.get(f"workflows/{house.name}/memory").status


def test_a_memory_that_is_announced_too_long_is_refused_unread(house: House) -> None:
    """Its client learns it from the head, and sends nothing."""
    found = house.send(b"", "Expect: 100-continue", f"Content-Length: {MIB + 1}")

    assert (413, "close") == (found.status, found.field("Connection"))


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", ()),
        (b"{", ()),
        (b"{'a': 1}", ()),
        (b"NaN", ()),
        (b"\xff", ()),
        (b"\xef\xbb\xbf1", ()),
        (b'{"a": 1, "a": 2}', ()),
        (b"[" * 101 + b"]" * 101, ()),
        (b"a=1", (("Content-Type", "application/x-www-form-urlencoded"),)),
        (b"1", (("Content-Type", "text/plain"),)),
        (b"1", (JSON, JSON)),
        (b"1", (("Content-Encoding", "gzip"),)),
    ],
)
def test_what_is_no_memory(house: House, body: bytes, fields: tuple[tuple[str, str], ...]) -> None:
    """400 for what is not JSON in plain UTF-8 with one meaning, or says that it is something else; nothing is saved."""
    assert BAD == house.put(body, *fields).problem
    assert 404 == house.get(f"workflows/{house.name}/memory").status
