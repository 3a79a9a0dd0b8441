"""The load generator, a process of its own: `python -m bench.load PLAN`, the plan and the figures as JSON.

Each connection has one request under way. The loop is epoll and calls on sockets that have something to give, about 10 µs for
each request, so that the generator is not what is measured. The answer is known, so checking it byte for byte takes no parser.
Exit code 1, with the reason on standard error, when an answer is not the one that was to come, or none comes.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from time import perf_counter_ns, process_time
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from bench.machine import cpu_seconds, kernel_seconds, resident_mib
from bench.wire import ANSWER_BODY, READ, write

Work: TypeAlias = Literal["write", "first", "replay", "read"]

SILENCE: Final = 10.0
"""Seconds without any answer after which the server is given up."""

_OK: Final = b"HTTP/1.1 200 "
_CHUNK: Final = b"%x\r\n" % len(ANSWER_BODY)
_CHUNKED: Final = _CHUNK + ANSWER_BODY + b"\r\n0\r\n\r\n"
"""The body in one chunk, as servers send it that do not store its length."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What stands in the head of an executed answer, and of a replay, and not in that of the other; "" where there is nothing."""

    executed: str
    replayed: str

    def of(self, work: Work) -> tuple[bytes, bytes]:
        """What must stand in the head of each answer, and what must not; b"" for nothing."""
        executed, replayed = self.executed.encode(), self.replayed.encode()
        match work:
            case "first":
                return executed, replayed
            case "replay":
                return replayed, executed
            case "write" | "read":
                return b"", b""


OURS: Final = Signs("Idempotency-Status: executed", "Idempotency-Status: replayed")


@dataclass(frozen=True, slots=True)
class Plan:
    """One measurement; times in seconds. `server` and `support`: the ids of the processes to watch; the rest as in Signs."""

    port: int
    work: Work
    connections: int
    warm_up: float
    seconds: float
    server: tuple[int, ...]
    support: tuple[int, ...]
    executed: str = OURS.executed
    replayed: str = OURS.replayed


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it: `seconds` is the span measured, processor times are of that span, latencies in milliseconds.

    `server_kernel`: what of the server's processor time it spent in the kernel.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    server_cpu: float
    server_kernel: float
    support_cpu: float
    generator_cpu: float
    server_mib: float


class WrongAnswerError(Exception):
    """An answer that is not the one that was to come, or none."""


class Load:
    """Connections to a server, and what is under way on them."""

    def __init__(self, plan: Plan) -> None:
        self._next_request = requests_of(plan.work)
        signs = Signs(plan.executed, plan.replayed)
        self._signs = signs.of(plan.work)
        if plan.work == "replay":
            prime(plan.port, self._next_request(), signs)
        self._poll = select.epoll()
        self._wires = {wire.fileno(): wire for wire in (_connected(plan.port) for _ in range(plan.connections))}
        self._sent: dict[int, int] = {}
        self._parts: dict[int, bytes] = {}
        for descriptor in self._wires:
            self._poll.register(descriptor, select.EPOLLIN)
            self._send(descriptor)

    def until(self, end: int) -> list[int]:
        """Answer each answer with a request until `end`, in nanoseconds of perf_counter_ns; the latencies, likewise."""
        latencies = []
        while perf_counter_ns() < end:
            for descriptor in self._answered():
                latencies.append(perf_counter_ns() - self._sent[descriptor])
                self._send(descriptor)
        return latencies

    def finish(self) -> None:
        """Take the answers that are still to come: they too must be the right ones."""
        waiting = set(self._wires)
        while waiting:
            waiting.difference_update(self._answered())
        for wire in self._wires.values():
            wire.close()

    def _send(self, descriptor: int) -> None:
        request = self._next_request()
        self._sent[descriptor] = perf_counter_ns()
        self._wires[descriptor].sendall(request)

    def _answered(self) -> Iterator[int]:
        events = self._poll.poll(SILENCE)
        if not events:
            raise WrongAnswerError(f"no answer came for {SILENCE:g} s")
        for descriptor, _ in events:
            data = self._wires[descriptor].recv(65_536)
            if not data:
                raise WrongAnswerError("the server closed a connection")
            if descriptor in self._parts:
                data = self._parts.pop(descriptor) + data
            if is_whole(data, *self._signs):
                yield descriptor
            else:
                self._parts[descriptor] = data


