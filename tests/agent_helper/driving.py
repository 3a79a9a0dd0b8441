"""HTTP clients, each with its integration, driven in one way; and a server in the place of the proxy that keeps what it gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Final, Protocol, Self

import aiohttp
import pytest
import requests

import idemproxy.agent.requests
from idemproxy.agent import Workflow
from idemproxy.agent.aiohttp import middleware
from idemproxy.agent.httpx import async_client, client


@dataclass(frozen=True, slots=True)
class Got:
    """An answer: its status, what `Idempotency-Status` says, and its JSON."""

    status: int
    told: str
    value: Any


class Driver(Protocol):
    """An open client."""

    def send(self, method: str, url: str, content: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Got:
        """Send JSON, or nothing, and follow redirects."""

    def __enter__(self) -> Self:
        """Open it."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""


def _got(status: int, fields: Mapping[str, str], body: bytes) -> Got:
    return Got(status, fields.get("Idempotency-Status", "").partition(";")[0], json.loads(body) if body else None)


class Httpx:
    """The synchronous client."""

    def __init__(self, workflow: Workflow, *, numbered: bool = True) -> None:
        self._client = client(workflow, numbered=numbered, follow_redirects=True)

    def send(self, method: str, url: str, content: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Got:
        """Send JSON, or nothing, and follow redirects."""
        answer = self._client.request(method, url, json=content, headers=headers)
        return _got(answer.status_code, answer.headers, answer.content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


class AsyncHttpx:
    """The asynchronous client."""

    def __init__(self, workflow: Workflow, *, numbered: bool = True) -> None:
        self._loop = asyncio.Runner()
        self._client = async_client(workflow, numbered=numbered, follow_redirects=True)

    def send(self, method: str, url: str, content: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Got:
        """Send JSON, or nothing, and follow redirects."""
        answer = self._loop.run(self._client.request(method, url, json=content, headers=headers))
        return _got(answer.status_code, answer.headers, answer.content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()


class Requests:
    """A session."""

    def __init__(self, workflow: Workflow, *, numbered: bool = True) -> None:
        self.session: requests.Session = idemproxy.agent.requests.session(workflow, numbered=numbered)

    def send(self, method: str, url: str, content: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Got:
        """Send JSON, or nothing, and follow redirects."""
        answer = self.session.request(method, url, json=content, headers=headers)
        return _got(answer.status_code, answer.headers, answer.content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()


class Aiohttp:
    """A session with the middleware."""

    def __init__(self, workflow: Workflow, *, numbered: bool = True) -> None:
        self._loop = asyncio.Runner()
        self._session = self._loop.run(self._open(workflow, numbered=numbered))

    async def _open(self, workflow: Workflow, *, numbered: bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(workflow.proxy, middlewares=[middleware(workflow, numbered=numbered)])

    def send(self, method: str, url: str, content: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Got:
        """Send JSON, or nothing, and follow redirects."""
        return self._loop.run(self._send(method, url, content, headers))

    async def _send(self, method: str, url: str, content: dict[str, Any] | None, headers: Mapping[str, str] | None) -> Got:
        async with self._session.request(method, url, json=content, headers=headers) as answer:
            return _got(answer.status, answer.headers, await answer.read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._session.close())
        self._loop.close()


class Open(Protocol):
    """How a driver is opened."""

    def __call__(self, workflow: Workflow, *, numbered: bool = True) -> Driver:
        """With the integration of its library."""


DRIVERS: Final = [
    pytest.param(Httpx, id="httpx"),
    pytest.param(AsyncHttpx, id="httpx-async"),
    pytest.param(Requests, id="requests"),
    pytest.param(Aiohttp, id="aiohttp"),
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server is to answer; a `status` of 0 breaks the connection off."""

    status: int = 201
    fields: Mapping[str, str] = field(default_factory=lambda: {"Idempotency-Status": "executed"})
    body: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class Request:
    """What the server has got; names of fields in lower case."""

    method: str
    path: str
    fields: Mapping[str, str]
    body: bytes

    @property
    def step(self) -> str | None:
        """The step that it names."""
        return self.fields.get("workflow-step")


@dataclass(slots=True)
class Server:
    """A server at `url` that gives its `answers` in order, and then Answer() for ever."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    got: list[Request] = field(default_factory=list)

    @property
    def steps(self) -> list[str | None]:
        """The step of every request, in order."""
        return [each.step for each in self.got]


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a port of its own, ended with the context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.close_connection = True
            if not (line := self.rfile.readline(65537)):
                return
            self.raw_requestline = line
            if self.parse_request():
                self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fields = {name.lower(): value for name, value in self.headers.items()}
            server.got.append(Request(self.command, self.path, fields, body))
            answer = server.answers.pop(0) if server.answers else Answer()
            self.close_connection = True
            if answer.status == 0:
                return
            self.send_response(answer.status)
            for name, value in {**answer.fields, "Content-Length": str(len(answer.body)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body if self.command != "HEAD" else b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}")
    thread = Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
