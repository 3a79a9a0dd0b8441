"""An agent of the OpenAI Agents SDK whose tools act once, when a call fails and when the whole run is begun again.

What goes wrong without the proxy: a tool whose call failed tells the model "An error occurred ... Please try again", though the
card may have been charged; and a run that died is begun again, and its model calls every tool once more, under new call ids.

What to change: the client of the tools. It sends to the proxy, and numbers the writes in the order of the calls; a call that
failed keeps its number. The tools that a model calls in one turn run one by one, so that they are numbered in its order.

Try it: `idemproxy demo-api` and `idemproxy run --upstream http://127.0.0.1:9000`, each in a terminal of its own, and then
`python examples/openai_agents_sdk.py http://127.0.0.1:8080 trip-17`, twice. A script stands in for the model.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolExecutionConfig,
    Usage,
    function_tool,
)
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from idemproxy.agent import Workflow, WorkflowDivergedError
from idemproxy.agent.httpx import async_client


def told(_context: RunContextWrapper[Any], error: Exception) -> str:
    """What a model is told of a call that failed: a problem of the proxy says whether it was executed, and how to try again.

    That this run is not the one before is nothing that a model could mend: it ends the run.
    """
    if isinstance(error, WorkflowDivergedError):
        raise error
    return f"{type(error).__name__}: {error}"


def agent(http: httpx.AsyncClient, model: Model) -> Agent:
    """An agent with two tools that write."""

    @function_tool(failure_error_function=told)
    async def charge_card(customer: str, amount: int) -> str:
        """Charge a customer's card, in cents."""
        return (await http.post("/charges", json={"customer": customer, "amount": amount})).raise_for_status().text

    @function_tool(failure_error_function=told)
    async def refund_charge(charge: str) -> str:
        """Refund a charge."""
        return (await http.post("/refunds", json={"charge": charge})).raise_for_status().text

    return Agent(name="cashier", instructions="Charge, then refund.", tools=[charge_card, refund_charge], model=model)


async def run(base_url: str, workflow_id: str, model: Model, timeout: float = 30) -> str:
    """Run the agent from the start; what an earlier run of the workflow has done is answered, and not done again."""
    settings = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1), tracing_disabled=True)
    async with async_client(Workflow(workflow_id, proxy=base_url), timeout=timeout) as http:
        ended = await Runner.run(agent(http, model), workflow_id, run_config=settings)
    return str(ended.final_output)


class Scripted(Model):
    """Stands in for a model: two charges in one turn, then a refund of the first. What failed is tried again."""

    async def get_response(self, *_: Any, **request: Any) -> ModelResponse:
        """What the model says after what the tools have said so far."""
        items = request["input"]
        asked = {item["call_id"]: item["arguments"] for item in items if item.get("type") == "function_call"}
        said = [(asked[item["call_id"]], item["output"]) for item in items if item.get("type") == "function_call_output"]
        done = {arguments: json.loads(output) for arguments, output in said if output.startswith("{")}
        charges = [json.dumps({"customer": items[0]["content"], "amount": amount}) for amount in (4200, 900)]
        if left := [charge for charge in charges if charge not in done]:
            return ModelResponse([_call("charge_card", charge) for charge in left], Usage(), None)
        refund = json.dumps({"charge": done[charges[0]]["id"]})
        if refund not in done:
            return ModelResponse([_call("refund_charge", refund)], Usage(), None)
        text = ResponseOutputText(type="output_text", text=done[refund]["id"], annotations=[])
        message = ResponseOutputMessage(id="m-1", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse([message], Usage(), None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Not asked for."""
        raise NotImplementedError


def _call(tool: str, arguments: str) -> ResponseFunctionToolCall:
    """A call under an id that no other run will have, as with a real model."""
    return ResponseFunctionToolCall(type="function_call", call_id=f"call_{uuid.uuid4().hex}", name=tool, arguments=arguments)


if __name__ == "__main__":
    url, workflow = sys.argv[1:]
    print(asyncio.run(run(url, workflow, Scripted())))
