"""Forms and JSON as HTTP clients write them themselves: each sends one POST, with everything but the key left to it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote_plus

import aiohttp
import httpx
import pytest
import requests

SEND: Final = Path(__file__).with_name("send.mjs")
TIMEOUT: Final = 30


@dataclass(frozen=True, slots=True)
class File:
    """What a form uploads."""

    name: str
    type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """Fields in order, no name twice, and perhaps a file: with one the form is multipart, without it urlencoded."""

    fields: tuple[tuple[str, str], ...]
    file: File | None = None


@dataclass(frozen=True, slots=True)
class Got:
    """An answer."""

    status: int
    told: str
    body: bytes


Content: TypeAlias = Form | dict[str, Any]
Send: TypeAlias = Callable[[str, str | None, Content], Got]
"""Send a form, or a JSON object, to a URL under a key, or under none."""


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _got(status: int, fields: Mapping[str, str], body: bytes) -> Got:
    told = {name.lower(): value for name, value in fields.items()}.get("idempotency-status", "nothing")
    return Got(status, told.partition(";")[0], body)


def by_requests(url: str, key: str | None, content: Content) -> Got:
    """The function that everybody calls."""
    match content:
        case Form(fields, File() as file):
            files = {"file": (file.name, file.content, file.type)}
            answer = requests.post(url, data=dict(fields), files=files, headers=_headers(key), timeout=TIMEOUT)
        case Form(fields):
            answer = requests.post(url, data=dict(fields), headers=_headers(key), timeout=TIMEOUT)
        case _:
            answer = requests.post(url, json=content, headers=_headers(key), timeout=TIMEOUT)
    return _got(answer.status_code, answer.headers, answer.content)


def by_httpx(url: str, key: str | None, content: Content) -> Got:
    """Likewise."""
    match content:
        case Form(fields, File() as file):
            files = {"file": (file.name, file.content, file.type)}
            answer = httpx.post(url, data=dict(fields), files=files, headers=_headers(key), timeout=TIMEOUT)
        case Form(fields):
            answer = httpx.post(url, data=dict(fields), headers=_headers(key), timeout=TIMEOUT)
        case _:
            answer = httpx.post(url, json=content, headers=_headers(key), timeout=TIMEOUT)
    return _got(answer.status_code, answer.headers, answer.content)


def by_aiohttp(url: str, key: str | None, content: Content) -> Got:
    """A session of its own."""

    async def post() -> Got:
        form: aiohttp.FormData | None = None
        if isinstance(content, Form):
            form = aiohttp.FormData(content.fields)
            if content.file is not None:
                form.add_field("file", content.file.content, filename=content.file.name, content_type=content.file.type)
        said = None if isinstance(content, Form) else content
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=form, json=said, headers=_headers(key)) as answer,
        ):
            return _got(answer.status, answer.headers, await answer.read())

    return asyncio.run(post())


def by_curl(url: str, key: str | None, content: Content) -> Got:
    """The command; it has no writer of JSON, so that is given as it stands."""
    options = [option for name, value in _headers(key).items() for option in ("-H", f"{name}: {value}")]
    standard_input = b""
    match content:
        case Form(fields, File() as file):
            options += [option for name, value in fields for option in ("--form-string", f"{name}={value}")]
            options += ["-F", f'file=@-;filename="{file.name}";type={file.type}']
            standard_input = file.content
        case Form(fields):
            options += [option for name, value in fields for option in ("--data-urlencode", f"{quote_plus(name)}={value}")]
        case _:
            options += ["--json", json.dumps(content, indent=1)]
    command = ["curl", "-sS", "-w", "%{stderr}%{http_code} %{header_json}", *options, url]
    ran = subprocess.run(command, input=standard_input, capture_output=True, check=True, timeout=TIMEOUT)
    status, _, names = ran.stderr.decode().partition(" ")
    return _got(int(status), {name: values[0] for name, values in json.loads(names).items()}, ran.stdout)


def by_fetch(url: str, key: str | None, content: Content) -> Got:
    """Node's own fetch, which is undici's."""
    asked: dict[str, object] = {"url": url, "key": key}
    match content:
        case Form(fields, file):
            said = file and {"name": file.name, "type": file.type, "content": base64.b64encode(file.content).decode()}
            asked |= {"fields": fields, "file": said}
        case _:
            asked |= {"json": content}
    ran = subprocess.run(["node", str(SEND)], input=json.dumps(asked).encode(), capture_output=True, check=True, timeout=TIMEOUT)
    answer = json.loads(ran.stdout)
    return _got(answer["status"], answer["fields"], answer["body"].encode())


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


SENDERS: Final = [
    pytest.param(by_requests, id="requests"),
    pytest.param(by_httpx, id="httpx"),
    pytest.param(by_aiohttp, id="aiohttp"),
    pytest.param(by_curl, id="curl", marks=_needs("curl")),
    pytest.param(by_fetch, id="fetch", marks=_needs("node")),
]
