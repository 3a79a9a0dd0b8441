"""Large bodies are read by another process: with the same results, whatever becomes of that process."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from idemproxy.core.fingerprint import FingerprintRule, fingerprint
from idemproxy.core.message import Request
from idemproxy.core.policy import MIB, Policy, Route
from idemproxy.core.stamp import StampError, StampRule, stamp
from idemproxy.proxy import digesting
from idemproxy.proxy.digesting import HUGE, LARGE, VAST, Digesting
from tests.process.asking import eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks for processes in /proc")

JSON: Final = (b"Content-Type", b"application/json")
FORM: Final = (b"Content-Type", b"application/x-www-form-urlencoded")
PARTS: Final = (b"Content-Type", b"multipart/form-data; boundary=B")
GZIP: Final = (b"Content-Encoding", b"gzip")
ROUTE: Final = Route("charges", "api")


def document(size: int) -> bytes:
    """JSON of so many bytes."""
    start = json.dumps({"b": [1.50, "\u00e9", None], "a": ""}).encode()[: -len('"}')]
    return start + b"x" * (size - len(start) - len('"}')) + b'"}'


def request(body: bytes, *fields: tuple[bytes, bytes]) -> Request:
    """A POST."""
    return Request("POST", b"/charges", fields or (JSON,), body)


def workers() -> set[int]:
    """The processes that this one has started and that have not ended."""
    started = {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    return {pid for pid in started if b"proxy.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()}


@pytest.fixture
async def reader() -> AsyncIterator[Digesting]:
    """Closed at the end, with no process left."""
    made = Digesting()
    yield made
    await made.close()
    assert set() == workers()


@pytest.mark.parametrize(
    ("asked", "processes"),
    [
        pytest.param(request(document(LARGE - 1)), 0, id="small"),
        pytest.param(request(document(LARGE)), 1, id="large"),
        pytest.param(request(document(HUGE)), 1, id="huge"),
        pytest.param(request(document(VAST)), 1, id="vast"),
        pytest.param(request(document(LARGE + 1)[:-1]), 1, id="no JSON"),
        pytest.param(request(b"a=%41&" * LARGE, FORM), 1, id="form"),
        pytest.param(request(b'--B\r\nA: b; c="d"\r\n\r\n' + b"x" * HUGE + b"\r\n--B--\r\n", PARTS), 1, id="multipart"),
        pytest.param(request(bytes(HUGE), (b"X-Type", b"none")), 1, id="bytes"),
        pytest.param(request(gzip.compress(document(LARGE - 1)), JSON, GZIP), 0, id="small, packed"),
        pytest.param(request(gzip.compress(document(LARGE)), JSON, GZIP), 1, id="large, packed"),
        pytest.param(request(gzip.compress(os.urandom(LARGE)), JSON, GZIP), 1, id="large before it is unpacked"),
        pytest.param(request(gzip.compress(document(LARGE))[:-9], JSON, GZIP), 0, id="packed, cut short"),
        pytest.param(request(gzip.compress(bytes(11 * MIB)), JSON, GZIP), 0, id="packed, more than may be unpacked"),
        pytest.param(request(document(LARGE - 1), JSON, (b"Content-Encoding", b"br")), 0, id="packed, and not to be unpacked"),
    ],
)
async def test_where_a_body_is_read_does_not_matter(asked: Request, processes: int, reader: Digesting) -> None:
    """The fingerprint is that of `core`, and a process is started only for what is large, or may be when it is unpacked."""
    taken = await reader.fingerprint(asked, ROUTE)

    assert fingerprint(asked, FingerprintRule(), max_decoded=10 * MIB) == taken
    assert processes == len(workers())


async def test_a_large_fingerprint_never_changes(reader: Digesting) -> None:
    """Version 1 of a body that another process reads is pinned like that of a small one."""
    assert "v1:cg0l8aE7xaTXioyEAmuDFHD_2b7fLaOhuz1E2XeB73w" == await reader.fingerprint(request(document(MIB)), ROUTE)


async def test_the_rule_and_the_bound_of_the_route_are_used(reader: Digesting) -> None:
    """What counts, and how far a body is unpacked, is the same there as here."""
    rule = FingerprintRule(exclude=("/a",), headers=("x-tenant",))
    route = Route("charges", "api", policy=Policy(fingerprint=rule, max_request_body=HUGE))
    asked = [
        request(document(size), JSON, (b"X-Tenant", tenant)) for size, tenant in ((HUGE, b"1"), (HUGE + 9, b"1"), (HUGE, b"2"))
    ]
    asked.append(request(gzip.compress(document(HUGE + 1)), JSON, GZIP))

    taken = [await reader.fingerprint(each, route) for each in asked]

    assert [fingerprint(each, rule, max_decoded=HUGE) for each in asked] == taken
    assert taken[0] == taken[1] != taken[2]


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, HUGE])
async def test_where_a_key_is_written_does_not_matter(size: int, reader: Digesting) -> None:
    """A stamped body is that of `core`, and a body that cannot be stamped is told with the same words."""
    asked, rule, elsewhere = request(document(size)), StampRule("json", "/ref"), StampRule("json", "/c/ref")

    with pytest.raises(StampError) as there:
        await reader.stamp(asked, elsewhere, "k")
    with pytest.raises(StampError) as here:
        stamp(asked, elsewhere, "k")

    assert stamp(asked, rule, "k") == await reader.stamp(asked, rule, "k")
    assert str(here.value) == str(there.value)


async def test_a_killed_process_loses_nothing(reader: Digesting, caplog: pytest.LogCaptureFixture) -> None:
    """Killed with a task in its hands: another process does it, and one line is logged."""
    asked = request(document(HUGE))
    await reader.fingerprint(asked, ROUTE)
    [first] = workers()
    os.kill(first, signal.SIGSTOP)
    taking = asyncio.ensure_future(reader.fingerprint(asked, ROUTE))
    await asyncio.sleep(0)

    os.kill(first, signal.SIGKILL)

    assert fingerprint(asked, FingerprintRule(), max_decoded=MIB) == await taking
    assert {first} != workers()
    assert ["the process that reads large bodies has died: it ended with signal 9"] == caplog.messages


async def test_without_a_process_it_is_done_here(
    reader: Digesting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no process can be started every request is still served; that is logged once, until one can be started again."""
    asked = request(document(HUGE))
    with monkeypatch.context() as changed:
        changed.setattr(sys, "executable", "/nonexistent/python")
        taken = [await reader.fingerprint(asked, ROUTE) for _ in range(2)]
    taken.append(await reader.fingerprint(asked, ROUTE))

    assert [fingerprint(asked, FingerprintRule(), max_decoded=MIB)] * 3 == taken
    assert 1 == len(workers())
    missing = "[Errno 2] No such file or directory: '/nonexistent/python'"
    assert [f"the process that reads large bodies cannot be started: {missing}"] == caplog.messages


