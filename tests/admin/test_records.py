"""The records over HTTP: what is shown, what may be done, and what every refusal says."""

from __future__ import annotations

import base64
import io
import json
import logging
from dataclasses import dataclass
from typing import Any, Final

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, Request
from pytest_aiohttp.plugin import AiohttpClient

from idemproxy.core.record import MICROSECONDS, Phase, Source, unpack_answer
from idemproxy.core.transition import Acted
from idemproxy.store.base import Page, StoreUnavailableError
from idemproxy.store.memory import MemoryStore
from tests.admin.desk import NOON, Desk, identity

ME: Final = identity("a1")
AT: Final = "/records/shared/payments/a1"
DECIDED: Final = {"who": "ann", "why": "seen in the ledger"}
COMPLETED: Final = {**DECIDED, "as": "completed", "status": 201}
NOT_EXECUTED: Final = {**DECIDED, "as": "not_executed"}


@dataclass
class Asked:
    """A desk, and questions to it: status and document of each answer."""

    desk: Desk
    client: TestClient[Request, Application]

    async def get(self, path: str) -> tuple[int, Any]:
        """One GET."""
        async with self.client.get(path) as response:
            return response.status, await response.json(content_type=None)

    async def post(self, path: str, document: object) -> tuple[int, Any]:
        """One POST of JSON."""
        content, headers = io.BytesIO(json.dumps(document).encode()), {"Content-Type": "application/json"}
        async with self.client.post(path, data=content, headers=headers) as response:
            return response.status, await response.json(content_type=None)


@pytest.fixture(name="asked")
async def fixture_asked(aiohttp_client: AiohttpClient) -> Asked:
    """An empty store behind a listener."""
    desk = Desk()
    return Asked(desk, await aiohttp_client(desk.app()))


def short(answer: tuple[int, Any]) -> tuple[int, str, str, str]:
    """A problem document in short: status, type, executed, retry."""
    status, document = answer
    return status, document["type"], document["executed"], document["retry"]


# What is shown


async def test_an_unknown_record_is_listed_with_all_that_is_known(asked: Asked) -> None:
    """A listed record has its id, its phase, the upstream's status, its fence, and its times in UTC; never its answer."""
    fence = await asked.desk.unknown(ME)

    expected = {
        "id": "shared/payments/a1",
        "scope": "shared",
        "upstream": "payments",
        "key": "a1",
        "phase": "unknown",
        "route": "charges",
        "fence": fence,
        "status": 500,
        "source": None,
        "claimed_at": "2026-01-01T12:00:00.000000Z",
        "settled_at": "2026-01-01T12:00:00.000000Z",
        "expires_at": None,
        "forget_at": None,
    }
    assert (200, {"records": [expected], "next": None}) == await asked.get("/records?phase=unknown")


async def test_a_list_is_of_one_phase_or_of_all(asked: Asked) -> None:
    """`phase` picks records as they stand now; without it all are listed."""
    await asked.desk.completed(identity("old"))
    asked.desk.now += 3600 * MICROSECONDS
    await asked.desk.completed(identity("new"))
    await asked.desk.claimed(identity("busy"))
    await asked.desk.unknown(identity("open"))

    listed = {}
    for phase in ("expired", "completed", "in_flight", "unknown", None):
        _, document = await asked.get("/records" if phase is None else f"/records?phase={phase}")
        listed[phase] = [record["key"] for record in document["records"]]

    assert {
        "expired": ["old"],
        "completed": ["new"],
        "in_flight": ["busy"],
        "unknown": ["open"],
        None: ["busy", "new", "old", "open"],
    } == listed


async def test_pages_follow_each_other_to_the_end(asked: Asked) -> None:
    """`next` goes on where a page has ended, and is null on the last one."""
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        await asked.desk.unknown(identity(key))

    pages: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        _, document = await asked.get(f"/records?limit=2&cursor={cursor}")
        pages.append([record["key"] for record in document["records"]])
        cursor = document["next"]

    assert [["k0", "k1"], ["k2", "k3"], ["k4"]] == pages


