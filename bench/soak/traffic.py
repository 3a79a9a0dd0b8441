"""What clients do in a soak: a table of kinds with their weights, each a few requests and what must come of them."""

from __future__ import annotations

import asyncio
import random
from asyncio import IncompleteReadError
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bench.soak.client import LONGEST, Address, Farewell, Wire, WrongAnswerError, fresh, head_bytes, new_key, read, write
from bench.soak.upstream import PIECE
from bench.wire import ANSWER_BYTES, REQUEST_BODY

LANES: Final = 32
"""How many pieces of traffic there may be at once."""

_BODY_LIMIT: Final = 1024 * 1024
_KEPT_LIMIT: Final = 64 * 1024
LIMITS: Final = {"max_request_body": _BODY_LIMIT, "max_stored_body": _KEPT_LIMIT}
"""Of the routes, in bytes."""

_FAREWELLS: Final[tuple[Farewell, ...]] = ("close", "half", "reset")
_GONE: Final = (IncompleteReadError, ConnectionError)


@dataclass(slots=True)
class Done:
    """What was done, by kind, and what went wrong."""

    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Lane:
    """One after another; `kept` is a connection that stays from one piece of traffic to the next."""

    def __init__(self, address: Address, draw: random.Random) -> None:
        self.address = address
        self.draw = draw
        self._kept: Wire | None = None

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[Wire]:
        """The kept connection, made when there is none; it goes when something goes wrong on it."""
        wire = self._kept or await Wire.open(self.address)
        self._kept = None
        try:
            yield wire
        except BaseException:
            await wire.leave("reset")
            raise
        self._kept = wire

    async def close(self) -> None:
        """End the kept connection."""
        if self._kept is not None:
            await self._kept.leave("close")
            self._kept = None


async def _first(lane: Lane) -> None:
    async with lane.kept() as wire:
        (await wire.ask(write(new_key()))).must_be(200, told="executed", size=ANSWER_BYTES)


async def _first_alone(lane: Lane) -> None:
    async with fresh(lane.address, lane.draw.choice(_FAREWELLS)) as wire:
        (await wire.ask(write(new_key()))).must_be(200, told="executed", size=ANSWER_BYTES)


async def _replay(lane: Lane) -> None:
    request = write(new_key())
    async with lane.kept() as wire:
        (await wire.ask(request)).must_be(200, told="executed")
        (await wire.ask(request)).must_be(200, told="replayed", size=ANSWER_BYTES)


async def _reuse(lane: Lane) -> None:
    key = new_key()
    async with lane.kept() as wire:
        (await wire.ask(write(key))).must_be(200, told="executed")
        (await wire.ask(write(key, body=b"{}"))).must_be(422, told="refused")


async def _read(lane: Lane) -> None:
    async with lane.kept() as wire:
        (await wire.ask(read())).must_be(200, told="", size=ANSWER_BYTES)


async def _bypass(lane: Lane) -> None:
    async with lane.kept() as wire:
        (await wire.ask(write(None))).must_be(200, told="bypassed", size=ANSWER_BYTES)


async def _pipeline(lane: Lane) -> None:
    async with lane.kept() as wire:
        await wire.send(read() + write(new_key()) + write(None) + read())
        for told in ("", "executed", "bypassed", ""):
            (await wire.answer()).must_be(200, told=told, size=ANSWER_BYTES)


async def _duplicates(lane: Lane) -> None:
    request = write(new_key(), "/api/slow/200")
    async with fresh(lane.address) as one, fresh(lane.address) as other:
        told = sorted(answer.told for answer in await asyncio.gather(one.ask(request), other.ask(request)))
    if told != ["executed", "replayed"]:
        raise WrongAnswerError(f"two at once were told {told}")


async def _large_write(lane: Lane) -> None:
    async with lane.kept() as wire:
        for size in (lane.draw.randrange(70_000, 100_000), lane.draw.randrange(700_000, _BODY_LIMIT - 4)):
            (await wire.ask(write(new_key(), body=b'["%b"]' % (b"x" * size)))).must_be(200, told="executed")


async def _expectation(lane: Lane) -> None:
    lines = ("Content-Type: application/json", f"Content-Length: {len(REQUEST_BODY)}", "Expect: 100-continue")
    async with lane.kept() as wire:
        await wire.send(head_bytes("POST", "/api/charges", *lines, key=new_key()))
        (await wire.head()).must_be(100)
        (await wire.ask(REQUEST_BODY)).must_be(200, told="executed", size=ANSWER_BYTES)


