"""What a request costs in instructions, counted and not timed: `python -m bench.guard`; `--write` makes the baseline anew.

One request of each kind goes through the whole proxy in this process, from the bytes that the client's connection reads to the
last one that it writes, with the task of the exchange and both of its writes to the store; metrics and access log are on. The
transports and the store are in memory, the event loop's clock stands still, and all is warm: so the same program gives the same
figures on every run and every machine. They differ between minor versions of Python; each has a baseline of its own.

The figures are `instructions`, those of bytecode, and `calls`, those of functions, written in C or not. What a function in C
does is not seen: this finds what grows by our own hand, and `python -m bench` tells what that means in time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias, cast

from bench.wire import ANSWER, ANSWER_BODY, READ, write
from idemproxy.core.policy import Route, Upstream
from idemproxy.core.scope import ScopeRule
from idemproxy.observe.access_log import AccessLog
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.observation import Observation
from idemproxy.proxy.exchange import Exchange
from idemproxy.proxy.lease import Leases
from idemproxy.proxy.listener import Listener, OwnPages
from idemproxy.proxy.orphans import Owner
from idemproxy.proxy.pool import Pool
from idemproxy.proxy.settler import Settler
from idemproxy.store.measured import MeasuredStore
from idemproxy.store.memory import MemoryStore

BASELINE: Final = Path(__file__).with_name("guard.json")
PYTHON: Final = "{}.{}".format(*sys.version_info)

TOLERANCE: Final = 1.1
"""So many times the baseline may be reached, since a request may cost a little more for what it gains."""

WARM_UP: Final = 20
"""Requests of each kind before the one that is counted."""

Figures: TypeAlias = dict[str, dict[str, int]]
"""For each kind of request, how many there were of what is counted."""


class StillLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still, so that no timer fires, and whose connections lead to a stub of an upstream."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: list[socket.socket] = []

    def time(self) -> float:
        """Always the same."""
        return 1.0

    async def create_connection(self, factory: Callable[[], Any], *_: Any, **__: Any) -> tuple[Any, Any]:  # type: ignore[override] # noqa: ANN401 - as the base has them
        """A connection on which each request, since it is written in one piece, is read in one, and answered."""
        protocol = factory()
        ours, theirs = socket.socketpair()
        self._sockets += ours, theirs
        transport = _Transport({"socket": ours})
        self.add_reader(theirs, lambda: theirs.recv(65_536) and protocol.data_received(ANSWER))
        protocol.connection_made(transport)
        return transport, protocol

    def close(self) -> None:
        """Close the connections too."""
        super().close()
        for each in self._sockets:
            each.close()


class _Transport(asyncio.Transport):
    """One end of a connection: what is written is kept in `written`, and told."""

    def __init__(self, extra: dict[str, object], tell: Callable[[], None] = lambda: None) -> None:
        super().__init__(extra)
        self.written = b""
        self._tell = tell

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data
        self._tell()

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Client:
    """A client's connection to a whole proxy on a store in memory; to be made on a StillLoop that runs."""

    def __init__(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        clock = count(1_700_000_000_000_000, 1_000)
        metrics = Metrics(["all"], "memory")
        log = AccessLog(lambda _: None, loop.call_later, lambda: 1_700_000_000.0)

        def observe(observation: Observation) -> None:
            metrics.observe(observation)
            log.observe(observation)

        def report(operation: str, seconds: float, failure: Exception | None) -> None:
            metrics.store_operation(operation, seconds, failure is None)

        store = MeasuredStore(MemoryStore(lambda: next(clock)), report)
        settler, leases = Settler(store, None, metrics, loop), Leases(store, loop, 5.0, metrics)
        pools = {"api": Pool(Upstream("api", "http", "api.example", 80), loop)}
        self._exchange = Exchange(store, settler, leases, pools, Owner("guard"), loop)
        no_pages = cast("OwnPages", None)
        self._listener = Listener([Route("all", "api")], pools, self._exchange, no_pages, observe, ScopeRule(), None, ())
        self._transport = _Transport({"peername": ("127.0.0.1", 50_000)}, self._written)
        self._connection = self._listener.server()
        self._connection.connection_made(self._transport)
        self._answered: asyncio.Future[None] | None = None

    def _written(self) -> None:
        if self._answered is not None and self._transport.written.endswith(ANSWER_BODY):
            self._answered.set_result(None)

    async def ask(self, request: bytes) -> bytes:
        """The whole answer to a request."""
        self._transport.written = b""
        self._answered = self._loop.create_future()
        self._loop.call_soon(self._connection.data_received, request)
        await self._answered
        if self._listener.active or self._exchange.active:
            raise AssertionError("the answer is here, and the request is still under way")
        return self._transport.written


def figures() -> Figures:
    """What a request of each kind costs now."""
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        return runner.run(_figures())


async def _figures() -> Figures:
    return {name: await _counted(ask, said) for name, (ask, said) in kinds(Client()).items()}


def kinds(client: Client) -> dict[str, tuple[Callable[[], Awaitable[bytes]], bytes]]:
    """By name of a kind of request, what asks one, and what its answer says. In this order: there is something to replay then."""
    number = count()

    def first() -> Awaitable[bytes]:
        return client.ask(write(b"key-%06d" % next(number)))

    def replay() -> Awaitable[bytes]:
        return client.ask(write(b"key-%06d" % 0))

    def read() -> Awaitable[bytes]:
        return client.ask(READ)

    return {"first": (first, b"executed"), "replay": (replay, b"replayed"), "read": (read, b"200 OK")}


async def _counted(ask: Callable[[], Awaitable[bytes]], said: bytes) -> dict[str, int]:
    for _ in range(WARM_UP):
        answer = await ask()
        if said not in answer:
            raise AssertionError(f"{said!r} is not in {answer!r}")
    found = {}
    for what, counting in (("instructions", _counting_instructions), ("calls", _counting_calls)):
        with counting() as counted:
            await ask()
        found[what] = next(counted)
    return found


@contextmanager
def _counting_instructions() -> Iterator[count[int]]:
    counted = count()
    gc.disable()  # what is freed may have finalizers, which nobody asked for now
    try:
        if sys.version_info >= (3, 12):
            with _monitored(counted):
                yield counted
        else:
            with _traced(counted):
                yield counted
    finally:
        gc.enable()


@contextmanager
def _traced(counted: count[int]) -> Iterator[None]:
    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - a trace function gives itself
        if event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            next(counted)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _monitored(counted: count[int]) -> Iterator[None]:
    """As `_traced`, which from Python 3.13 on is not told of every instruction."""
    here, monitoring = threading.get_ident(), sys.monitoring  # type: ignore[attr-defined] # newer than what is checked for
    tool, instruction = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION

    def told(*_: object) -> None:
        if threading.get_ident() == here:
            next(counted)

    monitoring.use_tool_id(tool, "bench.guard")
    monitoring.register_callback(tool, instruction, told)
    monitoring.set_events(tool, instruction)
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


@contextmanager
def _counting_calls() -> Iterator[count[int]]:
    counted = count()

    def profile(_: FrameType, event: str, __: object) -> None:
        if event in {"call", "c_call"}:
            next(counted)

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(profile)
    try:
        yield counted
    finally:
        sys.setprofile(before)
        gc.enable()


def baselines() -> dict[str, Figures]:
    """The figures that are kept, by Python's minor version."""
    kept: dict[str, Figures] = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
    return kept


def grown(now: Figures, before: Figures) -> dict[str, str]:
    """What has grown by more than the tolerance, and from what to what."""
    return {
        f"{kind} {what}": f"{before[kind][what]} -> {number}"
        for kind, counted in now.items()
        for what, number in counted.items()
        if number > TOLERANCE * before[kind][what]
    }


def main() -> None:
    """Print the figures beside the baseline; with `--write` they are the baseline from now on."""
    now, kept = figures(), baselines()
    for kind, counted in now.items():
        for what, number in counted.items():
            before = kept.get(PYTHON, {}).get(kind, {}).get(what)
            change = "" if before is None else f"  {number / before - 1:+.1%} of {before}"
            print(f"{kind:8} {what:13} {number:6}{change}")
    if sys.argv[1:] == ["--write"]:
        BASELINE.write_text(json.dumps(kept | {PYTHON: now}, indent=2, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
