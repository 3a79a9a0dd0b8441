"""HTTP clients as people use them, unmodified: the same keyed POST twice is one charge, whoever sends it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import aiohttp
import httpx
import pytest
import requests

from tests.processes import DemoApi, Program, demo_api, proxy

BODY: Final = '{"amount": 4200, "customer": "ann"}'
FETCH: Final = Path(__file__).with_name("fetch_twice.mjs")


@dataclass(frozen=True, slots=True)
class Got:
    """An answer as a client gives it to its user; names of fields in lower case."""

    status: int
    fields: Mapping[str, str]
    body: bytes


Twice: TypeAlias = Callable[[str, str], list[Got]]
"""Send BODY to a URL under a key, twice."""


def _got(status: int, fields: Mapping[str, str], body: bytes) -> Got:
    return Got(status, {name.lower(): value for name, value in fields.items()}, body)


def _fields(key: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "Idempotency-Key": key}


def with_requests(url: str, key: str) -> list[Got]:
    """A session, so that the second request may share the first one's connection."""
    with requests.Session() as session:
        answers = [session.post(url, data=BODY, headers=_fields(key), timeout=30) for _ in range(2)]
    return [_got(answer.status_code, answer.headers, answer.content) for answer in answers]


def with_httpx(url: str, key: str) -> list[Got]:
    """The synchronous client."""
    with httpx.Client() as client:
        answers = [client.post(url, content=BODY, headers=_fields(key)) for _ in range(2)]
    return [_got(answer.status_code, answer.headers, answer.content) for answer in answers]


def with_async_httpx(url: str, key: str) -> list[Got]:
    """The asynchronous client."""

    async def twice() -> list[httpx.Response]:
        async with httpx.AsyncClient() as client:
            return [await client.post(url, content=BODY, headers=_fields(key)) for _ in range(2)]

    return [_got(answer.status_code, answer.headers, answer.content) for answer in asyncio.run(twice())]


def with_aiohttp(url: str, key: str) -> list[Got]:
    """A client session."""

    async def once(session: aiohttp.ClientSession) -> Got:
        async with session.post(url, data=BODY, headers=_fields(key)) as answer:
            return _got(answer.status, answer.headers, await answer.read())

    async def twice() -> list[Got]:
        async with aiohttp.ClientSession() as session:
            return [await once(session) for _ in range(2)]

    return asyncio.run(twice())


def with_curl(url: str, key: str) -> list[Got]:
    """Two runs of the command; the answer's fields as curl itself understood them."""
    got = []
    for _ in range(2):
        fields = [option for name, value in _fields(key).items() for option in ("-H", f"{name}: {value}")]
        told = ["-w", "%{stderr}%{http_code} %{header_json}"]
        ran = subprocess.run(["curl", "-sS", *told, *fields, "-d", BODY, url], capture_output=True, check=True, timeout=30)
        status, _, names = ran.stderr.decode().partition(" ")
        got.append(_got(int(status), {name: ", ".join(values) for name, values in json.loads(names).items()}, ran.stdout))
    return got


def with_fetch(url: str, key: str) -> list[Got]:
    """Node's own fetch, in one program that sends both."""
    ran = subprocess.run(["node", str(FETCH), url, key, BODY], capture_output=True, check=True, timeout=30)
    return [_got(each["status"], each["fields"], each["body"].encode()) for each in json.loads(ran.stdout)]


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


CLIENTS: Final = [
    pytest.param(with_requests, id="requests"),
    pytest.param(with_httpx, id="httpx"),
    pytest.param(with_async_httpx, id="httpx-async"),
    pytest.param(with_aiohttp, id="aiohttp"),
    pytest.param(with_curl, id="curl", marks=_needs("curl")),
    pytest.param(with_fetch, id="fetch", marks=_needs("node")),
]


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    """The sample upstream, which charges again on every call."""
    with demo_api() as running:
        yield running


@pytest.fixture(scope="module")
def front(api: DemoApi, store_url: str) -> Iterator[Program]:
    """The proxy in front of it, on each store."""
    with proxy("--upstream", api.url, "--store", store_url) as running:
        yield running


@pytest.mark.parametrize("twice", CLIENTS)
def test_the_same_keyed_post_twice_is_one_charge(twice: Twice, api: DemoApi, front: Program, key: str) -> None:
    """One charge in the upstream's ledger, the same answer twice, and the second one says that it is a replay."""
    before = api.charges()

    first, second = twice(f"{front.url}/charges", key)

    assert before + 1 == api.charges()
    assert [201, 201] == [first.status, second.status]
    assert first.body == second.body
    assert 4200 == json.loads(first.body)["amount"]
    assert first.fields["location"] == second.fields["location"]
    assert [None, "true"] == [first.fields.get("idempotent-replayed"), second.fields.get("idempotent-replayed")]
    told = [got.fields["idempotency-status"].partition(";")[0] for got in (first, second)]
    assert ["executed", "replayed"] == told


@pytest.mark.parametrize("twice", CLIENTS)
def test_the_same_post_twice_without_the_proxy_is_two_charges(twice: Twice, api: DemoApi, key: str) -> None:
    """The upstream itself charges each time: it is the proxy that makes the difference."""
    before = api.charges()

    twice(f"{api.url}/charges", key)

    assert before + 2 == api.charges()