async def _upload(lane: Lane) -> None:
    size = lane.draw.randrange(3_000_000)
    async with lane.kept() as wire:
        if lane.draw.random() < 0.5:
            await wire.send(head_bytes("PUT", "/api/sink", f"Content-Length: {size}") + bytes(size))
        else:
            await wire.send(head_bytes("PUT", "/api/sink", "Transfer-Encoding: chunked"))
            for _ in range(size // len(PIECE)):
                await wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
            await wire.send(b"0\r\n\r\n")
        (await wire.answer()).must_be(200, told="bypassed", size=ANSWER_BYTES)


async def _download(lane: Lane) -> None:
    size = lane.draw.randrange(1, 3_000_000)
    target = lane.draw.choice(("/api/bytes", "/api/chunks")) + f"/{size}"
    async with lane.kept() as wire:
        if lane.draw.random() < 0.5:
            (await wire.ask(read(target))).must_be(200, told="", size=size)
        else:
            request = write(new_key(), target)
            (await wire.ask(request)).must_be(200, told="executed", size=size)
            if size > _KEPT_LIMIT:
                (await wire.ask(request)).must_be(409, told="refused")


async def _events(lane: Lane) -> None:
    is_keyed = lane.draw.random() < 0.3
    async with fresh(lane.address, lane.draw.choice(_FAREWELLS)) as wire:
        answer = await wire.ask(write(new_key(), "/api/events/8") if is_keyed else read("/api/events/8"))
        answer.must_be(200, told="executed" if is_keyed else "", size=8 * len(b"data: event 0\n\n"))


_TUNNEL: Final = head_bytes("GET", "/api/tunnel", "Connection: Upgrade", "Upgrade: echo")


async def _tunnel(lane: Lane) -> None:
    async with fresh(lane.address, lane.draw.choice(_FAREWELLS)) as wire:
        await wire.send(_TUNNEL)
        (await wire.head()).must_be(101)
        for size in (10, 1000, 100_000):
            await wire.send(bytes(size))
            await wire.reader.readexactly(size)
        if lane.draw.random() < 0.5:
            await wire.send(b"bye")
            if await wire.reader.read():
                raise WrongAnswerError("a tunnel that was closed went on")


_REFUSED: Final = (
    (b"GET  /api/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"\x16\x03\x01 this is no HTTP\r\n\r\n", 400),
    (head_bytes("POST", "/api/x", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    (head_bytes("POST", "/api/x", "Content-Length: 5", "Content-Length: 6") + b"12345", 400),
    (head_bytes("POST", "/api/x", "Transfer-Encoding: chunked", key="k") + b"zz\r\n", 400),
    (head_bytes("GET", "/api/x", "X-Name: \xe4"), 400),
    (head_bytes("GET", "/api/" + "x" * 20_000), 414),
    (head_bytes("GET", "/api/x", *(f"X-{n}: {n}" for n in range(300))), 431),
    (head_bytes("CONNECT", "api.test:443"), 405),
    (head_bytes("GET", "/elsewhere"), 404),
    (write("k", "/elsewhere"), 404),
    (head_bytes("POST", "/api/x", f"Content-Length: {_BODY_LIMIT + 1}", key="k"), 413),
    (head_bytes("POST", "/api/x", "Transfer-Encoding: chunked", key="k") + b"200000\r\n" + bytes(0x200000), 413),
    (write(None, "/required/x"), 400),
    (write("two words", "/api/x"), 400),
    (write("x" * 256, "/api/x"), 400),
    (head_bytes("GET", "/api/tunnel", "Connection: Upgrade", "Upgrade: echo", key="k"), 400),
)  # fmt: skip


async def _refused(lane: Lane) -> None:
    request, status = lane.draw.choice(_REFUSED)
    async with fresh(lane.address, lane.draw.choice(_FAREWELLS)) as wire:
        (await wire.ask(request)).must_be(status)


_FAULTS: Final = {"reset": 502, "close": 502, "cut": 502, "garbage": 502, "silent": 504, "500": 500, "503": 503, "429": 429}


async def _fault(lane: Lane) -> None:
    fault, status = lane.draw.choice(tuple(_FAULTS.items()))
    is_keyed = lane.draw.random() < 0.7
    request = write(new_key() if is_keyed else None, f"/api/fault/{fault}", host="hasty.test")
    async with fresh(lane.address) as wire:
        if fault == "cut" and not is_keyed:
            await _is_cut(wire, request)
            return
        (await wire.ask(request)).must_be(status)
        if is_keyed and status in {502, 504}:
            (await wire.ask(request)).must_be(409)


async def _is_cut(wire: Wire, request: bytes) -> None:
    try:
        answer = await wire.ask(request)
    except _GONE:
        return
    answer.must_be(502)


async def _never_sent(lane: Lane) -> None:
    async with lane.kept() as wire:
        (await wire.ask(write(new_key(), host="nowhere.test"))).must_be(502)


_WHOLE: Final = "whole"
_STAGES: Final[dict[str, tuple[int, str]]] = {
    "/api/charges": (0, _WHOLE),
    "/api/slow/300": (0, _WHOLE),
    "/api/bytes/2000000": (1000, _WHOLE),
    "/api/chunks/50000": (1000, _WHOLE),
    "/api/events/40": (200, _WHOLE),
    "/api/sink/1": (0, "within the head"),
    "/api/sink/2": (0, "before the body"),
    "/api/sink/3": (0, "within the body"),
}
"""Where a client leaves: by target, how many bytes of the answer it reads first, and how much of the request it sends."""


async def _leave(lane: Lane) -> None:
    target, (takes, sends) = lane.draw.choice(tuple(_STAGES.items()))
    key = new_key() if lane.draw.random() < 0.6 else None
    request = write(key, target, b'"%b"' % (b"x" * 40_000))
    head_end = request.index(b"\r\n\r\n") + 4
    end = {
        _WHOLE: len(request),
        "within the head": head_end // 2,
        "before the body": head_end,
        "within the body": head_end + 20_000,
    }
    async with fresh(lane.address, lane.draw.choice(_FAREWELLS)) as wire:
        await wire.send(request[: end[sends]])
        await (wire.reader.readexactly(takes) if takes else asyncio.sleep(lane.draw.choice((0, 0.02, 0.1))))


async def _leave_tunnel(lane: Lane) -> None:
    async with fresh(lane.address, "reset") as wire:
        await wire.send(_TUNNEL)
        await wire.head()
        await wire.send(bytes(1_000_000))


Kind: TypeAlias = Callable[[Lane], Awaitable[None]]

KINDS: Final[dict[str, tuple[int, Kind]]] = {
    "first": (20, _first),
    "first on its own connection": (8, _first_alone),
    "replay": (10, _replay),
    "key reused": (2, _reuse),
    "read": (15, _read),
    "bypassed": (5, _bypass),
    "pipeline": (5, _pipeline),
    "duplicates": (3, _duplicates),
    "large write": (2, _large_write),
    "100-continue": (3, _expectation),
    "upload": (3, _upload),
    "download": (3, _download),
    "events": (4, _events),
    "tunnel": (3, _tunnel),
    "refused": (8, _refused),
    "upstream's fault": (5, _fault),
    "never sent": (2, _never_sent),
    "client leaves": (12, _leave),
    "client leaves tunnel": (1, _leave_tunnel),
}


_WEIGHTS: Final = [weight for weight, _ in KINDS.values()]


class Traffic:
    """Traffic at `rate` pieces a second, if the machine can: one of each kind, and then as they are drawn."""

    def __init__(self, address: Address, rate: float, seed: int) -> None:
        self.done = Done()
        self._address = address
        self._rate = rate
        self._draw = random.Random(seed)  # noqa: S311 - no secret

    async def run(self, seconds: float) -> None:
        """Go on for so long; returns when every client has ended."""
        end = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(*(self._lane(number, end) for number in range(LANES)))

    async def _lane(self, number: int, end: float) -> None:
        loop = asyncio.get_running_loop()
        lane = Lane(self._address, random.Random(self._draw.random()))  # noqa: S311 - as above
        due = loop.time() + number / self._rate
        first = list(KINDS)[number : number + 1]
        while due < end:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + LANES / self._rate, loop.time())
            await self._piece(lane, first.pop() if first else lane.draw.choices(list(KINDS), _WEIGHTS)[0])
        await lane.close()

    async def _piece(self, lane: Lane, name: str) -> None:
        _, kind = KINDS[name]
        try:
            async with asyncio.timeout(LONGEST):
                await kind(lane)
        except (WrongAnswerError, TimeoutError, *_GONE) as exc:
            self.done.faults.append(f"{name}: {type(exc).__name__}: {exc}")
        self.done.kinds[name] += 1