def is_whole(answer: bytes, sign: bytes, other: bytes) -> bool:
    """Whether all of an answer is here.

    Raises WrongAnswerError unless it is 200, with the body, with `sign` in its head and without `other`, if that is not empty.
    """
    head_end = answer.find(b"\r\n\r\n")
    if not answer.startswith(_OK) and len(answer) >= len(_OK):
        raise WrongAnswerError(answer.decode("utf-8", "replace"))
    if head_end < 0:
        return False
    body = _CHUNKED if answer.startswith(_CHUNK, head_end + 4) else ANSWER_BODY
    missing = head_end + 4 + len(body) - len(answer)
    if missing > 0:
        return False
    is_other = other and answer.find(other, 0, head_end) >= 0
    if missing < 0 or is_other or answer.find(sign, 0, head_end) < 0 or not answer.endswith(body):
        raise WrongAnswerError(answer.decode("utf-8", "replace"))
    return True


def requests_of(work: Work) -> Callable[[], bytes]:
    """What makes the next request. Keys begin with a word of this run's own, so that no two runs share one."""
    run = uuid4().hex.encode()
    if work in {"read", "replay"}:
        same = READ if work == "read" else write(run)
        return lambda: same
    number = count()
    return lambda: write(b"%b-%d" % (run, next(number)))


def prime(port: int, request: bytes, signs: Signs) -> None:
    """Have the request executed, so that there is an answer to replay."""
    with _connected(port) as wire:
        wire.sendall(request)
        answer = b""
        while not is_whole(answer, *signs.of("first")):
            data = wire.recv(65_536)
            if not data:
                raise WrongAnswerError("the server closed a connection")
            answer += data


def measured(plan: Plan) -> Figures:
    """Carry out a plan. Raises WrongAnswerError and OSError."""
    load = Load(plan)
    load.until(perf_counter_ns() + round(plan.warm_up * 1e9))
    before, began = _used(plan), perf_counter_ns()
    latencies = load.until(began + round(plan.seconds * 1e9))
    after, ended = _used(plan), perf_counter_ns()
    memory = sum(map(resident_mib, plan.server))
    load.finish()
    if not latencies:
        raise WrongAnswerError("no answer came in the span that was measured")
    latencies.sort()
    server, kernel, support, generator = (late - early for late, early in zip(after, before, strict=True))
    return Figures(
        requests=len(latencies),
        seconds=(ended - began) / 1e9,
        p50_ms=latencies[len(latencies) // 2] / 1e6,
        p99_ms=latencies[len(latencies) * 99 // 100] / 1e6,
        server_cpu=server,
        server_kernel=kernel,
        support_cpu=support,
        generator_cpu=generator,
        server_mib=memory,
    )


def _used(plan: Plan) -> tuple[float, float, float, float]:
    """Processor seconds so far of the server, of it in the kernel, of what supports it, and of this process."""
    server, kernel = (sum(map(clock, plan.server)) for clock in (cpu_seconds, kernel_seconds))
    return server, kernel, sum(map(cpu_seconds, plan.support)), process_time()


def _connected(port: int) -> socket.socket:
    wire = socket.create_connection(("127.0.0.1", port), timeout=SILENCE)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire


def _main(plan: dict[str, Any]) -> int:
    try:
        figures = measured(Plan(**plan))
    except (WrongAnswerError, OSError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    print(json.dumps(asdict(figures)))
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
