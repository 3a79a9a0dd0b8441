"""A plain tool loop that begins again from the start after a crash, and goes on where it was.

What goes wrong without the proxy: the loop keeps nothing, so that a second run does again what the first one did. The ids of the
model's tool calls are no help as keys: they are new on every run.

What to change: the base URL, and the client, which numbers its writes 1, 2, 3 ... in the order of the calls. On a second run each
finished write is answered from the proxy's records, the model reads the same answers, and so comes to the place of the crash.
Where it asks for something else on the way, `KeyReusedError` is raised, and nothing is done.

Try it: `idemproxy demo-api` and `idemproxy run --upstream http://127.0.0.1:9000`, each in a terminal of its own, and then
`python examples/plain_loop.py http://127.0.0.1:8080 trip-17`, twice. A script stands in for the model.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from idemproxy.agent import Workflow
from idemproxy.agent.httpx import client

Message: TypeAlias = dict[str, Any]
Model: TypeAlias = Callable[[list[Message]], Message]
"""What the assistant says next: text in `content`, or `tool_calls` of `id`, `name`, `arguments`."""

PATHS = {"charge_card": "/charges", "refund_charge": "/refunds"}


def run(base_url: str, workflow_id: str, model: Model) -> str:
    """Let the model act until it has no more calls; what it says then."""
    messages: list[Message] = [{"role": "user", "content": f"Customer: {workflow_id}"}]
    with client(Workflow(workflow_id, proxy=base_url)) as http:
        while calls := (message := model(messages)).get("tool_calls"):
            messages.append(message)
            for call in calls:
                answer = http.post(PATHS[call["name"]], json=call["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer.text})
    return str(message["content"])


def scripted(messages: list[Message]) -> Message:
    """Charge a customer twice, refund the first charge, and say the refund's id."""
    customer = messages[0]["content"].removeprefix("Customer: ")
    match [json.loads(message["content"]) for message in messages if message["role"] == "tool"]:
        case []:
            return _calls("charge_card", {"customer": customer, "amount": 4200}, {"customer": customer, "amount": 4200})
        case [charge, _]:
            return _calls("refund_charge", {"charge": charge["id"]})
        case [*_, refund]:
            return {"role": "assistant", "content": refund["id"]}
    raise AssertionError("the last case takes all that is left")


def _calls(name: str, *arguments: dict[str, Any]) -> Message:
    """Calls of one tool under ids that no other run will have, as with a real model."""
    made = [{"id": f"call_{uuid.uuid4().hex}", "name": name, "arguments": each} for each in arguments]
    return {"role": "assistant", "tool_calls": made}


if __name__ == "__main__":
    url, workflow = sys.argv[1:]
    print(run(url, workflow, scripted))
