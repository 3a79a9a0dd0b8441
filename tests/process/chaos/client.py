"""The clients of the fault suite: each means one operation, and asks for it until it knows, or has asked often enough."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.process.chaos.history import ANSWERED, Attempt, History, Told

MOST_ATTEMPTS: Final = 12
_RESET: Final = struct.pack("ii", 1, 0)
_PROXYS: Final = frozenset({"idempotency-status", "idempotent-replayed", "content-length", "connection"})
_SLOW: Final = (0.05, 0.4, 1.2, 1.8)

# What an upstream does with a request that comes to it, and how often. Half of them meet nothing.
FAULTS: Final = {
    "": 60,
    "reset-before": 4,
    "reset-after": 5,
    "lost-after": 5,
    "cut-after": 4,
    "hang-after": 1,
    "slow-before": 6,
    "slow-after": 6,
    "429-before": 3,
    "503-before": 2,
    "500-before": 2,
    "500-after": 2,
    "504-after": 1,
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as its clients know it: its name, and where it listens now."""

    name: str
    port: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Operation:
    """What one client means to happen once; its key names the route, and `proxies` are those of one store."""

    key: str
    route: str
    proxies: Sequence[Proxy]
    faults: dict[str, int]


class Client:
    """Carries operations out, and notes in the history what it did and was told."""

    def __init__(self, seed: int, history: History) -> None:
        self._seed = seed
        self._history = history

    async def carry_out(self, operation: Operation) -> None:
        """Ask, and ask again, as clients do: impatient, hanging up, now and then twice at once, through whichever proxy."""
        random = Random(f"{self._seed} {operation.key}")  # noqa: S311 - a schedule, not a secret
        for number in range(MOST_ATTEMPTS):
            together = 2 if random.random() < 0.15 else 1
            asked = [self._attempt(operation, f"{number}.{each}", random) for each in range(together)]
            answers = await asyncio.gather(*asked)
            if any(answer is not None and _is_final(answer, operation) for answer in answers) and random.random() < 0.85:
                return
            await asyncio.sleep(random.uniform(0.01, 0.1) * 2 ** min(number, 4))

    async def ask_last(self, operation: Operation, seconds: float) -> None:
        """What the operation has come to, when all is well again: asked until there is an answer that lasts, or time is up."""
        key = operation.key
        deadline = time.monotonic() + seconds
        number = 0
        while True:
            proxy = operation.proxies[number % len(operation.proxies)]
            attempt = Attempt(f"{key}/last.{number}", key, proxy.name, "", time.monotonic())
            await self._send(attempt, operation, proxy.port(), 15.0, wait=10)
            self._history.final[key] = attempt.answer
            if (attempt.answer is not None and self._lasts(attempt.answer, operation)) or time.monotonic() > deadline:
                return
            number += 1
            await asyncio.sleep(0.5)

    def _lasts(self, answer: Told, operation: Operation) -> bool:
        """Whether no other answer can come any more: not from a probe, nor from what a spool still holds."""
        given = [attempt.answer for attempt in self._history.attempts[operation.key] if attempt.answer is not None]
        spooled = any(each.unrecorded and each.outcome in ANSWERED for each in given)
        return _is_final(answer, operation) and (answer.outcome in ANSWERED or not spooled)

    def _attempt(self, operation: Operation, name: str, random: Random) -> asyncio.Task[Told | None]:
        """One attempt, all its dice thrown."""
        proxy = random.choice(operation.proxies)
        fault = random.choices(list(operation.faults), list(operation.faults.values()))[0]
        if fault.startswith("slow"):
            fault = f"{fault}={random.choice(_SLOW)}"
        patience = random.choice((0.05, 0.2, 0.5, 1.0, 2.5, 5.0, 8.0, 8.0))
        attempt = Attempt(f"{operation.key}/{name}", operation.key, proxy.name, fault, time.monotonic())
        sending = self._send(
            attempt, operation, proxy.port(), patience, rude=random.random() < 0.5, wait=random.choice((0, 1, 5))
        )
        return asyncio.get_running_loop().create_task(sending)

    async def _send(
        self, attempt: Attempt, operation: Operation, port: int, patience: float, *, rude: bool = False, wait: int
    ) -> Told | None:
        """Send a request, and wait so many seconds for its answer; `rude` hangs up with a reset."""
        self._history.attempts[attempt.key].append(attempt)
        body = json.dumps({"operation": attempt.key}).encode()
        request = (
            f"POST /{operation.route} HTTP/1.1\r\nHost: chaos\r\nIdempotency-Key: {attempt.key}\r\n"
            f"Chaos-Attempt: {attempt.name}\r\nChaos-Fault: {attempt.fault}\r\nPrefer: wait={wait}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        ).encode() + body
        writer = None
        try:
            async with asyncio.timeout(patience):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                attempt.answer = await _answer(reader)
        except (OSError, EOFError) as problem:
            attempt.why = type(problem).__name__
        finally:
            attempt.ended = time.monotonic()
            if writer is not None:
                if rude and attempt.answer is None:
                    with suppress(OSError):
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
        return attempt.answer


async def _answer(reader: asyncio.StreamReader) -> Told:
    """A whole answer. Raises EOFError (IncompleteReadError) when it is cut short."""
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(fields["content-length"]))
    outcome, *marks = fields.get("idempotency-status", "").split("; ")
    slug = json.loads(body)["type"] if fields["content-type"] == "application/problem+json" else ""
    own = tuple(line for line in lines if line and line.partition(":")[0].lower() not in _PROXYS)
    return Told(int(head.split()[1]), own, body, outcome, slug, "unrecorded" in marks)


def _is_final(answer: Told, operation: Operation) -> bool:
    """Whether a client believes that it need not ask again."""
    return answer.outcome in ANSWERED or (answer.outcome == "unknown" and operation.route == "hold")
