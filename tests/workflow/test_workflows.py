"""The checkpoint of a workflow, as an agent that comes back finds it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idemproxy.core.transition import Acted
from idemproxy.store.base_host import host_clock
from idemproxy.store.sqlite import SqliteStore
from tests.process.asking import ask, configuration, eventually, problem
from tests.processes import proxy
from tests.servers import redis_server
from tests.wire.upstream import Line, Play, answers
from tests.workflow.conftest import ANN, BOB, MADE, House, answer, json_answer
from tests.workflow.test_keys import hang_up

UNKNOWN = problem(404, "workflow-unknown", "unknown", "same_key")


def test_steps_are_told_in_their_order_with_their_outputs(house: House) -> None:
    """Each with its words, its outcome and its answer, also where it had a key of its own; a replay changes nothing."""
    house.upstream.plays(answers(json_answer(201, {"seat": "12A"}), json_answer(402, {"error": "declined"}), MADE))
    house.step("hold", ("Workflow-Action", "hold seat"))
    house.step("pay", key=f"{house.name}-own")
    house.step(None, key=f"{house.name}-nameless", target="/second/mail")
    house.step("hold", ("Workflow-Action", "hold seat"))

    page = house.checkpoint()

    key = hashlib.sha256(f"{house.name}_step_hold".encode()).hexdigest()
    assert (house.name, None, "COMPLETED", None, None) == tuple(
        page[name] for name in ("workflow_id", "current_step", "status", "agent_memory", "agent_memory_etag")
    )
    first, *_ = page["step_history"]
    begun, settled, expires = (first.pop(name) for name in ("begun_at", "settled_at", "expires_at"))
    assert begun <= settled < expires
    assert {
        "step": "hold",
        "action": "hold seat",
        "status": "COMPLETED",
        "phase": "completed",
        "response_status": 201,
        "output": {"seat": "12A"},
        "output_encoding": "json",
        "output_kept": True,
        "executed": "yes",
        "retry": "never",
        "key": key,
        "upstream": "first",
        "route": "rest",
    } == first
    assert [("hold", "COMPLETED", "first"), ("pay", "FAILED", "first"), (None, "COMPLETED", "second")] == [
        (step["step"], step["status"], step["upstream"]) for step in page["step_history"]
    ]


@pytest.mark.parametrize(
    ("target", "play", "expected"),
    [
        ("/charges", hang_up, ("UNKNOWN", "unknown", None, False, "unknown", "after_check")),
        ("/charges", answers(json_answer(500, 1)), ("UNKNOWN", "unknown", 500, False, "unknown", "after_check")),
        ("/charges", answers(answer(429, b"")), ("FAILED", "absent", None, False, "no", "same_key")),
        ("/brief/x", answers(MADE), ("COMPLETED", "expired", 201, False, "yes", "after_check")),
        ("/small/x", answers(MADE), ("COMPLETED", "completed", 201, False, "yes", "never")),
    ],
    ids=["unknown", "unknown with an answer", "released", "expired", "too long"],
)
def test_steps_without_an_output(house: House, target: str, play: Play, expected: tuple[object, ...]) -> None:
    """What is known of each is told all the same."""
    house.upstream.plays(play)
    house.step("1", target=target)
    eventually(lambda: house.checkpoint()["step_history"][0]["phase"] == expected[1])

    page = house.checkpoint()

    [step] = page["step_history"]
    names = ("status", "phase", "response_status", "output_kept", "executed", "retry")
    assert expected == tuple(step[name] for name in names)
    assert (None, None, "1", expected[0]) == (step["output"], step["output_encoding"], page["current_step"], page["status"])


def test_a_step_under_way(house: House) -> None:
    """It is there before the upstream has answered: what was begun is known when everything dies."""

    def held(line: Line) -> None:
        line.request()
        line.wait_for_end()

    house.upstream.plays(held)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(house.step, "7")
        house.upstream.wait_for_requests(1)
        page = house.checkpoint()
        house.upstream.lines[0].send(MADE)
        first.result()

    [step] = page["step_history"]
    assert ("7", "IN_PROGRESS") == (page["current_step"], page["status"])
    assert ("IN_PROGRESS", "in_flight", None, "in_progress", "same_key") == tuple(
        step[name] for name in ("status", "phase", "settled_at", "executed", "retry")
    )


def test_a_compressed_answer_is_shown_as_what_it_says(house: House) -> None:
    """The coding is the wire's; an agent gets the value."""
    body = gzip.compress(b'{"id": 12345678901234567890}', mtime=0)
    house.upstream.plays(answers(answer(201, body, "Content-Type: application/vnd.api+json", "Content-Encoding: gzip")))
    house.step("1")

    assert {"id": 12345678901234567890} == house.checkpoint()["step_history"][0]["output"]