@pytest.mark.parametrize(
    "query", ["phase=all", "phase=", "limit=0", "limit=1001", "limit=x", "limit=-1", "cursor=x", "phas=unknown"]
)
async def test_a_list_that_makes_no_sense_is_refused(asked: Asked, query: str) -> None:
    """A misspelt parameter is told, instead of being read as all records."""
    assert (400, "request-invalid", "no", "never") == short(await asked.get(f"/records?{query}"))


async def test_a_record_is_shown_with_its_answer(asked: Asked) -> None:
    """The stored answer has its status, its headers in order, and its body as text."""
    await asked.desk.unknown(ME)

    status, document = await asked.get(AT)

    answer = {"status": 500, "headers": [["Content-Type", "text/plain"], ["X-Trace", "é"]], "body": "out of order"}
    assert (200, answer, []) == (status, document["answer"], document["audit"])


async def test_a_body_that_is_no_text_is_shown_as_base64(asked: Asked) -> None:
    """Bytes that are not UTF-8 keep their value under another name."""
    await asked.desk.completed(ME, b"\xff\x00")

    _, document = await asked.get(AT)

    assert {"status": 201, "headers": [], "body_base64": "/wA="} == document["answer"]


@pytest.mark.parametrize("path", [AT, "/records/shared/payments/%00", "/records/shared/payments/%ED%A0%80", "/records/a%2Fb/c/d"])
async def test_an_unknown_id_is_not_found(asked: Asked, path: str) -> None:
    """An id of no record gets 404, also one that no record can have."""
    assert (404, "record-absent", "no", "never") == short(await asked.get(path))


async def test_no_answer_is_cached(asked: Asked) -> None:
    """Records change: neither they nor refusals may be kept by a cache."""
    async with asked.client.get("/records") as listed, asked.client.get(AT) as absent, asked.client.put(AT) as refused:
        assert [(200, "no-store"), (404, "no-store"), (405, "no-store")] == [
            (response.status, response.headers["Cache-Control"]) for response in (listed, absent, refused)
        ]


async def test_a_wrong_path_names_the_pages(asked: Asked) -> None:
    """The pages that the listener has include the records."""
    status, document = await asked.get("/record")

    assert (404, "no-route") == (status, document["type"])
    assert "The admin listener has no such page; it has /metrics, /livez, /readyz, /startupz and /records." == document["detail"]


# What may be done


async def test_resolved_as_completed_is_what_a_replay_gives(asked: Asked) -> None:
    """The record is completed with the given answer, byte for byte, kept as its route keeps answers."""
    fence = await asked.desk.unknown(ME, "brief")
    answer = {"status": 201, "headers": [["Location", "/x"], ["Set-Cookie", "a"], ["Set-Cookie", "é"]], "body": '{"é": 1}'}

    answered = await asked.post(f"{AT}/resolve", {"fence": fence, **DECIDED, "as": "completed", **answer})

    record = await asked.desk.store.read(ME)
    assert (200, {"acted": "done"}) == answered
    assert record is not None
    assert record.answer is not None
    assert (Phase.COMPLETED, 201, Source.RESOLVED) == (record.phase, record.status, record.source)
    assert (60, 600) == tuple(
        span // MICROSECONDS for span in ((record.expires_at or 0) - NOON, (record.forget_at or 0) - (record.expires_at or 0))
    )
    stored = unpack_answer(record.answer)
    told = b"Created\r\nLocation: /x\r\nSet-Cookie: a\r\nSet-Cookie: \xe9\r\nContent-Type: application/json\r\n"
    assert told == stored.head
    assert '{"é": 1}'.encode() == stored.body


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ({"body": "[1]"}, b"Content-Type: application/json\r\n"),
        ({"body": "[1]", "headers": [["content-type", "text/x"]]}, b"content-type: text/x\r\n"),
        ({"body": "17"}, b""),
        ({"body": "{done}"}, b""),
        ({}, b""),
    ],
)
async def test_a_body_of_json_is_told_as_such(asked: Asked, answer: dict[str, object], lines: bytes) -> None:
    """An object or an array gets its type where the person gave none, so that clients read it as they read the upstream's."""
    fence = await asked.desk.unknown(ME, "brief")

    await asked.post(f"{AT}/resolve", {"fence": fence, **DECIDED, "as": "completed", "status": 201, **answer})

    record = await asked.desk.store.read(ME)
    assert b"Created\r\n" + lines == unpack_answer((record and record.answer) or b"").head


