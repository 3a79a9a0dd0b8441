"""One proxy for these tests, with two upstreams that are one scripted server, two tenants, and what its log says."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.process.asking import Answer, Fields, ask, exchange
from tests.wire.upstream import Upstream, answers
from tests.wire.watched import Watched, watched

ROUTES: Final = [
    {"name": "second", "match": {"path": "/second/**"}, "upstream": "second"},
    {"name": "brief", "match": {"path": "/brief/**"}, "upstream": "first", "retention": "1ms"},
    {"name": "small", "match": {"path": "/small/**"}, "upstream": "first", "max_stored_body": "4B"},
    {"name": "personal", "match": {"path": "/personal/**"}, "upstream": "first", "scope": {"headers": ["x-tenant", "x-user"]}},
    {"name": "rest", "upstream": "first"},
]
ANN: Final = (("X-Tenant", "ann"),)
BOB: Final = (("X-Tenant", "bob"),)


@dataclass(frozen=True)
class House:
    """The proxy and its upstream, and a name for a workflow, and for keys, that no other test uses."""

    proxy: Watched
    upstream: Upstream
    name: str

    def get(self, target: str, fields: Fields = ANN, method: str = "GET") -> Answer:
        """Ask for a page below the reserved prefix."""
        return ask(self.proxy.program.url, method=method, target=f"/_idemproxy/{target}", body=b"", fields=fields)

    def put(self, body: bytes, *fields: tuple[str, str]) -> Answer:
        """Save a memory, without the Content-Type that is usual unless `fields` have one."""
        return self.send(body, *(f"{name}: {value}" for name, value in fields), f"Content-Length: {len(body)}")

    def send(self, body: bytes, *lines: str) -> Answer:
        """Save a memory that comes as it is, under these field lines."""
        tenant = [f"{name}: {value}" for name, value in ANN]
        head = [f"PUT /_idemproxy/workflows/{self.name}/memory HTTP/1.1", "Host: proxy.test", *tenant, *lines, "", ""]
        return exchange(self.proxy.program.url, "\r\n".join(head).encode("latin-1") + body, "PUT")

    def step(self, step: str | None, *fields: tuple[str, str], target: str = "/charges", key: str | None = None) -> Answer:
        """Send a write, as a step of this test's workflow."""
        told = [("Workflow-Id", self.name), *([("Workflow-Step", step)] if step else []), *fields]
        return ask(self.proxy.program.url, key, target=target, fields=(*ANN, *told))

    def write(self, key: str, fields: Fields = ANN, target: str = "/charges") -> Answer:
        """Send a write with a key."""
        return ask(self.proxy.program.url, key, target=target, fields=fields)

    def checkpoint(self, fields: Fields = ANN) -> dict[str, Any]:
        """The checkpoint of this test's workflow."""
        return self.get(f"workflows/{self.name}", fields).document


def answer(status: int, body: bytes, *lines: str) -> bytes:
    """An upstream's answer."""
    head = [f"HTTP/1.1 {status} Whatever", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def json_answer(status: int, value: object) -> bytes:
    """An upstream's answer in JSON."""
    return answer(status, json.dumps(value).encode(), "Content-Type: application/json")


MADE: Final = json_answer(201, {"id": "ch_1"})


@pytest.fixture(scope="session")
def _built() -> Iterator[tuple[Watched, Upstream]]:
    upstream = Upstream()
    settings = {
        "upstreams": {"first": {"url": upstream.url}, "second": {"url": upstream.url}},
        "scope": {"headers": ["x-tenant"]},
        "routes": ROUTES,
        "defaults": {"wait": "0s"},
    }
    try:
        with watched(settings) as proxy:
            yield proxy, upstream
    finally:
        upstream.close()


@pytest.fixture
def house(_built: tuple[Watched, Upstream]) -> House:
    """The proxy, whose upstream answers 201 with `{"id": "ch_1"}` until it is told otherwise."""
    proxy, upstream = _built
    upstream.plays(answers(MADE))
    return House(proxy, upstream, f"trip-{uuid.uuid4()}")
