"""What passes through passes through: memory does not grow with bodies, and little with the number of requests under way."""

from __future__ import annotations

import asyncio
import gzip
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.processes import Program, scratch
from tests.wire.bytestream import ByteStream
from tests.wire.client import Client, new_key, request, status
from tests.wire.combination import Combination, client_context, server_context, wired
from tests.wire.upstream import Line, Upstream, answers

MIB = 1 << 20
SIZE = 100 * MIB
GROWTH = 30 * MIB
IN_FLIGHT = 1000
KEPT_BY_TLS = {"uvloop": 60 << 10, "asyncio": 288 << 10}
"""Bytes for each connection: asyncio has a buffer of 256 KiB for each, however little comes."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _peak(program: Program) -> int:
    """The most memory that a process has had resident so far, in bytes."""
    for line in Path(f"/proc/{program.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@pytest.fixture(scope="module")
def origin(combination: Combination) -> Iterator[Upstream]:
    """The upstream of the proxies that are measured."""
    upstream = Upstream()
    yield upstream
    upstream.close()


@dataclass(frozen=True)
class Measured:
    """A proxy, and the most memory that it had had when it had carried a request of each kind."""

    program: Program
    before: int

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.program.port

    def growth(self) -> int:
        """By how many bytes it has grown since then, at the most."""
        return _peak(self.program) - self.before


def _in_front_of(url: str, directory: Path) -> dict[str, object]:
    """Settings of a proxy for one upstream."""
    return {"upstreams": {"origin": {"url": url}}, "store": {"url": f"sqlite:///{directory}/records.db"}}


@pytest.fixture(scope="module")
def measured(origin: Upstream) -> Iterator[Measured]:
    """One proxy for all large bodies: together they must not make it grow."""
    with scratch() as directory, wired(_in_front_of(origin.url, directory)) as program:
        origin.plays(answers(OK))
        with Client(program.port) as client:
            client.ask(request("POST", "/x", body=b"1"))
            client.ask(request("POST", "/x", body=b"1", key=new_key()))
        yield Measured(program, _peak(program))


def _take(line: ByteStream, count: int) -> int:
    """Read `count` bytes and forget them; how many came."""
    left = count
    buffer = bytearray(MIB)
    while left and (got := line.sock.recv_into(buffer, min(left, len(buffer)))):
        left -= got
    return count - left


def _take_chunks(line: Line) -> int:
    """Read a chunked body and forget it; how many bytes it had."""
    stream = line.sock.makefile("rb")
    taken = 0
    while size := int(stream.readline(), 16):
        taken += len(stream.read(size))
        stream.readline()
    stream.readline()
    stream.close()
    return taken


def _head(line: Line) -> None:
    """Read a request's head, and nothing of its body."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += line.sock.recv(1)


