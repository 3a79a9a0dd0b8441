"""Where the time of a request goes: `python -m bench.profile`, `make bench-profile`.

In process: a first write, a replay and a read through the whole proxy with transports and store in memory, as bench.guard asks
them, on asyncio's loop in Python. How many calls each room of the house makes is counted, the same on every run; what part of the
time it takes is sampled, a thousand times a second. A room is a set of files (ROOMS). Time and calls of a function in C, and of
Python's own library, belong to the room that called it, so that what the interpreter does for a room is that room's.

Under load: the proxy on Redis at 64 connections, as in the bench, and what `perf` sees in its process: kernel, interpreter and
libraries (bench.profile_load).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any, Final, TypeAlias

from bench import profile_load
from bench.guard import WARM_UP, Client, StillLoop, kinds
from bench.load import WrongAnswerError
from bench.machine import Cores
from bench.report import columns, described
from bench.stage import MissingError, NotStartedError

_ROOT: Final = Path(__file__).parents[1]
_LATEST: Final = _ROOT / "bench" / "results" / "profile.json"
_BATCH: Final = 200
"""Requests whose time is taken together."""
_EVERY: Final = 0.001
"""Seconds between two samples."""
_TOP: Final = 12

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "event loop (asyncio)": ("asyncio/", "selectors.py"),
    "server: connection, parser, tasks": ("aiohttp/", "idemproxy/server/"),
    "listener and its order of things": ("idemproxy/proxy/listener.py", "idemproxy/proxy/exchange.py"),
    "fingerprint": ("idemproxy/core/fingerprint/", "idemproxy/proxy/digesting.py"),
    "arrival: fields, route, key, scope": (
        *(f"idemproxy/core/{name}.py" for name in ("hop", "key", "message", "origin", "policy", "routing")),
        *(f"idemproxy/core/{name}.py" for name in ("scope", "visible", "workflow")),
        *(f"idemproxy/proxy/{name}.py" for name in ("body", "inbound")),
    ),
    "attempt: forwarded head, pool, connection, parser": (
        *(f"idemproxy/core/{name}.py" for name in ("forward", "stamp")),
        *(f"idemproxy/proxy/{name}.py" for name in ("answer_reader", "connection", "dialing", "pool", "receiving", "upstream")),
    ),
    "claim and settle: store, lease": (
        *("idemproxy/store/", "idemproxy/core/record.py", "idemproxy/core/transition.py"),
        *(f"idemproxy/proxy/{name}.py" for name in ("lease", "orphans", "settler")),
    ),
    "reply: outcome, head, writing": (
        *(f"idemproxy/core/{name}.py" for name in ("coding", "decision", "ending", "outcome", "problem", "replay")),
        *(f"idemproxy/proxy/{name}.py" for name in ("answers", "outbound", "outlet", "passthrough", "reply")),
    ),
    "telling: metrics, access log": ("idemproxy/observe/",),
    "the rest of idemproxy": ("idemproxy/",),
    "stubs of sockets (bench)": ("bench/",),
}
"""By room, how the paths of its files begin below a directory of packages; the first room that has a file has it."""

Ask: TypeAlias = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request. `us`: microseconds for one, the best batch's; `calls` and `share` by room, `top` by function.

    `share` and `top` are parts of 1 of the time.
    """

    us: float
    calls: dict[str, int]
    share: dict[str, float]
    top: dict[str, float]


@cache
def room_of(file: str) -> str | None:
    """The room that has a file; None for one that works for whoever calls it."""
    parts = Path(file).parts
    for place in range(len(parts) - 1, -1, -1):
        below = "/".join(parts[place:])
        for room, begins in ROOMS.items():
            if below.startswith(begins):
                return room
    return None


def _room(frame: FrameType | None) -> str:
    """The room of the innermost frame that has one."""
    while frame is not None:
        if (room := room_of(frame.f_code.co_filename)) is not None:
            return room
        frame = frame.f_back
    return "the rest of idemproxy"


async def _calls(ask: Ask) -> dict[str, int]:
    """Calls of one request, of functions in C or not."""
    counted: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event in {"call", "c_call"}:
            counted[_room(frame)] += 1

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(profile)
    try:
        await ask()
    finally:
        sys.setprofile(before)
        gc.enable()
    return dict(counted)


