"""LangGraph as it is installed: what makes it run a node again makes a second charge, and one through the proxy."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.agents.shop import BOTH_WAYS, Shop
from tests.topologies import until

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

    from examples.langgraph_agent import Order


def _agent(url: str, timeout: float = 30) -> CompiledStateGraph[Order, None, Order, Order]:
    """The example's graph, its checkpoints in memory."""
    from langgraph.checkpoint.memory import InMemorySaver

    from examples.langgraph_agent import agent

    return agent(url, InMemorySaver(), timeout)


def _thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def _asked_about(reached: dict[str, Any]) -> str:
    """The charge about which the graph asks."""
    question: str = reached["__interrupt__"][0].value
    return question.partition(":")[0]


@BOTH_WAYS
def test_a_node_that_is_retried_after_a_timeout_charges_once(shop: Shop, way: str, effects: int, key: str) -> None:
    """RetryPolicy runs the node again; through the proxy the second call gets the answer that the first did not wait for."""
    shop.api.fault("delay_after=0.8")

    reached = _agent(shop.urls[way], timeout=0.5).invoke({"customer": key, "amount": 4200}, _thread(key))

    made = shop.made(key)
    assert (effects, _asked_about(reached)) == (len(made), made[-1]["id"])


@BOTH_WAYS
def test_a_node_that_is_resumed_after_an_interrupt_charges_once(shop: Shop, way: str, effects: int, key: str) -> None:
    """The answer to `interrupt` runs the node from its first line; the refund is a step of its own, and one in any case."""
    from langgraph.types import Command

    graph = _agent(shop.urls[way])

    graph.invoke({"customer": key, "amount": 4200}, _thread(key))
    ended = graph.invoke(Command(resume=False), _thread(key))

    *charges, refund = shop.made(key)
    assert (effects, ended["charge"]) == (len(charges), charges[-1]["id"])
    assert (ended["refund"], ended["charge"]) == (refund["id"], refund["charge"])


def test_a_thread_stops_where_the_outcome_is_unknown(shop: Shop, key: str) -> None:
    """The answer is lost after the charge: RetryPolicy tries again after the 502, not after the 409, and there is one charge."""
    shop.api.fault("reset_after")

    with pytest.raises(httpx.HTTPStatusError) as stopped:
        _agent(shop.urls["through the proxy"]).invoke({"customer": key, "amount": 4200}, _thread(key))

    assert (409, "outcome-unknown") == (stopped.value.response.status_code, stopped.value.response.json()["type"])
    assert 1 == len(shop.made(key))


def test_threads_whose_process_was_killed_charge_once(shop: Shop, key: str, tmp_path: Path) -> None:
    """Kill -9 in a node, after the charge and before its answer; another process resumes from the checkpoints on disk."""
    from examples import langgraph_agent

    killed = {}
    for way, url in shop.urls.items():
        shop.api.fault("delay_after=3")
        killed[way] = subprocess.Popen([sys.executable, langgraph_agent.__file__, url, f"{way[0]}-{key}", str(tmp_path / way)])
    until(lambda: all(shop.made(f"{way[0]}-{key}") for way in killed), "the cards are not charged")
    for process in killed.values():
        process.kill()
    statuses = {process.wait() for process in killed.values()}

    reached = {way: langgraph_agent.run(url, f"{way[0]}-{key}", str(tmp_path / way)) for way, url in shop.urls.items()}

    made = {way: [charge["id"] for charge in shop.made(f"{way[0]}-{key}")] for way in killed}
    assert {-signal.SIGKILL} == statuses
    assert {"directly": 2, "through the proxy": 1} == {way: len(charges) for way, charges in made.items()}
    assert {way: charges[-1] for way, charges in made.items()} == {way: _asked_about(each) for way, each in reached.items()}


def test_a_thread_that_has_ended_is_not_begun_again(shop: Shop, key: str, tmp_path: Path) -> None:
    """Who starts the example once more gets what the thread came to, and nothing happens."""
    from examples.langgraph_agent import run

    url, checkpoints = shop.urls["through the proxy"], str(tmp_path / "checkpoints.db")

    run(url, key, checkpoints)
    ended = run(url, key, checkpoints, answer=False)

    assert ended == run(url, key, checkpoints)
    assert [ended["charge"], ended["refund"]] == [each["id"] for each in shop.made(key)]


def test_a_step_keeps_its_name_when_every_checkpoint_is_lost() -> None:
    """Nodes in a loop and nodes that `Send` starts have names of their own, the same in another run; task ids are others."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph
    from langgraph.runtime import get_runtime
    from langgraph.types import Send

    from examples.langgraph_agent import Order, step

    def run_anew() -> list[tuple[str, str]]:
        ran: list[tuple[str, str]] = []

        def node(state: Order, config: RunnableConfig) -> Order:
            info = get_runtime().execution_info
            assert info is not None
            ran.append((step(config)["Workflow-Step"], info.task_id))
            return {}

        graph = StateGraph(Order).add_node("loop", node).add_node("parallel", node).add_edge(START, "loop")
        graph.add_conditional_edges("loop", lambda _: "loop" if len(ran) < 2 else [Send("parallel", {}), Send("parallel", {})])
        graph.compile(checkpointer=InMemorySaver()).invoke({}, _thread("trip"))
        return sorted(ran)

    first, second = run_anew(), run_anew()

    names = ["1-loop", "2-loop", "3-parallel-0", "3-parallel-1"]
    assert [names, names] == [[name for name, _ in ran] for ran in (first, second)]
    assert set() == {task for _, task in first} & {task for _, task in second}


def test_a_write_in_a_subgraph_needs_a_name_of_its_own() -> None:
    """A subgraph that runs twice would give both of its writes one name: none is given."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph

    from examples.langgraph_agent import Order, step

    def node(state: Order, config: RunnableConfig) -> Order:
        step(config)
        return {}

    inner = StateGraph(Order).add_node("inner", node).add_edge(START, "inner").compile()
    outer = StateGraph(Order).add_node("sub", inner).add_edge(START, "sub").compile(checkpointer=InMemorySaver())

    with pytest.raises(ValueError, match="names of their own"):
        outer.invoke({}, _thread("trip"))
