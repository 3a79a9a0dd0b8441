"""How long large bodies hold up everybody else: `python -m bench.loop_delay`.

One proxy, on the store in memory so that no disk is measured, gets large bodies one after another, each under a key of its own.
Beside them two clients ask 100 times a second each: for /livez of the admin listener, which takes nothing but the event loop's
time, and for a small write with a key of its own, the whole way to the upstream and back. A request that cannot be sent in time
because the one before is late is sent late; its time counts from when it was due, so that a stall is not counted as one request.

    body      what the large bodies are; `none` is the same run without any
    bodies    how many were answered, and how long one took (median, ms)
    livez     p50, p99 and longest time to the answer, ms
    write     the same of the small write
    MiB       the most resident memory that the proxy had, and all processes that it started
"""

from __future__ import annotations

import argparse
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Final
from uuid import uuid4

from bench.machine import Cores, family, resident_mib
from bench.stage import NotStartedError, Stage, answers_ok, free_port

_HERTZ: Final = 100
_MIB: Final = 2**20
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_HEAD: Final = "body       bodies    ms       livez p50    p99     max       write p50    p99     max      MiB"
_SMALL: Final = b'{"amount": 4200, "currency": "eur"}'


def _objects(size: int) -> bytes:
    """A list of objects as APIs have them, 170 bytes each."""
    one = '{"id": "itm_%08d", "amount": %d, "price": %.2f, "active": true, "tags": ["a", "b"], "customer": {"name": "Name %08d", '
    one += '"email": "name.%08d@example.com", "phone": null}}'
    return ("[" + ", ".join(one % (n, n, n / 4, n, n) for n in range(size // 190)) + "]").encode()


BODIES: Final[dict[str, Callable[[int], bytes]]] = {
    "none": lambda _: b"",
    "objects": _objects,
    "string": lambda size: b'"' + b"x" * (size - 2) + b'"',
    "integers": lambda size: b"[" + b"1234567," * (size // 8 - 1) + b"1]",
    "fractions": lambda size: b"[" + b"1.1," * (size // 4 - 1) + b"1]",
    "nested": lambda size: b"[" + (b"[" * 98 + b"]" * 98 + b",") * (size // 197 - 1) + b"1]",
    "names": lambda size: b"{" + b",".join(b'"%08x":1' % (n * 2654435761 % 2**32) for n in range(size // 13)) + b"}",
}
"""Bodies of about `size` bytes: what is usual, and what is dear to read."""


@dataclass(slots=True)
class Seen:
    """Seconds from when each request was due until its answer."""

    livez: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    bodies: list[float] = field(default_factory=list)
    mib: float = 0.0


class _Sink(socketserver.StreamRequestHandler):
    """An upstream that reads a request to its end, whatever its size, and answers."""

    def handle(self) -> None:
        while self.rfile.readline():
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            while length:
                length -= len(self.rfile.read1(min(length, _MIB)))
            self.wfile.write(_ANSWER)


class _Upstream(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _sink() -> Iterator[int]:
    with _Upstream(("127.0.0.1", 0), _Sink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _post(connection: HTTPConnection, body: bytes) -> None:
    connection.request("POST", "/charges", body, {"Content-Type": "application/json", "Idempotency-Key": str(uuid4())})
    answer = connection.getresponse()
    told = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the proxy answered {answer.status}: {told[:300].decode('utf-8', 'replace')}")


def _livez(connection: HTTPConnection) -> None:
    connection.request("GET", "/livez")
    connection.getresponse().read()


def _at_a_pace(port: int, ask: Callable[[HTTPConnection], None], end: float, seconds: list[float]) -> None:
    due = time.perf_counter()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            ask(connection)
            seconds.append(time.perf_counter() - due)
            due += 1 / _HERTZ


def _in_a_row(port: int, body: bytes, end: float, seconds: list[float]) -> None:
    with closing(HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        while (begun := time.perf_counter()) < end:
            _post(connection, body)
            seconds.append(time.perf_counter() - begun)


def observe(port: int, admin: int, pid: int, body: bytes, seconds: float, senders: int) -> Seen:
    """Ask both small things at their pace for so many seconds while each of `senders` sends the body again and again."""
    seen = Seen()
    end = time.perf_counter() + seconds
    work: list[Callable[[], None]] = [
        lambda: _at_a_pace(admin, _livez, end, seen.livez),
        lambda: _at_a_pace(port, lambda connection: _post(connection, _SMALL), end, seen.write),
        *(lambda: _in_a_row(port, body, end, seen.bodies) for _ in range(senders if body else 0)),
    ]
    with ThreadPoolExecutor(len(work)) as threads:
        running = [threads.submit(each) for each in work]
        while not all(each.done() for each in running):
            seen.mib = max(seen.mib, sum(resident_mib(each) for each in family(pid)))
            time.sleep(0.02)
    for each in running:
        each.result()
    return seen


def line(name: str, seen: Seen) -> str:
    """A row of the table."""
    took = f"{median(seen.bodies) * 1e3:.0f}" if seen.bodies else "-"
    return f"{name:10} {len(seen.bodies):6} {took:>5}   {_times(seen.livez)}   {_times(seen.write)}   {seen.mib:6.0f}"


def _times(seconds: list[float]) -> str:
    cuts = quantiles(seconds, n=100, method="inclusive")
    p50, p99, longest = (value * 1e3 for value in (cuts[49], cuts[98], max(seconds)))
    return f"{p50:13.1f}{p99:7.1f}{longest:8.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table. Exit codes: 0 measured, 1 something failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.loop_delay", description="What large bodies cost everybody else.")
    parser.add_argument("--only", action="append", choices=list(BODIES), default=[], metavar="NAME", help=", ".join(BODIES))
    parser.add_argument("--kib", type=int, default=10_000, metavar="N", help="size of a body (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="N", help="for each row (default: %(default)s)")
    parser.add_argument("--senders", type=int, default=1, metavar="N", help="bodies under way at once (default: %(default)s)")
    parsed = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    print(_HEAD)
    try:
        for name in parsed.only or BODIES:
            with tempfile.TemporaryDirectory(prefix="bench-") as directory, _sink() as sink:
                body = BODIES[name](parsed.kib * 1024)
                seen = _measured(Path(directory), sink, body, parsed.seconds, parsed.senders)
                print(line(name, seen), flush=True)
    except (NotStartedError, RuntimeError) as exc:
        sys.stderr.write(f"bench: {exc}\n")
        return 1
    return 0


def _measured(directory: Path, sink: int, body: bytes, seconds: float, senders: int) -> Seen:
    port, admin = free_port(), free_port()
    with closing(Stage(directory, Cores.of_this_machine())) as stage:
        everywhere = stage.cores.server | stage.cores.load | stage.cores.support
        words = ["idemproxy", "run", "--upstream", f"http://127.0.0.1:{sink}", "--store", "memory://"]
        words += ["--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}", "--spool", str(directory / "spool")]
        ready = f"http://127.0.0.1:{admin}/readyz"
        pid = stage.start_python("idemproxy", *words, cores=everywhere, is_ready=lambda: answers_ok(ready))
        return observe(port, admin, pid, body, seconds, senders)


if __name__ == "__main__":
    sys.exit(main())
