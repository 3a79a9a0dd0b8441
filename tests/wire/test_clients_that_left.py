"""A request whose client leaves is told of like any other: one line of the access log, counted once, and no complaint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest

from tests.process.asking import counted, eventually
from tests.wire.client import Client, ask, new_key, request
from tests.wire.upstream import Line, Upstream, answers
from tests.wire.watched import Watched, watched

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
WHOLE = "Content-Length: 5", b"12345"
HALF = "Content-Length: 10", b"12345"
LEAVE = {"FIN": Client.leave, "RST": Client.reset}
LEFT = {
    "GET, waiting": ("GET", False, ("X-Empty: 1", b""), "read"),
    "POST, waiting": ("POST", False, WHOLE, "bypassed"),
    "POST, within its body": ("POST", False, HALF, "bypassed"),
    "POST in chunks, within its body": ("POST", False, ("Transfer-Encoding: chunked", b"5\r\n12345\r\n"), "bypassed"),
    "keyed POST, waiting": ("POST", True, WHOLE, "executed"),
    "keyed POST, within its body": ("POST", True, HALF, "refused"),
}
"""Method, whether there is a key, the framing with what is sent of the body, and the outcome."""


@pytest.fixture
def proxy_of_its_own(upstream: Upstream) -> Iterator[Watched]:
    """A proxy of which nobody else asks anything."""
    with watched({"upstreams": {"api": {"url": upstream.url}}}) as running:
        yield running


def test_each_is_told_once(upstream: Upstream, proxy_of_its_own: Watched) -> None:
    """Whatever it waited for, and however it went: status 499, once in the log and once in the metrics."""
    all_have_left = threading.Event()

    def waits(line: Line) -> None:
        if line.request_head().values("content-length") == [b"5"]:
            line.exactly(5)
            all_have_left.wait(10)
            line.send(OK)
        line.wait_for_end()

    upstream.plays(waits)
    running = proxy_of_its_own
    paths = {f"/{number}": (name, how) for number, (name, how) in enumerate((name, how) for name in LEFT for how in LEAVE)}
    arrived = 0
    for path, (name, how) in paths.items():
        method, keyed, (framing, body), _ = LEFT[name]
        client = Client(running.port)
        if (framing, keyed) == (HALF[0], True):  # reaches no upstream, so permission tells that its head was read
            client.send(request(method, path, framing, "Expect: 100-continue", key=new_key()))
            client.until(b"\r\n\r\n")
            client.send(body)
        else:
            client.send(request(method, path, framing, key=new_key() if keyed else None) + body)
            arrived += 1
            upstream.wait_for_requests(arrived)
        LEAVE[how](client)
    all_have_left.set()
    eventually(lambda: len(running.lines()) >= len(paths))
    total = counted(running.program.admin, "idemproxy_requests_total")
    code = running.program.stop()

    expected = {path: [(LEFT[name][0], 499, LEFT[name][3])] for path, (name, _) in paths.items()}
    assert expected == {path: _told(running.lines(), path) for path in paths}
    assert (len(paths), len(paths), 0) == (len(running.lines()), total, code)
    assert [] == _complaints(running)


def test_what_was_written_before_is_told(upstream: Upstream, proxy_of_its_own: Watched) -> None:
    """Of an answer that breaks off, or whose client leaves in the middle of it, the bytes that had gone out count."""

    def breaks_off(line: Line) -> None:
        target = line.request().start.split(b" ")[1]
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
        if target == b"/left":
            line.wait_for_end()

    upstream.plays(breaks_off)
    running = proxy_of_its_own
    for path in ("/broken", "/left"):
        with Client(running.port) as client:
            client.send(request("GET", path))
            client.until(b"begun")
            if path == "/left":
                client.reset()
            running.told(path)
    counted_bytes = counted(running.program.admin, "idemproxy_response_bytes_total")

    found = [(line["path"], line["status"], line["bytes"]) for line in running.lines()]
    assert ([("/broken", 200, 5), ("/left", 499, 5)], 10) == (found, counted_bytes)


def _told(lines: list[dict[str, Any]], path: str) -> list[tuple[str, int, str]]:
    return [(line["method"], line["status"], line["outcome"]) for line in lines if line["path"] == path]


def _complaints(running: Watched) -> list[str]:
    """What standard error holds beside news."""
    return [line for line in running.program.told if not line.startswith("INFO")]


def test_a_client_that_resets_before_it_is_told_to_continue(upstream: Upstream, proxy_of_its_own: Watched) -> None:
    """That nobody is there to hear 100 Continue is no fault of the proxy's: no traceback, nothing stored, nothing sent."""
    upstream.plays(answers(OK))
    running = proxy_of_its_own
    keys = [new_key() for _ in range(60)]
    for number, key in enumerate(keys):
        stopped = number % 3 == 0
        client = Client(running.port)
        if stopped:  # so that the request and its end are there at once
            running.program.send(SIGSTOP)
        client.send(request("POST", "/x", "Expect: 100-continue", "Content-Length: 10", key=key))
        client.reset()
        if stopped:
            running.program.send(SIGCONT)
    answer = ask(running.port, request("GET", "/after"))
    running.program.stop()

    assert b"HTTP/1.1 201 Created" == answer.start
    assert [] == _complaints(running)
    assert {None} == {running.records.phase(key) for key in keys}
    assert [b"GET /after HTTP/1.1"] == [arrived.start for arrived in upstream.requests]