async def test_an_answer_of_a_forgotten_route_is_kept_by_default(asked: Asked) -> None:
    """A record whose route is no longer configured is kept for a day, and its mark for a week."""
    fence = await asked.desk.unknown(ME, "gone")

    await asked.post(f"{AT}/resolve", {"fence": fence, **COMPLETED})

    _, document = await asked.get(AT)
    assert ("2026-01-02T12:00:00.000000Z", "2026-01-09T12:00:00.000000Z") == (document["expires_at"], document["forget_at"])


@pytest.mark.parametrize(
    ("said", "body"),
    [
        ({}, b""),
        ({"body": ""}, b""),
        ({"body": None, "body_base64": "/wA="}, b"\xff\x00"),
        ({"body": "0" * 1_048_576}, b"0" * 1_048_576),
    ],
    ids=["none", "empty", "base64", "longest"],
)
async def test_a_body_may_be_text_bytes_or_none(asked: Asked, said: dict[str, str | None], body: bytes) -> None:
    """A body is given as text, as base64, or not at all, and may be as long as a stored one."""
    fence = await asked.desk.unknown(ME)

    assert (200, {"acted": "done"}) == await asked.post(f"{AT}/resolve", {"fence": fence, **COMPLETED, **said})

    record = await asked.desk.store.read(ME)
    assert record is not None
    assert body == unpack_answer(record.answer or b"").body


async def test_resolved_as_not_executed_frees_the_key(asked: Asked) -> None:
    """The record goes, so that the next request is forwarded; what was decided stays readable under its id."""
    fence = await asked.desk.unknown(ME)

    assert (200, {"acted": "done"}) == await asked.post(f"{AT}/resolve", {"fence": fence, **NOT_EXECUTED})

    assert await asked.desk.store.read(ME) is None
    assert (
        200,
        {
            "id": "shared/payments/a1",
            "scope": "shared",
            "upstream": "payments",
            "key": "a1",
            "phase": "absent",
            "answer": None,
            "audit": [
                {
                    "at": "2026-01-01T12:00:00.000000Z",
                    "verb": "resolve_not_executed",
                    "who": "ann",
                    "why": "seen in the ledger",
                    "fence": fence,
                    "from_phase": "unknown",
                }
            ],
        },
    ) == await asked.get(AT)


async def test_forget_removes_a_completed_record(asked: Asked) -> None:
    """A settled record can be removed, and the trail tells every act in order."""
    fence = await asked.desk.unknown(ME)
    await asked.post(f"{AT}/resolve", {"fence": fence, **COMPLETED})
    _, document = await asked.get(AT)

    assert (200, {"acted": "done"}) == await asked.post(
        f"{AT}/forget", {"fence": document["fence"], "who": "bob", "why": "a test"}
    )

    _, left = await asked.get(AT)
    acts = [(act["verb"], act["who"], act["from_phase"]) for act in left["audit"]]
    assert ("absent", [("resolve_completed", "ann", "unknown"), ("forget", "bob", "completed")]) == (left["phase"], acts)


