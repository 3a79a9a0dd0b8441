"""The admin listener on the wire: what goes wrong is a problem document, and no credentials or queries are logged."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from idemproxy.admin.access import Access
from idemproxy.admin.app import admin_server
from idemproxy.admin.health import Health
from idemproxy.admin.records import Records
from idemproxy.admin.sight import Alone
from idemproxy.observe.metrics import Metrics
from idemproxy.store.memory import MemoryStore
from tests.admin.desk import NOON

TOKEN: Final = "0123456789abcdef-0123456789abcdef"
SECRET: Final = "only-the-operator-knows"
RECORD: Final = "/records/shared/payments/a1"
MENTION: Final = f"?note={SECRET}"


class Faulty(MemoryStore):
    """A store that cannot list."""

    async def list(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - whatever is asked
        """Fail as no store should."""
        raise LookupError("a fault for the test")


class FaultyMetrics(Metrics):
    """Metrics that cannot be shown."""

    def render(self) -> tuple[bytes, str]:
        """Fail."""
        raise LookupError("a fault for the test")


@dataclass(frozen=True)
class Answer:
    """An answer as it came."""

    status: int
    head: bytes
    body: bytes

    @property
    def problem(self) -> tuple[int, str, str, str]:
        """What a problem document comes to: status, type, executed, retry."""
        document = json.loads(self.body)
        assert b"\r\nContent-Type: application/problem+json\r\n" in self.head
        assert self.status == document["status"]
        return self.status, document["type"], document["executed"], document["retry"]


class Line:
    """A connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *parts: str | bytes) -> None:
        """Send it as it stands."""
        self.writer.write(b"".join(part.encode() if isinstance(part, str) else part for part in parts))

    async def answer(self) -> Answer:
        """The next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return Answer(int(head.split(b" ")[1]), head, await self.reader.readexactly(length))

    async def rest(self) -> bytes:
        """Everything up to the end of the connection, which comes within the time of a test."""
        return await self.reader.read()


Connect = Callable[[], Any]


@pytest.fixture(name="connect")
async def fixture_connect(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Connect]:
    """Connections to a listener with a token; everything is logged that anybody has to say."""
    caplog.set_level(logging.DEBUG)
    lines = []
    records = Records(Faulty(lambda: NOON), {}, Access(TOKEN.encode()))
    async with admin_server(Alone(FaultyMetrics(["charges"], "memory"), Health({})), records) as protocols:
        server = await asyncio.get_running_loop().create_server(protocols, "127.0.0.1", 0)

        async def connect() -> Line:
            line = Line(*await asyncio.open_connection(*server.sockets[0].getsockname()))
            lines.append(line)
            return line

        yield connect
        for line in lines:
            line.writer.close()
        server.close()


def head(start: str, *fields: str) -> str:
    """The head of a request with the token."""
    return "\r\n".join([f"{start} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", *fields, "", ""])


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged here and by aiohttp, with tracebacks, as it would be written."""
    shown = logging.Formatter("%(name)s %(levelname)s %(message)s")
    return [shown.format(record) for record in caplog.records if (record.name, record.levelname) != ("asyncio", "DEBUG")]


