"""An `anthropic` client whose retries do not pay for a message twice.

What goes wrong without the proxy, and what to change, is as in `openai_client.py`: the client retries in the same way.
"""

from __future__ import annotations

import anthropic


def client(base_url: str, workflow_id: str, timeout: float = 600) -> anthropic.Anthropic:
    """The client with its own retries; the API's key is taken from ANTHROPIC_API_KEY, as always."""
    return anthropic.Anthropic(base_url=base_url, default_headers={"Workflow-Id": workflow_id}, timeout=timeout)


def ask(api: anthropic.Anthropic, question: str, model: str = "claude-opus-4-1") -> str:
    """One message."""
    message = api.messages.create(model=model, max_tokens=100, messages=[{"role": "user", "content": question}])
    return "".join(block.text for block in message.content if block.type == "text")
