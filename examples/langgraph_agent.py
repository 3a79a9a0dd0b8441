"""A LangGraph agent that charges a card once, however often LangGraph runs the node.

What goes wrong without the proxy: LangGraph runs a node from its first line, and so charges again, when (a) its RetryPolicy
retries a call that timed out, (b) the graph is resumed after `interrupt()`, (c) a thread is resumed whose process was killed.

What to change: the base URL, and the headers that `step` makes.

Try it: `idemproxy demo-api` and `idemproxy run --upstream http://127.0.0.1:9000`, each in a terminal of its own, and then
`python examples/langgraph_agent.py http://127.0.0.1:8080 order-17 checkpoints.db`, killed and started again where you like. With
`yes` or `no` at its end it answers the question that the graph asks.
"""

from __future__ import annotations

import sys
from typing import Any, TypedDict

import httpx
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, RetryPolicy, interrupt


class Order(TypedDict, total=False):
    """What the graph knows of an order."""

    customer: str
    amount: int
    charge: str
    refund: str
    accepted: bool


def step(config: RunnableConfig) -> dict[str, str]:
    """The headers that name the write of a node; a node that writes twice puts a name of its own behind each step.

    Node and superstep stay when the node is retried, resumed, or run again by another process. `checkpoint_id`, `task_id` and
    `checkpoint_ns` need not: with the default durability, a process that is killed may not have saved what they come from.
    Raises ValueError in a subgraph, which counts supersteps of its own: name its writes by what they are for.
    """
    ran = config["metadata"]
    node, superstep, place = ran["langgraph_node"], ran["langgraph_step"], ran["langgraph_path"][1]
    if "|" in ran["langgraph_checkpoint_ns"]:
        raise ValueError(f"{node} runs in a subgraph, maybe more than once: its writes need names of their own")
    # `place` is the node's name, or its number among the nodes that `Send` has started.
    name = f"{superstep}-{node}" if place == node else f"{superstep}-{node}-{place}"
    return {"Workflow-Id": config["configurable"]["thread_id"], "Workflow-Step": name, "Workflow-Action": node}


def agent(base_url: str, saver: BaseCheckpointSaver[Any], timeout: float = 30) -> CompiledStateGraph[Order, None, Order, Order]:
    """A graph of two nodes that write: one charges and asks a person, the other refunds what was not accepted."""

    def post(path: str, body: dict[str, object], config: RunnableConfig) -> str:
        answer = httpx.post(f"{base_url}{path}", json=body, headers=step(config), timeout=timeout)
        made: str = answer.raise_for_status().json()["id"]
        return made

    def charge(state: Order, config: RunnableConfig) -> Order:
        made = post("/charges", {"customer": state["customer"], "amount": state["amount"]}, config)
        return {"charge": made, "accepted": interrupt(f"{made}: {state['amount']} for {state['customer']}. Keep it?")}

    def refund(state: Order, config: RunnableConfig) -> Order:
        return {"refund": post("/refunds", {"charge": state["charge"]}, config)}

    graph = StateGraph(Order)
    graph.add_node("charge", charge, retry_policy=RetryPolicy(max_attempts=5))
    graph.add_node("refund", refund, retry_policy=RetryPolicy(max_attempts=5))
    graph.add_edge(START, "charge")
    graph.add_conditional_edges("charge", lambda state: END if state["accepted"] else "refund")
    graph.add_edge("refund", END)
    return graph.compile(checkpointer=saver)


def run(base_url: str, thread_id: str, checkpoints: str, *, answer: bool | None = None) -> dict[str, Any]:
    """Begin the thread, or go on with it, until it ends or asks; `answer` is what the person says to the question."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    with SqliteSaver.from_conn_string(checkpoints) as saver:
        graph = agent(base_url, saver)
        if answer is not None:
            return graph.invoke(Command(resume=answer), config)
        reached = graph.get_state(config)
        is_new = not reached.values and not reached.next  # an input to a thread that has ended would begin it once more
        return graph.invoke({"customer": thread_id, "amount": 4200} if is_new else None, config)


if __name__ == "__main__":
    url, thread, file, *words = sys.argv[1:]
    print(run(url, thread, file, answer={"yes": True, "no": False}[words[0]] if words else None))