def _pour(line: ByteStream, count: int) -> None:
    """Send `count` bytes."""
    piece = bytes(MIB)
    for _ in range(count // MIB):
        line.send(piece)


def _fill(line: ByteStream, limit: int) -> int:
    """Send until nothing has been taken for half a second; how many bytes were, at most `limit`."""
    piece = bytes(64 * 1024)
    sent = 0
    line.sock.settimeout(0.5)
    with suppress(TimeoutError):
        while sent < limit:
            sent += line.sock.send(piece[: limit - sent])
    line.sock.settimeout(10)
    return sent


@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"])
def test_a_large_upload_streams_through(origin: Upstream, measured: Measured, framing: str) -> None:
    """100 MiB arrive, and the proxy needs less than 30 MiB more for it."""
    taken = []
    chunked = framing.startswith("Transfer")

    def takes_all(line: Line) -> None:
        _head(line)
        taken.append(_take_chunks(line) if chunked else _take(line, SIZE))
        line.send(OK)

    origin.plays(takes_all)
    with Client(measured.port) as client:
        client.send(request("PUT", "/file", framing))
        for _ in range(SIZE // MIB):
            client.send(b"%x\r\n%b\r\n" % (MIB, bytes(MIB)) if chunked else bytes(MIB))
        client.send(b"0\r\n\r\n" if chunked else b"")
        answer = client.message()

    assert (200, [SIZE]) == (status(answer), taken)
    assert measured.growth() < GROWTH


def test_a_large_download_streams_through(origin: Upstream, measured: Measured) -> None:
    """100 MiB arrive, and the proxy needs less than 30 MiB more for it."""

    def gives_all(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        _pour(line, SIZE)

    origin.plays(gives_all)
    with Client(measured.port) as client:
        client.send(request("GET", "/file"))
        client.head()
        taken = len(client.some())
        taken += _take(client, SIZE - taken)

    assert SIZE == taken
    assert measured.growth() < GROWTH


def test_a_large_keyed_answer_streams_through(origin: Upstream, measured: Measured) -> None:
    """What is too long to be kept is not held in memory either."""

    def gives_all(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        _pour(line, SIZE)

    origin.plays(gives_all)
    with Client(measured.port) as client:
        client.send(request("POST", "/file", body=b"1", key=new_key()))
        client.head()
        taken = len(client.some())
        taken += _take(client, SIZE - taken)

    assert SIZE == taken
    assert measured.growth() < GROWTH


def test_an_upstream_that_does_not_read_stops_the_client(origin: Upstream, measured: Measured) -> None:
    """Back pressure: what the upstream does not take stays with the client, until the upstream takes it."""
    client_is_stuck = threading.Event()
    taken = []

    def takes_late(line: Line) -> None:
        _head(line)
        client_is_stuck.wait(20)
        taken.append(_take(line, SIZE))
        line.send(OK)

    origin.plays(takes_late)
    with Client(measured.port) as client:
        client.send(request("PUT", "/file", f"Content-Length: {SIZE}"))
        accepted = _fill(client, SIZE)
        stuck = measured.growth()
        client_is_stuck.set()
        client.send(bytes(SIZE - accepted))
        answer = client.message()

    assert accepted < SIZE // 2
    assert stuck < GROWTH
    assert (200, [SIZE]) == (status(answer), taken)


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_a_client_that_does_not_read_stops_the_upstream(origin: Upstream, measured: Measured, *, keyed: bool) -> None:
    """Back pressure: what the client does not take stays with the upstream, until the client takes it."""
    accepted = []
    upstream_is_stuck = threading.Event()

    def fills(line: Line) -> None:
        line.request()
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        accepted.append(_fill(line, SIZE))
        upstream_is_stuck.set()
        line.send(bytes(SIZE - accepted[0]))

    origin.plays(fills)
    with Client(measured.port) as client:
        client.send(request("POST", "/file", body=b"1", key=new_key() if keyed else None))
        assert upstream_is_stuck.wait(20)
        stuck = measured.growth()
        client.head()
        taken = len(client.some())
        taken += _take(client, SIZE - taken)

    assert accepted[0] < SIZE // 2
    assert stuck < GROWTH
    assert SIZE == taken


def _tunnel(line: Line) -> None:
    """Grant an upgrade."""
    _head(line)
    line.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_tunnel_goes_at_the_pace_of_its_slower_side(origin: Upstream, measured: Measured, way: str) -> None:
    """What one side does not take stays with the other, until it is taken: 100 MiB, and less than 30 MiB more for it."""
    stuck, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def pours(line: ByteStream) -> None:
        accepted = _fill(line, SIZE)
        done.append(accepted)
        stuck.set()
        line.send(bytes(SIZE - accepted))

    def takes(line: ByteStream) -> None:
        assert stuck.wait(20)
        done.append(measured.growth())
        done.append(_take(line, SIZE))

    def serves(line: Line) -> None:
        _tunnel(line)
        go_on.wait(10)
        (takes if way == "up" else pours)(line)
        line.wait_for_end()

    origin.plays(serves)
    with Client(measured.port) as client:
        client.send(request("GET", "/chat", "Connection: Upgrade", "Upgrade: websocket"))
        client.head()
        go_on.set()
        (pours if way == "up" else takes)(client)
        client.finish()
        origin.wait_for_end_of(origin.lines[0])
    accepted, growth, taken = done

    assert accepted < SIZE // 2
    assert growth < GROWTH
    assert SIZE == taken
    assert measured.growth() < GROWTH


def test_many_decoded_replays_are_small(origin: Upstream, measured: Measured) -> None:
    """A body of 60 KB that unpacks to 60 MB, for eight clients who want it unpacked, and of whom one takes it."""
    content = bytes(60_000_000)
    packed = gzip.compress(content)
    coded = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    origin.plays(answers(coded + packed))
    key = new_key()
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(measured.port)) for _ in range(8)]
        clients[0].ask(request("POST", "/x", "Accept-Encoding: gzip", body=b"1", key=key))
        for client in clients:
            client.send(request("POST", "/x", "Accept-Encoding: identity", body=b"1", key=key))
        lengths = {length for client in clients for length in client.head().values("content-length")}
        taken = len(clients[0].some())
        taken += _take(clients[0], len(content) - taken)

    assert {b"%d" % len(content)} == lengths
    assert len(content) == taken
    assert measured.growth() < GROWTH


async def test_a_thousand_requests_under_way_are_small(combination: Combination, tmp_path: Path) -> None:
    """Each with a key, a body and an upstream that takes its time: less than 150 MiB in all, and each gets its answer.

    With TLS on a side, that side's connections need more, and how much is the event loop's choice.
    """
    needed = 4 * IN_FLIGHT + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} file descriptors, and may have {hard}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    arrived = 0
    served: list[asyncio.Task[None]] = []
    all_are_there, go_on = asyncio.Event(), asyncio.Event()

    async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        served.append(cast("asyncio.Task[None]", asyncio.current_task()))
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(1000)
        arrived += 1
        if arrived == IN_FLIGHT:
            all_are_there.set()
        await go_on.wait()
        writer.write(OK)
        await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async def one(port: int) -> bytes:
        tls = client_context() if combination.client_tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(request("POST", "/charges", body=bytes(1000), key=new_key()))
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(2)
        writer.close()
        await writer.wait_closed()
        return head.split(b"\r\n")[0] + body

    tls = server_context() if combination.upstream_tls else None
    server = await asyncio.start_server(answer_late, "127.0.0.1", 0, backlog=IN_FLIGHT, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    with wired(_in_front_of(f"{combination.scheme}://127.0.0.1:{port}", tmp_path)) as program:
        asking = [asyncio.create_task(one(program.port)) for _ in range(IN_FLIGHT)]
        await asyncio.wait_for(all_are_there.wait(), 30)
        go_on.set()
        found = await asyncio.gather(*asking)
        peak = _peak(program)
    server.close()
    await asyncio.gather(*served)

    assert [b"HTTP/1.1 200 OKok"] * IN_FLIGHT == found
    assert IN_FLIGHT == arrived
    sides = combination.client_tls + combination.upstream_tls
    assert peak < 150 * MIB + sides * IN_FLIGHT * KEPT_BY_TLS[combination.loop]