@contextmanager
def _sampling() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """How often a sample met each room, and each function with a room of its own."""
    rooms: Counter[str] = Counter()
    functions: Counter[str] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        rooms[_room(frame)] += 1
        while frame is not None and room_of(frame.f_code.co_filename) is None:
            frame = frame.f_back
        if frame is not None:
            functions[f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}: {frame.f_code.co_qualname}"] += 1

    before = signal.signal(signal.SIGALRM, sample)
    signal.setitimer(signal.ITIMER_REAL, _EVERY, _EVERY)
    try:
        yield rooms, functions
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def _profiled(ask: Ask, seconds: float) -> Kind:
    for _ in range(WARM_UP):
        await ask()
    calls = await _calls(ask)
    batches, end = [await _batch(ask)], perf_counter() + seconds
    while perf_counter() < end:
        batches.append(await _batch(ask))
    with _sampling() as (rooms, functions):
        end = perf_counter() + seconds
        while perf_counter() < end:
            await ask()
    total = max(1, rooms.total())
    return Kind(
        us=min(batches) * 1e6,
        calls=calls,
        share={room: rooms[room] / total for room in ROOMS},
        top={function: number / total for function, number in functions.most_common(_TOP)},
    )


async def _batch(ask: Ask) -> float:
    """Seconds for one request."""
    began = perf_counter()
    for _ in range(_BATCH):
        await ask()
    return (perf_counter() - began) / _BATCH


async def _in_process(seconds: float) -> dict[str, Kind]:
    return {name: await _profiled(ask, seconds) for name, (ask, _) in kinds(Client()).items()}


def in_process(seconds: float) -> dict[str, Kind]:
    """By kind of request; `seconds` for the time of each, and as many again for its samples."""
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        return runner.run(_in_process(seconds))


def table(found: dict[str, Kind]) -> str:
    """Rooms by kinds: microseconds and calls."""
    lines = [("room", *(f"{name} {what}" for name in found for what in ("µs", "calls")))]
    for room in ROOMS:
        cells = ((f"{kind.us * kind.share[room]:.1f}", str(kind.calls.get(room, 0))) for kind in found.values())
        lines.append((room, *(cell for pair in cells for cell in pair)))
    totals = ((f"{kind.us:.1f}", str(sum(kind.calls.values()))) for kind in found.values())
    lines.append(("all", *(cell for pair in totals for cell in pair)))
    return columns(lines, left=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile, show, write down. Exit codes: 0 done, 1 something failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description="Where the time of a request goes.")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for each kind and question (default: 3)")
    parser.add_argument("--in-process", action="store_true", help="leave out what perf sees under load")
    parser.add_argument("--output", type=Path, default=_LATEST, metavar="FILE", help="default: bench/results/profile.json")
    parsed = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    found = in_process(parsed.seconds)
    print(table(found))
    print("\ndearest functions of a first write, by the time within them:")
    print(columns([(function, f"{share:.1%}") for function, share in found["first"].top.items()], left=1))
    loads, why_not = {}, None
    if not parsed.in_process:
        try:
            loads = profile_load.measure(Cores.of_this_machine(), parsed.seconds)
        except MissingError as exc:
            why_not = str(exc)
            print(f"\nnot measured: under load: {exc}")
        except (NotStartedError, WrongAnswerError) as exc:
            sys.stderr.write(f"bench: {exc}\n")
            return 1
        else:
            print(f"\n{profile_load.table(loads)}")
    parsed.output.parent.mkdir(parents=True, exist_ok=True)
    parsed.output.write_text(json.dumps(document(found, loads, why_not), indent=2) + "\n")
    print(f"\nwritten: {parsed.output}")
    return 0


def document(found: dict[str, Kind], loads: dict[str, profile_load.Under], why_not: str | None) -> dict[str, Any]:
    """The results as JSON values; `why_not`: why there is nothing of what perf sees, if that was asked for."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": described(Cores.of_this_machine()),
        "in_process": {name: asdict(kind) for name, kind in found.items()},
        "under_load": {name: asdict(under) for name, under in loads.items()},
        "not_measured": why_not,
    }


if __name__ == "__main__":
    sys.exit(main())