async def test_every_act_is_told_in_one_line(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    """What was done, to what, by whom and why stands in the log; white space cannot break the line."""
    caplog.set_level(logging.INFO, "idemproxy.admin")
    fence = await asked.desk.unknown(ME)

    await asked.post(f"{AT}/resolve", {"fence": fence + 1, **NOT_EXECUTED})
    await asked.post(f"{AT}/resolve", {"fence": fence, **NOT_EXECUTED, "why": " asked\nthe\tbank "})

    expected = "resolve_not_executed shared/payments/a1 by ann: asked the bank"
    assert [("idemproxy.admin", logging.INFO, expected)] == caplog.record_tuples


# What is refused


@pytest.mark.parametrize("act", ["resolve", "forget"])
async def test_a_fence_that_has_moved_on_changes_nothing(asked: Asked, act: str) -> None:
    """An act on what its author did not see is refused, and says what there is now."""
    fence = await asked.desk.unknown(ME)
    document = {"fence": fence - 1, **(NOT_EXECUTED if act == "resolve" else DECIDED)}

    status, refused = await asked.post(f"{AT}/{act}", document)

    assert (409, "record-changed", "no", "after_check") == short((status, refused))
    assert (
        f"The record has another fence: its phase is now unknown and its fence {fence}, so look at it again before you act."
        == refused["detail"]
    )
    assert [] == list(await asked.desk.store.audit(ME))


async def test_only_an_unknown_record_can_be_resolved(asked: Asked) -> None:
    """What is completed is a fact, and is not decided anew."""
    fence = await asked.desk.completed(ME)

    status, refused = await asked.post(f"{AT}/resolve", {"fence": fence, **COMPLETED})

    assert (409, "wrong-phase", "no", "after_check") == short((status, refused))
    assert (
        f"Only an unknown record can be resolved: its phase is now completed and its fence {fence}, "
        "so look at it again before you act." == refused["detail"]
    )


async def test_a_record_in_flight_cannot_be_forgotten(asked: Asked) -> None:
    """While its holder is presumed alive a record stays: its request may be on its way."""
    hold = await asked.desk.claimed(ME)

    answered = short(await asked.post(f"{AT}/forget", {"fence": hold.fence, **DECIDED}))
    asked.desk.now += 15 * MICROSECONDS
    later = await asked.post(f"{AT}/forget", {"fence": hold.fence, **DECIDED})

    assert (409, "wrong-phase", "no", "after_check") == answered
    assert (200, {"acted": "done"}) == later


@pytest.mark.parametrize(("act", "document"), [("resolve", NOT_EXECUTED), ("forget", DECIDED)])
async def test_an_act_on_no_record_is_not_found(asked: Asked, act: str, document: dict[str, str]) -> None:
    """There is nothing to decide about a key that is free."""
    assert (404, "record-absent", "no", "never") == short(await asked.post(f"{AT}/{act}", {"fence": 1, **document}))


WRONG: Final = {
    "not an object": [],
    "no who": {"who": None},
    "blank who": {"who": " \n"},
    "long who": {"who": "a" * 201},
    "control in who": {"who": "ann\x1b[2J"},
    "no why": {"why": 7},
    "blank why": {"why": ""},
    "long why": {"why": "a" * 2_001},
    "no fence": {"fence": None},
    "fence as text": {"fence": "1"},
    "fence as truth": {"fence": True},
    "negative fence": {"fence": -1},
    "huge fence": {"fence": 1 << 63},
    "no as": {"as": None},
    "another as": {"as": "executed"},
    "answer of what was not executed": {"as": "not_executed"},
    "member that is none": {"statu": 201},
    "no status": {"status": None},
    "status as text": {"status": "201"},
    "interim status": {"status": 199},
    "status beyond": {"status": 600},
    "headers as object": {"headers": {"Location": "/x"}},
    "header without value": {"headers": [["Location"]]},
    "header of a number": {"headers": [["X-Count", 1]]},
    "header name with a space": {"headers": [["X Y", "1"]]},
    "header name with a line": {"headers": [["X\r\nY", "1"]]},
    "header without a name": {"headers": [["", "1"]]},
    "header value with a line": {"headers": [["X", "1\r\nY: 2"]]},
    "header value with a NUL": {"headers": [["X", "1\x00"]]},
    "header value beyond Latin-1": {"headers": [["X", "€"]]},
    "header value with space at its end": {"headers": [["X", "1 "]]},
    "too many headers": {"headers": [["X", "1"]] * 101},
    "too long headers": {"headers": [["X", "1" * 32_768]]},
    "hop-by-hop": {"headers": [["Connection", "close"]]},
    "framing": {"headers": [["content-length", "3"]]},
    "ours": {"headers": [["Idempotency-Status", "executed"]]},
    "not replayed": {"headers": [["Set-Cookie", "a=1"]]},
    "body of a number": {"body": 1},
    "two bodies": {"body": "a", "body_base64": "YQ=="},
    "no base64": {"body_base64": "a"},
    "no base64 alphabet": {"body_base64": "YQ=*"},
    "body beyond ASCII base64": {"body_base64": "é"},
    "too long a body": {"body": "0" * 1_048_577},
    "too long a body in base64": {"body_base64": base64.b64encode(b"0" * 1_048_577).decode()},
    "body without content": {"status": 204, "body": "a"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_act_that_makes_no_sense_changes_nothing(asked: Asked, wrong: dict[str, object] | list[object]) -> None:
    """Each member is checked, and one sentence says what to correct, before the store is asked to act."""
    fence = await asked.desk.unknown(ME)
    document = {"fence": fence, **COMPLETED, **wrong} if isinstance(wrong, dict) else wrong

    status, refused = await asked.post(f"{AT}/resolve", document)

    assert (400, "request-invalid", "no", "never") == short((status, refused))
    assert refused["detail"].endswith(".")
    _, left = await asked.get(AT)
    assert ("unknown", []) == (left["phase"], left["audit"])


async def test_an_answer_is_bounded_as_its_route_says(asked: Asked) -> None:
    """The body's bound, and the fields that are not replayed, are those of the record's own route."""
    fence = await asked.desk.unknown(ME, "brief")
    document = {"fence": fence, **COMPLETED}

    longer = await asked.post(f"{AT}/resolve", {**document, "body": "0" * 33})
    denied = await asked.post(f"{AT}/resolve", {**document, "headers": [["X-Once", "1"]]})

    assert "The body has 33 bytes, and the record's route keeps at most 32." == longer[1]["detail"]
    assert "The header 'X-Once' is not replayed on the record's route: leave it out." == denied[1]["detail"]


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
async def test_an_act_must_be_sent_as_json(asked: Asked, media: str) -> None:
    """What a web page's form can send without asking first is not taken."""
    fence = await asked.desk.unknown(ME)
    content = f'{{"fence": {fence}, "who": "ann", "why": "a test"}}'

    async with asked.client.post(f"{AT}/forget", data=content, headers={"Content-Type": media}) as response:
        assert (415, "media-type", "no", "never") == short((response.status, await response.json(content_type=None)))


@pytest.mark.parametrize(("content", "expected"), [("{", 400), ("", 400), (f'"{"0" * 4_194_304}"', 413)])
async def test_what_is_no_act_is_refused(asked: Asked, content: str, expected: int) -> None:
    """Broken JSON, none at all, and more of it than any act needs."""
    async with asked.client.post(
        f"{AT}/forget", data=io.BytesIO(content.encode()), headers={"Content-Type": "application/json"}
    ) as response:
        assert expected == response.status
        assert "application/problem+json" == response.content_type


# A store that is out of order


class Silent(MemoryStore):
    """A store that confirms no act and lists nothing."""

    async def list(self, *_: Any, **__: Any) -> Page:  # noqa: ANN401 - whatever is asked
        """Fail."""
        raise StoreUnavailableError("memory: it is asleep")

    async def resolve(self, *_: Any, **__: Any) -> Acted:  # noqa: ANN401 - as above
        """Fail."""
        raise StoreUnavailableError("memory: it is asleep")


@pytest.fixture(name="silent")
async def fixture_silent(aiohttp_client: AiohttpClient) -> Asked:
    """A listener over a silent store."""
    desk = Desk()
    desk.store = Silent(lambda: desk.now)
    return Asked(desk, await aiohttp_client(desk.app()))


async def test_a_list_without_a_store_says_so(silent: Asked) -> None:
    """The store's own reason reaches the one who asked."""
    status, document = await silent.get("/records")

    assert (503, "store-unavailable", "no", "after_check") == short((status, document))
    assert "The records cannot be read now: memory: it is asleep" == document["detail"]


async def test_an_act_that_is_not_confirmed_is_not_called_done(silent: Asked, caplog: pytest.LogCaptureFixture) -> None:
    """It may have been carried out: the answer says so, and the log too."""
    fence = await silent.desk.unknown(ME)

    status, document = await silent.post(f"{AT}/resolve", {"fence": fence, **NOT_EXECUTED})

    assert (503, "act-unconfirmed", "unknown", "after_check") == short((status, document))
    assert [
        "not confirmed: resolve_not_executed shared/payments/a1 by ann: seen in the ledger (memory: it is asleep)"
    ] == caplog.messages