async def test_a_process_that_cannot_read_at_all_is_given_up(
    reader: Digesting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that ends whenever it is started holds nothing up."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    asked = request(document(HUGE))

    assert fingerprint(asked, FingerprintRule(), max_decoded=MIB) == await reader.fingerprint(asked, ROUTE)
    assert ["the process that reads large bodies has died: it ended with status 1"] == caplog.messages


async def test_a_process_without_work_is_ended(reader: Digesting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is given back when nothing large has come for a while; the next large body starts another."""
    monkeypatch.setattr(digesting, "IDLE", 0.0)
    asked = request(document(HUGE))

    taken = [await reader.fingerprint(asked, ROUTE)]
    await asyncio.to_thread(eventually, lambda: not workers())
    taken.append(await reader.fingerprint(asked, ROUTE))

    assert taken[0] == taken[1]


async def test_what_is_large_does_not_wait_for_what_is_huge(reader: Digesting) -> None:
    """While the process of the huge bodies stands still, another reads the large ones."""
    await reader.fingerprint(request(document(HUGE)), ROUTE)
    [huge] = workers()
    os.kill(huge, signal.SIGSTOP)
    waiting = asyncio.ensure_future(reader.fingerprint(request(document(HUGE)), ROUTE))

    await reader.fingerprint(request(document(LARGE)), ROUTE)

    assert not waiting.done()
    os.kill(huge, signal.SIGCONT)
    await waiting


@pytest.mark.parametrize(
    "quick",
    [
        pytest.param(request(gzip.compress(b'{"a":1}'), JSON, GZIP), id="small"),
        pytest.param(request(gzip.compress(document(LARGE)), JSON, GZIP), id="large"),
        pytest.param(request(gzip.compress(document(LARGE))[:-9], JSON, GZIP), id="cut short"),
        pytest.param(request(b"\x0b\x02\x80{}\x03", JSON, (b"Content-Encoding", b"br")), id="not to be unpacked"),
        pytest.param(request(document(HUGE)), id="huge, not packed"),
    ],
)
async def test_what_is_packed_waits_for_nothing_larger(quick: Request, reader: Digesting) -> None:
    """While the process of the vast bodies stands still, what is less when it is unpacked is read, however it is packed."""
    vast = request(gzip.compress(document(VAST)), JSON, GZIP)
    await reader.fingerprint(vast, ROUTE)
    [process] = workers()
    os.kill(process, signal.SIGSTOP)
    waiting = [asyncio.ensure_future(reader.fingerprint(vast, ROUTE)) for _ in range(6)]
    try:
        async with asyncio.timeout(20):  # it is there at once; otherwise this fails instead of standing still
            taken = await reader.fingerprint(quick, ROUTE)
        assert [False] * 6 == [each.done() for each in waiting]
    finally:
        os.kill(process, signal.SIGCONT)
        await asyncio.gather(*waiting)

    assert fingerprint(quick, FingerprintRule(), max_decoded=10 * MIB) == taken


@pytest.mark.parametrize(
    ("gives_way", "order"),
    [pytest.param(MIB, "adcb", id="as it is"), pytest.param(10**18, "abcd", id="as after a while: the earlier first")],
)
async def test_in_a_line_the_smaller_go_first_for_a_while(
    gives_way: int, order: str, reader: Digesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that wait the smallest is next, but what comes much later than a larger one does not pass it."""
    monkeypatch.setattr(digesting, "GIVES_WAY", gives_way)
    await reader.fingerprint(request(document(HUGE)), ROUTE)
    [huge] = workers()
    os.kill(huge, signal.SIGSTOP)
    ended: list[str] = []

    async def take(name: str, size: int) -> None:
        await reader.fingerprint(request(document(size)), ROUTE)
        ended.append(name)

    sizes = {"a": MIB, "b": VAST - 1, "c": MIB, "d": HUGE}
    waiting = [asyncio.ensure_future(take(name, size)) for name, size in sizes.items()]
    await asyncio.sleep(0)
    os.kill(huge, signal.SIGCONT)
    await asyncio.gather(*waiting)

    assert list(order) == ended


async def test_a_turn_that_is_given_up_is_the_next_ones(reader: Digesting) -> None:
    """A client that leaves in the moment when its turn comes stops nobody behind it."""

    async def take(leaves: int | None = None) -> str:
        taken = await reader.fingerprint(request(document(HUGE)), ROUTE)
        if leaves is not None:  # it has been called, and does not know yet
            waiting[leaves].cancel()
        return taken

    waiting = [asyncio.ensure_future(take(leaves)) for leaves in (1, None, None)]
    async with asyncio.timeout(20):
        taken = await asyncio.gather(*waiting, return_exceptions=True)

    assert isinstance(taken[1], asyncio.CancelledError)
    assert [fingerprint(request(document(HUGE)), FingerprintRule(), max_decoded=MIB)] * 2 == [taken[0], taken[2]]


async def test_a_task_whose_caller_is_gone_is_never_begun(reader: Digesting) -> None:
    """A client that leaves while its body waits in line costs nothing more: only those that stay are read, in their order."""
    await reader.fingerprint(request(document(HUGE)), ROUTE)
    [huge] = workers()
    os.kill(huge, signal.SIGSTOP)
    ended: list[str] = []

    async def take(name: str) -> None:
        await reader.fingerprint(request(document(HUGE)), ROUTE)
        ended.append(name)

    waiting = [asyncio.ensure_future(take(name)) for name in "abcd"]
    await asyncio.sleep(0)
    waiting[1].cancel()
    os.kill(huge, signal.SIGCONT)
    await asyncio.gather(*waiting, return_exceptions=True)

    assert ["a", "c", "d"] == ended


async def test_closing_does_not_wait_for_what_is_read(reader: Digesting, caplog: pytest.LogCaptureFixture) -> None:
    """At the end a process is ended in the middle of a body, and no new one takes its place."""
    await reader.fingerprint(request(document(HUGE)), ROUTE)
    [huge] = workers()
    os.kill(huge, signal.SIGSTOP)
    waiting = [asyncio.ensure_future(reader.fingerprint(request(document(HUGE)), ROUTE)) for _ in range(2)]
    await asyncio.sleep(0)

    await reader.close()

    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [True, True] == [isinstance(each, BaseException) for each in ended]
    assert (set(), []) == (workers(), [record for record in caplog.records if record.levelno >= logging.WARNING])