JSON: Final = "Content-Type: application/json"
ERRORS: Final = {
    "no such page": (head(f"GET /nothing{MENTION}"), (404, "no-route", "no", "never")),
    "no such record": (head(f"GET {RECORD}{MENTION}"), (404, "record-absent", "no", "never")),
    "another method": (head(f"DELETE /livez{MENTION}"), (405, "method-not-allowed", "no", "never")),
    "too long": (
        head(f"POST {RECORD}/forget{MENTION}", JSON, "Content-Length: 3000000") + "0" * 3_000_000,
        (413, "body-too-large", "no", "never"),
    ),
    "no JSON by name": (head(f"POST {RECORD}/forget{MENTION}", "Content-Length: 0"), (415, "media-type", "no", "never")),
    "no JSON": (
        head(f"POST {RECORD}/forget{MENTION}", JSON, f"Content-Length: {len(SECRET)}") + SECRET,
        (400, "request-invalid", "no", "never"),
    ),
    "a parameter that is none": (head(f"GET /records{MENTION}"), (400, "request-invalid", "no", "never")),
    "another token": (
        f"GET /records{MENTION} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n",
        (401, "unauthorized", "no", "never"),
    ),
    "a wrongly framed body": (
        head(f"POST {RECORD}/forget{MENTION}", JSON, "Transfer-Encoding: chunked") + f"5\r\n12345\r\n{SECRET}\r\n",
        (400, "bad-request", "no", "new_key"),
    ),
    "a body that is not what its coding says": (
        head(f"POST {RECORD}/forget{MENTION}", JSON, "Content-Encoding: gzip", f"Content-Length: {len(SECRET)}") + SECRET,
        (400, "bad-request", "no", "new_key"),
    ),
    "another expectation": (head(f"GET /livez{MENTION}", f"Expect: {SECRET}"), (417, "bad-request", "no", "new_key")),
    "another expectation on no page": (head(f"GET /x{MENTION}", f"Expect: {SECRET}"), (417, "bad-request", "no", "new_key")),
    "a line that cannot be read": (head(f"GET /livez{MENTION}", f"Cookie: {SECRET}\x01"), (400, "bad-request", "no", "new_key")),
    "a target that cannot be read": (head(f"GET /livez{MENTION} x"), (400, "bad-request", "no", "new_key")),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
async def test_no_error_gives_anything_away(connect: Connect, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Whatever is wrong with a request, its answer is a problem document that echoes none of it, and nothing is logged."""
    sent, expected = ERRORS[name]
    line = await connect()

    line.send(sent)
    answer = await line.answer()

    assert expected == answer.problem
    assert [] == [secret for secret in (SECRET, TOKEN, "aiohttp") if secret.encode() in answer.head + answer.body]
    assert answer.head.startswith(b"HTTP/1.1 ")
    assert b"\r\nCache-Control: no-store\r\n" in answer.head
    assert [] == logged(caplog)


@pytest.mark.parametrize("path", ["/records", "/metrics"])
async def test_a_fault_is_told_as_one(connect: Connect, caplog: pytest.LogCaptureFixture, path: str) -> None:
    """A fault in a page is a problem document and the end of the connection; the log says where, and nothing of the request."""
    line = await connect()

    line.send(head(f"GET {path}", f"Cookie: {SECRET}"))
    answer = await line.answer()
    rest = await line.rest()

    assert (500, "outcome-unknown", "unknown", "after_check") == answer.problem
    assert b'\r\nProxy-Status: idemproxy; error=proxy_internal_error; details="outcome-unknown"\r\n' in answer.head
    assert b"aiohttp" not in answer.head
    assert b"" == rest
    [told] = logged(caplog)
    first, *_, last = told.splitlines()
    assert ("idemproxy ERROR a fault of this proxy", "LookupError: a fault for the test") == (first, last)
    assert [] == [secret for secret in (SECRET, TOKEN) if secret in told]


async def test_a_fault_has_no_body_for_head(connect: Connect) -> None:
    """HEAD gets the head that GET gets."""
    line = await connect()

    line.send(head("HEAD /metrics"))
    told = await line.rest()

    assert told.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert told.endswith(b"\r\nConnection: close\r\n\r\n")


async def test_a_client_that_leaves_within_its_body_is_no_fault(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """An act that was not sent whole is not carried out, and not complained of."""
    line = await connect()
    line.send(head(f"POST {RECORD}/forget{MENTION}", JSON, "Content-Length: 100", "Expect: 100-continue"))
    proceed = await line.reader.readuntil(b"\r\n\r\n")
    line.send(b'{"fence": 1')
    await line.writer.drain()
    line.writer.write_eof()

    assert b"HTTP/1.1 100 Continue\r\n\r\n" == proceed
    assert b"" == await line.rest()
    assert [] == logged(caplog)


async def test_a_body_that_breaks_after_its_answer_is_no_fault(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """What comes of a body that nobody reads is neither answered a second time nor logged."""
    line = await connect()
    line.send(f"POST {RECORD}/forget HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n")
    answer = await line.answer()
    line.send(f"{SECRET}\r\n")

    assert 401 == answer.status
    assert b"" == await line.rest()
    assert [] == logged(caplog)


async def test_a_page_does_not_tell_what_serves_it(connect: Connect) -> None:
    """No answer names aiohttp, Python or their versions."""
    line = await connect()

    line.send(head("GET /livez"))
    answer = await line.answer()

    assert (200, b"ok\n") == (answer.status, answer.body)
    assert b"\r\nserver:" not in answer.head.lower()
