"""An `openai` client whose retries do not pay for a completion twice.

What goes wrong without the proxy: the client sends a POST again, twice by default, after a time-out or a broken connection,
without a key. A completion that takes longer than the client waits is generated, and paid, once for each try; so is what the
model's server does on the way. A run that begins again after a crash pays for all of its completions once more.

What to change: the base URL, a `Workflow-Id` for the run, and `key: derive` on the route. The key is then made of the workflow,
the route and the request itself, which is the same on every try. A request that is meant twice in one workflow needs a
`Workflow-Step` of its own each time, in `extra_headers`.
"""

from __future__ import annotations

import openai


def client(base_url: str, workflow_id: str, timeout: float = 600) -> openai.OpenAI:
    """The client with its own retries; the API's key is taken from OPENAI_API_KEY, as always."""
    return openai.OpenAI(base_url=base_url, default_headers={"Workflow-Id": workflow_id}, timeout=timeout)


def ask(api: openai.OpenAI, question: str, model: str = "gpt-5") -> str | None:
    """One completion."""
    completion = api.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
    return completion.choices[0].message.content