def test_an_unknown_workflow_and_anothers_are_one(house: House) -> None:
    """A foreign scope learns nothing, not even that there is something."""
    before = house.get(f"workflows/{house.name}")
    house.step("1")
    foreign = house.get(f"workflows/{house.name}", BOB)

    assert (UNKNOWN, UNKNOWN, before.document["detail"]) == (before.problem, foreign.problem, foreign.document["detail"])


def test_a_step_in_a_narrower_scope_is_left_out_for_others(house: House) -> None:
    """Of a route with a scope of its own: whoever does not send those fields sees the other steps only."""
    house.step("1")
    house.step("2", ("X-User", "1"), target="/personal/x")

    mine, shared, others = (house.checkpoint(fields) for fields in ((*ANN, ("X-User", "1")), ANN, (*ANN, ("X-User", "2"))))

    assert (["1", "2"], ["1"], ["1"]) == tuple([step["step"] for step in page["step_history"]] for page in (mine, shared, others))
    assert ("2", "1") == (mine["current_step"], shared["current_step"])


def test_a_workflow_all_of_which_is_anothers_is_not_there(house: House) -> None:
    """A narrower scope tells nobody else that there is something."""
    house.step("1", ("X-User", "1"), target="/personal/x")
    asked, nothing = house.get(f"workflows/{house.name}"), house.get("workflows/nothing")

    assert (UNKNOWN, UNKNOWN, nothing.document["detail"]) == (asked.problem, nothing.problem, asked.document["detail"])


def test_a_step_that_is_refused_is_no_step(house: House) -> None:
    """Its explicit key names an operation that is not of this workflow: what that has answered is not this step's output."""
    house.write(house.name)
    refused = house.step("1", key=house.name, target="/charges/other")

    assert (422, UNKNOWN) == (refused.status, house.get(f"workflows/{house.name}").problem)


async def _forget(file: Path, key_hash: str) -> Acted:
    store = SqliteStore(file, clock=host_clock())
    await store.start()
    try:
        [(identity, record)] = [each for each in (await store.list(None, 10_000, "")).records if each[0].key_hash == key_hash]
        return await store.forget(identity, record.fence, "ann", "a test")
    finally:
        await store.close()


def test_a_step_whose_record_was_forgotten_is_unknown(house: House) -> None:
    """A person has removed what was known: its absence does not say that nothing was executed, as that of others does."""
    house.step("1")
    house.upstream.plays(answers(answer(429, b"")))
    house.step("2")
    done = asyncio.run(_forget(house.proxy.records.file, house.checkpoint()["step_history"][0]["key"]))

    page = house.checkpoint()

    names = ("status", "phase", "executed", "retry")
    assert [Acted.DONE, ("UNKNOWN", "absent", "unknown", "after_check"), ("FAILED", "absent", "no", "same_key"), "UNKNOWN"] == [
        done, *(tuple(step[name] for name in names) for step in page["step_history"]), page["status"],
    ]  # fmt: skip


def test_an_id_in_every_spelling(house: House) -> None:
    """As with keys: decoded once, and quoted or bare."""
    house.step("1")

    assert ["1", "1"] == [
        house.get(f"workflows/{spelled}").document["current_step"]
        for spelled in (f"%22{house.name}%22", house.name.replace("-", "%2D"))
    ]


def test_a_store_that_is_out_is_told_as_such(tmp_path: Path) -> None:
    """503 with the time after which to ask again, for every page; that is not "unknown"."""
    with redis_server() as server:
        settings = {"upstreams": {"api": {"url": "http://127.0.0.1:9"}}, "store": {"url": server.url}}
        with proxy(*configuration(tmp_path, settings)) as program:
            server.kill()
            found = [
                ask(program.url, method=method, target=f"/_idemproxy/{target}", body=body)
                for method, target, body in [
                    ("GET", "keys/a", b""),
                    ("GET", "keys/a/response?wait=9", b""),
                    ("GET", "workflows/a", b""),
                    ("GET", "workflows/a/memory", b""),
                    ("PUT", "workflows/a/memory", b"1"),
                ]
            ]

    assert [(problem(503, "store-unavailable", "no", "same_key"), "1")] * 5 == [
        (each.problem, each.field("Retry-After")) for each in found
    ]
