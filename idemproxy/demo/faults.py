"""Faults on demand: what can go wrong with a request, before its effect or after it, as the wire shows it.

Several are joined by commas and happen in that order: `delay_after=0.5, reset_after`.

    delay_before=SECONDS  delay_after=SECONDS   wait; the effect still happens when the client has gone
    status_before=CODE    status_after=CODE     answer 400 to 599 instead
    hold_before=NAME      hold_after=NAME       wait until NAME is let go (api): whoever watches knows that it is held
    reset_before          reset_after           no answer: a TCP reset
    cut                                         after the effect: half of the answer's body, then the connection is closed

A fault before the effect strikes when the whole request is in. A request that the API refuses has no effect, and so
suffers only what comes before one. A read has no effect, and suffers what it names itself.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

_KNOWN = re.compile(
    r"delay_(before|after)=[0-9]+(\.[0-9]+)?|hold_(before|after)=[\w.-]+|status_(before|after)=[45][0-9]{2}|reset_(before|after)|cut"
)


def checked(text: str) -> list[str]:
    """Split `text` into its faults, in order; 400 when one is not a fault."""
    faults = [item.strip() for item in text.split(",")] if text else []
    for fault in faults:
        if not _KNOWN.fullmatch(fault):
            known = "delay_before=SECONDS, hold_before=NAME, status_before=500, reset_before, the same with _after, cut"
            raise web.HTTPBadRequest(text=f"{fault!r} is not a fault; known: {known}")
    return faults


@dataclass(frozen=True, slots=True)
class Hold:
    """A place at which requests are held: from when on there was one, and until when."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Faults:
    """What the next writes will suffer: each takes one entry of `armed`, unless it names its own faults."""

    armed: deque[str] = field(default_factory=deque)
    holds: defaultdict[str, Hold] = field(default_factory=lambda: defaultdict(Hold))

    def clear(self) -> None:
        """Have nothing armed, and nobody held."""
        self.armed.clear()
        for hold in self.holds.values():
            hold.over.set()
        self.holds.clear()

    async def around(self, effect: Callable[[web.Request], Awaitable[web.Response]], request: web.Request) -> web.StreamResponse:
        """Let `effect` happen with the faults of `Demo-Fault`, else of `?demo_fault=`, else the next armed ones."""
        await request.read()
        text = ",".join(request.headers.getall("Demo-Fault", [])) or request.query.get("demo_fault", "")
        faults = checked(text or (self.armed.popleft() if self.armed and request.method == "POST" else ""))
        failed = await self._suffer([fault for fault in faults if _is_before(fault)], request, None)
        if failed is not None:
            return failed
        answer = await effect(request)
        failed = await self._suffer([fault for fault in faults if not _is_before(fault)], request, answer)
        return answer if failed is None else failed

    async def _suffer(self, faults: list[str], request: web.Request, answer: web.Response | None) -> web.StreamResponse | None:
        """Let `faults` happen in order; returns what takes the place of the answer, if anything does."""
        for fault in faults:
            name, _, value = fault.partition("=")
            match name.partition("_")[0]:
                case "delay":
                    await asyncio.sleep(float(value))
                case "hold":
                    hold = self.holds[value]
                    hold.begun.set()
                    await hold.over.wait()
                case "status":
                    return web.json_response({"error": f"failed with {value}, as asked"}, status=int(value))
                case "reset":
                    return _reset(request)
                case _ if answer is not None:
                    return await _cut(request, answer)
        return None


def _is_before(fault: str) -> bool:
    return fault.partition("=")[0].endswith("_before")


def _reset(request: web.Request) -> web.Response:
    """Reset the connection; the response only satisfies the server, nothing of it can leave."""
    if request.transport is not None:
        # A linger time of zero turns the close into a reset, as a crashed process or a middlebox sends it.
        linger = struct.pack("ii", 1, 0)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.transport.abort()
    return web.Response()


async def _cut(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """Send the header of `answer` with its full length and half of its body, then close."""
    body = bytes(answer.body) if isinstance(answer.body, bytes | bytearray) else b""
    half = web.StreamResponse(status=answer.status, headers=answer.headers)
    half.content_length = len(body)
    await half.prepare(request)
    await half.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return half
