"""An upstream in the test's own process: it notes what arrives, and answers when the test lets it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

LONGEST: Final = 50.0
"""Seconds after which a held answer leaves all the same, so that a failing test ends."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it arrived, whole."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes


class Upstream(ThreadingHTTPServer):
    """Acts on every request that it gets: answer number n is `{"id": "op_n"}`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.arrived: list[Arrival] = []
        self.answered_at = 0.0
        """When the latest answer left, on the monotonic clock."""
        self.answers = True
        """Without, a request is acted upon, and its connection ends with no answer."""
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        """Keep every answer back from now on."""
        self._open.clear()

    def let_go(self) -> None:
        """Give the answers that were kept back, and every later one at once."""
        self._open.set()

    def act(self, arrival: Arrival) -> bytes | None:
        """Note the request; the answer's body, None for no answer."""
        self.arrived.append(arrival)
        body = json.dumps({"id": f"op_{len(self.arrived)}"}).encode()
        self._open.wait(LONGEST)
        self.answered_at = time.monotonic()
        return body if self.answers else None

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        """A proxy that was killed has left its connections: nothing to tell."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Conversation(BaseHTTPRequestHandler):
    """One connection, kept open."""

    server: Upstream
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.server.act(Arrival(self.command, self.path, self.headers.items(), body))
        if answer is None:
            self.close_connection = True
            return
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base class's names

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base class has it
        """Say nothing."""


@contextmanager
def upstream() -> Iterator[Upstream]:
    """An upstream on a port of its own, ended with the context."""
    with Upstream() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        serving.start()
        try:
            yield server
        finally:
            server.let_go()
            server.shutdown()
            serving.join()
