"""Numbered calls before a real proxy: nothing leaves under a number that would be a second effect."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import httpx
import pytest
import requests

from idemproxy.agent import (
    KeyInvalidError,
    KeyReusedError,
    OutcomeUnknownError,
    UnprotectedCallWarning,
    Workflow,
    WorkflowDivergedError,
    outcome,
    raise_for_problem,
)
from tests.agent_helper.driving import DRIVERS, Got, Httpx, Open
from tests.processes import DemoApi, Program

ALL = pytest.mark.parametrize("opened", DRIVERS)
TENANT = {"X-Tenant": "ann"}


@pytest.fixture
def trip(program: Program, workflow_id: str) -> Workflow:
    """A workflow that nobody has begun."""
    return Workflow(workflow_id, proxy=program.url, headers=TENANT)


def again(trip: Workflow) -> Workflow:
    """The same workflow, in an agent that runs from the start."""
    return Workflow(trip.id, proxy=trip.proxy, headers=TENANT)


@ALL
def test_no_number_leaves_after_a_call_that_was_another_before(opened: Open, api: DemoApi, trip: Workflow) -> None:
    """The calls behind a reworded one would have shifted numbers, and the last of them be executed a second time."""
    before = api.charges()
    with opened(trip) as first:
        for amount in (1, 2, 3):
            first.send("POST", "/charges", {"amount": amount})
    rerun = again(trip)
    with opened(rerun) as second:
        second.send("POST", "/charges", {"amount": 1})
        with pytest.raises(KeyReusedError) as diverging:
            second.send("POST", "/charges", {"amount": 2, "note": "reworded"})
        refused = []
        for amount in (2, 3):
            with pytest.raises(WorkflowDivergedError) as each:
                second.send("POST", "/charges", {"amount": amount})
            refused.append(each.value)
        with pytest.raises(WorkflowDivergedError):
            rerun.next_step()
        held = api.charges() - before
        told = [
            second.send("GET", "/charges").status,
            second.send("POST", "/charges", {"amount": 9}, rerun.named_step("tip")).told,
        ]
        found = rerun.resume()
        told.append(second.send("POST", "/charges", {"amount": 4}).told)

    assert ("2", "no") == (diverging.value.step, diverging.value.executed)
    assert [("2", "no", "after_check", None)] * 2 == [
        (error.step, error.executed, error.retry, error.response) for error in refused
    ]
    assert "resume() then goes on behind it" in str(refused[0])
    assert (3, [200, "executed", "executed"]) == (held, told)
    assert (3, 4, 5) == (found and found.completed_run, rerun.position, api.charges() - before)


def test_numbers_that_were_taken_before_do_not_leave_either(api: DemoApi, trip: Workflow) -> None:
    """Fields of next_step are numbers too, whichever way they go; names are not held."""
    with Httpx(trip) as first:
        first.send("POST", "/charges", {"amount": 1})
    before = api.charges()
    rerun = again(trip)
    one, two = rerun.next_step(), rerun.next_step()
    with Httpx(rerun) as second:
        with pytest.raises(KeyReusedError):
            second.send("POST", "/charges", {"amount": 2}, one)
        with pytest.raises(WorkflowDivergedError):
            second.send("POST", "/charges", {"amount": 1}, two)

    assert 0 == api.charges() - before


def test_a_call_that_is_under_way_when_another_diverges_gets_its_answer(api: DemoApi, trip: Workflow) -> None:
    """It has left already; what would be numbered behind both does not leave."""
    with Httpx(again(trip)) as other:
        other.send("POST", "/charges", {"amount": 2}, {"Workflow-Step": "2"})
    hold = f"{api.url}/holds/{trip.id}"
    with Httpx(trip) as driver, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(driver.send, "POST", "/charges", {"amount": 1}, {"Demo-Fault": f"hold_after={trip.id}"})
        requests.get(hold, timeout=30)
        with pytest.raises(KeyReusedError):
            driver.send("POST", "/charges", {"amount": 3})
        requests.delete(hold, timeout=30)
        got: Got = slow.result(30)
        with pytest.raises(WorkflowDivergedError):
            driver.send("POST", "/charges", {"amount": 4})

    assert (201, "executed", 2) == (got.status, got.told, trip.position)


@ALL
def test_no_number_leaves_while_an_outcome_is_unknown(opened: Open, api: DemoApi, trip: Workflow) -> None:
    """A reworded call may be the same operation; the same one asks the proxy; go_on lets others go, and names always go."""
    before = api.charges()
    with opened(trip) as driver:
        with pytest.raises(OutcomeUnknownError) as lost:
            driver.send("POST", "/charges", {"amount": 1}, {"Demo-Fault": "reset_after"})
        with pytest.raises(OutcomeUnknownError) as held:
            driver.send("POST", "/charges", {"amount": 1, "note": "reworded"})
        with pytest.raises(OutcomeUnknownError):
            trip.next_step()
        with pytest.raises(OutcomeUnknownError) as asked:
            driver.send("POST", "/charges", {"amount": 1})
        charged = api.charges() - before
        driver.send("POST", "/charges", {"amount": 5}, trip.named_step("tip"))
        trip.go_on(held.value.step or "")
        driver.send("POST", "/charges", {"amount": 2})

    assert [("1", 502, "unknown"), ("1", 0, "unknown"), ("1", 409, "unknown")] == [
        (error.value.step, error.value.status, error.value.executed) for error in (lost, held, asked)
    ]
    assert f"step 1 of workflow {trip.id} may have happened (POST {trip.proxy}/charges: outcome-unknown, status 502)" in str(
        held.value
    )
    assert (1, 2, 3) == (charged, trip.position, api.charges() - before)


@ALL
def test_an_error_of_the_api_that_leaves_the_outcome_unknown_is_raised(opened: Open, api: DemoApi, trip: Workflow) -> None:
    """A 500 after the effect is no answer to go on with; the response is at hand, and a name holds no number up."""
    before = api.charges()
    fault = {"Demo-Fault": "status_after=500"}
    with opened(trip) as driver:
        with pytest.raises(OutcomeUnknownError) as named:
            driver.send("POST", "/charges", {"amount": 5}, trip.named_step("tip") | fault)
        with pytest.raises(OutcomeUnknownError) as numbered:
            driver.send("POST", "/charges", {"amount": 1}, fault)
        with pytest.raises(OutcomeUnknownError, match="This call was not sent"):
            driver.send("POST", "/charges", {"amount": 1, "note": "reworded"})

    assert [("tip", 500, "unknown"), ("1", 500, "unknown")] == [
        (error.step, error.status, outcome(error.response)) for error in (named.value, numbered.value)
    ]
    kept = pickle.loads(pickle.dumps(numbered.value))  # noqa: S301  # our own
    assert ("1", str(numbered.value), None) == (kept.step, str(kept), kept.response)
    assert 2 == api.charges() - before


@ALL
def test_a_final_error_that_the_agent_went_on_from_is_passed_over_by_resume(opened: Open, trip: Workflow) -> None:
    """A 404 that an agent has handled is no gap, once it has made a further call; as the last step it is replayed."""
    missing = {"Demo-Fault": "status_before=404"}
    with opened(trip) as driver:
        driver.send("POST", "/charges", {"amount": 1}, missing)
        trip.resume()
        positions = [trip.position]
        replayed = driver.send("POST", "/charges", {"amount": 1})
        driver.send("POST", "/charges", {"amount": 2})
        trip.resume()
        positions.append(trip.position)

    assert ([0, 2], (404, "replayed")) == (positions, (replayed.status, replayed.told))


@ALL
def test_calls_without_numbers_get_their_key_from_what_they_ask(opened: Open, api: DemoApi, trip: Workflow) -> None:
    """With `numbered=False` a route with `key: derive` tells them apart, in whatever order they come."""
    before = api.charges()
    told = []
    for order in ((1, 2), (2, 1)):
        with opened(again(trip), numbered=False) as driver:
            told.append([driver.send("POST", "/derived/charges", {"amount": amount}).told for amount in order])
    found = trip.checkpoint()

    assert ([["executed"] * 2, ["replayed"] * 2], 2) == (told, api.charges() - before)
    assert [None, None] == [step.step for step in (found.steps if found else ())]


def test_calls_without_numbers_may_run_side_by_side(api: DemoApi, trip: Workflow) -> None:
    """Two agents that make the same calls at once, in another order, make each once."""
    before = api.charges()
    amounts = ([1, 2, 3, 4], [4, 3, 2, 1])
    with Httpx(trip, numbered=False) as one, Httpx(again(trip), numbered=False) as other, ThreadPoolExecutor(8) as pool:
        made = [
            pool.submit(driver.send, "POST", "/derived/charges", {"amount": amount})
            for driver, order in zip((one, other), amounts, strict=True)
            for amount in order
        ]
        statuses = {each.result(30).status for each in made}

    assert ({201}, 4) == (statuses, api.charges() - before)


@ALL
def test_a_call_that_passes_without_a_key_is_warned_of(opened: Open, trip: Workflow) -> None:
    """On a route that derives no key a call without a number is not protected: that is told once."""
    with opened(trip, numbered=False) as driver, pytest.warns(UnprotectedCallWarning, match="passed without a key") as warned:
        told = [driver.send("POST", "/charges", {"amount": 1}).told for _ in range(2)]

    assert (["bypassed", "bypassed"], 1) == (told, len(warned))


def test_responses_of_each_library_are_understood(program: Program) -> None:
    """Without a client of ours: what the proxy refused is raised from the response, and `outcome` says what became of others."""
    url, bad = f"{program.url}/charges", {**TENANT, "Workflow-Id": "a", "Workflow-Step": "b_step_c"}
    good = {**TENANT, "Idempotency-Key": "responses"}

    async def with_aiohttp() -> list[str | None]:
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json={"amount": 1}, headers=good) as answer:
                raise_for_problem(answer)
                told = [outcome(answer)]
            async with session.post(url, json={"amount": 1}, headers=bad) as answer:
                with pytest.raises(ValueError, match=r"await response.read\(\)"):
                    raise_for_problem(answer)
                await answer.read()
                with pytest.raises(KeyInvalidError) as caught:
                    raise_for_problem(answer)
                return [*told, outcome(caught.value.response)]

    told = []
    for post in (httpx.post, requests.post):
        answer = post(url, json={"amount": 1}, headers=good, timeout=30)
        raise_for_problem(answer)
        told.append(outcome(answer))
        with pytest.raises(KeyInvalidError) as caught:
            raise_for_problem(post(url, json={"amount": 1}, headers=bad, timeout=30))
        told.append(outcome(caught.value.response))

    assert ["executed", "refused", "replayed", "refused", "replayed", "refused"] == told + asyncio.run(with_aiohttp())
