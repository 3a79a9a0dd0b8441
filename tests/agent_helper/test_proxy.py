"""The helper before a real proxy whose scope is a tenant: both ways to resume, the checkpoint, and the memory."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from idemproxy.agent import (
    BadRequestError,
    Checkpoint,
    KeyReusedError,
    MemoryChangedError,
    OutcomeUnknownError,
    ProxyUnreachableError,
    Workflow,
)
from tests.agent_helper.driving import DRIVERS, Httpx, Open
from tests.processes import DemoApi, Program
from tests.servers import free_port

ALL = pytest.mark.parametrize("opened", DRIVERS)
TENANT = {"X-Tenant": "ann"}


def _checkpoint(trip: Workflow) -> Checkpoint:
    found = trip.checkpoint()
    assert found is not None
    return found


@ALL
def test_an_agent_that_runs_from_the_start_is_given_every_answer_again(
    opened: Open, api: DemoApi, program: Program, workflow_id: str
) -> None:
    """Trajectory replay: the same calls get the same answers without another charge, and the first new one is executed."""
    before = api.charges()
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as first:
        answers = [first.send("POST", "/charges", {"amount": amount}) for amount in (1, 2, 2)]
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as second:
        again = [second.send("POST", "/charges", {"amount": amount}) for amount in (1, 2, 2, 3)]

    assert [answer.value for answer in answers] == [answer.value for answer in again[:3]]
    assert [*["executed"] * 3, *["replayed"] * 3, "executed"] == [answer.told for answer in answers + again]
    assert 4 == api.charges() - before


@ALL
def test_an_agent_that_resumes_goes_on_behind_what_is_completed(
    opened: Open, api: DemoApi, program: Program, workflow_id: str
) -> None:
    """State machine: the next call is the step that was not completed, which is made once; the outputs are in the checkpoint."""
    before = api.charges()
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as first:
        made = [first.send("POST", "/charges", {"amount": 1}), first.send("POST", "/charges", {"amount": 2})]
        refused = first.send("POST", "/charges", {"amount": 3}, {"Demo-Fault": "status_before=429"})
    trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)
    resumed = trip.resume()
    position = trip.position
    with opened(trip) as second:
        third = second.send("POST", "/charges", {"amount": 3}, {"Workflow-Action": "charge card"})
    found = _checkpoint(trip)

    assert (429, 2, "FAILED") == (refused.status, position, resumed and resumed.steps[-1].status)
    assert ("executed", 201) == (third.told, third.status)
    assert ("3", "COMPLETED", 3) == (found.current_step, found.status, found.completed_run)
    assert [answer.value for answer in [*made, third]] == [step.output for step in found.steps]
    assert 3 == api.charges() - before


@ALL
def test_a_call_that_was_refused_is_found_when_it_is_replayed(
    opened: Open, api: DemoApi, program: Program, workflow_id: str
) -> None:
    """A 429 and a retry are one step: an agent that runs from the start does not charge again."""
    before = api.charges()
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as first:
        statuses = [
            first.send("POST", "/charges", {"amount": 1}, fault).status for fault in ({"Demo-Fault": "status_before=429"}, {})
        ]
        first.send("POST", "/charges", {"amount": 2})
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as second:
        again = [second.send("POST", "/charges", {"amount": amount}).told for amount in (1, 2)]

    assert ([429, 201], ["replayed", "replayed"]) == (statuses, again)
    assert 2 == api.charges() - before


@ALL
def test_an_unknown_outcome_stays_the_step_that_it_is(opened: Open, api: DemoApi, program: Program, workflow_id: str) -> None:
    """Whether the call is made again at once or after resume, it is held: one charge, and the exception says what to do."""
    before = api.charges()
    trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)
    caught = []
    with opened(trip) as driver:
        for fault in ({"Demo-Fault": "reset_after"}, {}):
            with pytest.raises(OutcomeUnknownError) as each:
                driver.send("POST", "/charges", {"amount": 1}, fault)
            caught.append(each.value)
        found = trip.resume()
        with pytest.raises(OutcomeUnknownError):
            driver.send("POST", "/charges", {"amount": 1})

    assert [(502, "unknown", "after_check"), (409, "unknown", "after_check")] == [
        (error.status, error.executed, error.retry) for error in caught
    ]
    assert ["UNKNOWN"] == [step.status for step in (found.steps if found else ())]
    assert 1 == api.charges() - before


@ALL
def test_calls_in_another_order_are_refused(opened: Open, program: Program, workflow_id: str) -> None:
    """An agent that does something else at a step that was made is told so, and nothing is sent."""
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as first:
        first.send("POST", "/charges", {"amount": 1})
    with opened(Workflow(workflow_id, proxy=program.url, headers=TENANT)) as second, pytest.raises(KeyReusedError) as caught:
        second.send("POST", "/charges", {"amount": 2})

    assert "no" == caught.value.executed


def test_a_workflow_that_has_not_begun_has_no_checkpoint(program: Program, workflow_id: str) -> None:
    """None, for the checkpoint as for the memory; numbers then begin with 1."""
    trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)

    assert (None, None, None, "1") == (
        trip.checkpoint(), trip.resume(), trip.load_memory(), trip.next_step()["Workflow-Step"],
    )  # fmt: skip


def test_a_step_that_is_called_by_its_name_after_resume_is_replayed(api: DemoApi, program: Program, workflow_id: str) -> None:
    """Names begin anew, so that what was completed is not made again."""
    before = api.charges()
    told = []
    for _ in range(2):
        trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)
        trip.resume()
        with Httpx(trip) as driver:
            told.append(driver.send("POST", "/charges", {"amount": 1}, trip.named_step("charge", "charge card")).told)
    step = _checkpoint(Workflow(workflow_id, proxy=program.url, headers=TENANT)).completed("charge")

    assert (["executed", "replayed"], 1) == (told, api.charges() - before)
    assert ("charge card", 201, "yes", "never") == (step and (step.action, step.response_status, step.executed, step.retry))


def test_another_tenant_sees_nothing(program: Program, workflow_id: str) -> None:
    """The fields of the workflow make the scope of all that is asked."""
    trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)
    other = Workflow(workflow_id, proxy=program.url, headers={"X-Tenant": "bob"})
    with Httpx(trip) as driver:
        driver.send("POST", "/charges", {"amount": 1})
    trip.save_memory("secret")

    assert ("secret", None, None) == (_checkpoint(trip).memory, other.checkpoint(), other.load_memory())


def test_names_with_any_characters_are_found_again(program: Program, workflow_id: str) -> None:
    """What must be quoted in a field, or escaped in a path, is one workflow in all places."""
    trip = Workflow(f'{workflow_id},"a"\\/b%2F?#', proxy=program.url, headers=TENANT)
    with Httpx(trip) as driver:
        driver.send("POST", "/charges", {"amount": 1}, trip.named_step('"x",y'))
    etag = trip.save_memory([1])

    assert ((trip.id, '"x",y', [1], etag)) == (
        _checkpoint(trip).workflow_id, _checkpoint(trip).current_step, _checkpoint(trip).memory, _checkpoint(trip).etag,
    )  # fmt: skip


def test_memory_is_saved_over_what_was_seen(program: Program, workflow_id: str) -> None:
    """A save replaces what its own agent last saw; after another agent's save it is refused, until that has been loaded."""
    ours, theirs = (Workflow(workflow_id, proxy=program.url, headers=TENANT) for _ in range(2))
    first = ours.save_memory({"seat": "12A"})
    with pytest.raises(MemoryChangedError) as caught:
        theirs.save_memory({"seat": "1F"})
    loaded = theirs.load_memory()
    second = theirs.save_memory({"seat": "1F"})
    with pytest.raises(MemoryChangedError):
        ours.save_memory({"seat": "12B"})
    ours.checkpoint()
    third = ours.save_memory({"seat": "12B"})
    with pytest.raises(MemoryChangedError):
        theirs.save_memory(None, etag=first)
    theirs.save_memory(None, etag=third)
    ours.save_memory("anything", etag="*")

    assert ("no", ({"seat": "12A"}, first)) == (caught.value.executed, loaded)
    assert 3 == len({first, second, third})
    assert "anything" == _checkpoint(ours).memory


