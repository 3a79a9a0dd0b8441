"""A model's server as the SDKs of OpenAI and Anthropic know it: each generation is counted, since each is paid."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What one request meets."""

    status: int | None = None
    """Of an error that takes the place of the answer."""
    retry_after: int | None = None
    paid: bool = True
    """Whether there is a generation nevertheless."""
    seconds: float = 0
    """How long the answer is late, after the generation."""


@dataclass(frozen=True, slots=True)
class Try:
    """A request as it arrived."""

    body: bytes
    retry_count: str | None
    """What the SDK says of itself in `x-stainless-retry-count`, None where it says nothing."""


@dataclass(slots=True)
class PaidModel:
    """What was generated, and what the next requests meet."""

    troubles: deque[Trouble] = field(default_factory=deque)
    tries: list[Try] = field(default_factory=list)
    generations: int = 0
    url: str = ""

    def generate(self, path: str) -> Json:
        """Generate once more; an answer with a text that no other one has."""
        self.generations += 1
        return ANSWERS[path](f"generation {self.generations}")


def _completion(text: str) -> Json:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}
    return {"id": "c-1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}


def _message(text: str) -> Json:
    content = [{"type": "text", "text": text}]
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "m-1", "type": "message", "role": "assistant", "model": "scripted", "content": content, "usage": usage}


ANSWERS: Final = {"/v1/chat/completions": _completion, "/v1/messages": _message}


@contextmanager
def paid_model() -> Iterator[PaidModel]:
    """A server on a port of its own, in threads of this process, ended with the context."""
    model = PaidModel()

    class Asked(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            model.tries.append(Try(body, self.headers["X-Stainless-Retry-Count"]))
            trouble = model.troubles.popleft() if model.troubles else Trouble()
            answer = model.generate(self.path) if trouble.paid else {}
            time.sleep(trouble.seconds)
            content = json.dumps({"error": {"message": "as asked"}} if trouble.status else answer).encode()
            self.send_response(trouble.status or 200)
            if trouble.retry_after is not None:
                self.send_header("Retry-After", str(trouble.retry_after))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        model.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield model
        finally:
            server.shutdown()
            serving.join()