def test_memory_that_the_proxy_does_not_take_is_refused(program: Program, workflow_id: str) -> None:
    """What is no JSON is refused here, what is too deep by the proxy; neither is saved."""
    trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]

    with pytest.raises(ValueError, match="Out of range float"):
        trip.save_memory(float("nan"))
    with pytest.raises(TypeError):
        trip.save_memory({1, 2})
    with pytest.raises(BadRequestError):
        trip.save_memory(deep)
    assert trip.load_memory() is None


def _request(near: socket.socket) -> bytes:
    """A whole request, head and body, however it comes in."""
    read = b""
    while not (told := re.search(rb"\r\nContent-Length: (\d+)\r\n(?:.+\r\n)*\r\n", read)) or len(read) < told.end() + int(
        told[1]
    ):
        more = near.recv(65536)
        assert more, "the request is cut off"
        read += more
    return read


@contextmanager
def losing_replies(port: int, losses: int) -> Iterator[str]:
    """A way to a server on which the first replies are lost, after the server has given them: its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def carry() -> None:
        for number in range(1000):
            try:
                near, _ = listener.accept()
            except OSError:
                return
            with near, socket.create_connection(("127.0.0.1", port), 20) as far:
                far.sendall(_request(near))
                reply = b""
                while not reply.endswith(b"\r\n\r\n"):  # 204: a head without a body
                    reply += far.recv(65536)
                if number >= losses:
                    near.sendall(reply)

    thread = Thread(target=carry)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("saved_before", [False, True])
def test_a_save_whose_reply_is_lost_is_the_same_save(program: Program, workflow_id: str, *, saved_before: bool) -> None:
    """Asked again with the same condition, it is no conflict with itself; the next save goes on from there."""
    trip = Workflow(workflow_id, proxy=program.url, headers=TENANT)
    etag = trip.save_memory(0) if saved_before else None
    with losing_replies(program.port, 2) as url:
        lossy = Workflow(workflow_id, proxy=url, headers=TENANT)
        saved = lossy.save_memory(1, etag=etag)

    assert (1, saved) == trip.load_memory()


def test_nobody_at_the_address_is_told_as_such() -> None:
    """The message has the address."""
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(ProxyUnreachableError, match=f"no idemproxy answers at {url}"):
        Workflow("trip-1", proxy=url).checkpoint()


def test_somebody_else_at_the_address_is_told_as_such(api: DemoApi) -> None:
    """The API itself is not the proxy: that it knows no such page is not taken for a workflow that has not begun."""
    with pytest.raises(ProxyUnreachableError, match=f"{api.url} is not an idemproxy"):
        Workflow("trip-1", proxy=api.url).resume()
