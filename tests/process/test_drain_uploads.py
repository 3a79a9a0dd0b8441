"""What the deadline of a drain cuts off, and what the exit code says of it: 3 speaks of attempts, not of clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.process.asking import ask, configuration, eventually
from tests.process.upstream import Upstream, upstream
from tests.processes import proxy
from tests.wire.client import Client, request

DRAIN = 0.5
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture
def api() -> Iterator[Upstream]:
    """An upstream that answers when it may."""
    with upstream() as server:
        yield server


@pytest.mark.parametrize(
    ("keyed", "forwarded", "expected", "last"),
    [
        (True, False, 0, "WARNING drained; clients that were cut off, with nothing under way for them: 1\n"),
        (False, False, 0, "WARNING drained; clients that were cut off, with nothing under way for them: 1\n"),
        (True, True, 3, "ERROR ended with 1 attempts under way: they are unknown\n"),
    ],
    ids=["an upload", "an upload that passes through", "an upload and an attempt"],
)
def test_the_exit_code_speaks_of_attempts(
    api: Upstream, key: str, tmp_path: Path, expected: int, last: str, *, keyed: bool, forwarded: bool
) -> None:
    """A client that stalls in the middle of its request is cut off at the deadline, and that is no failure of the run."""
    settings = {
        "upstreams": {"api": {"url": api.url}},
        "store": {"url": f"sqlite:///{tmp_path}/records.db"},
        "drain": f"{round(DRAIN * 1000)}ms",
    }
    half = request("POST", "/x", "Expect: 100-continue", "Content-Length: 10", key=f"{key}-half" if keyed else None)
    with proxy(*configuration(tmp_path, settings)) as running, ThreadPoolExecutor(1) as pool, Client(running.port) as client:
        client.send(half)
        assert client.exactly(len(CONTINUE)) == CONTINUE
        client.send(b"12345")
        if forwarded:
            api.hold()
            pool.submit(ask, running.url, key)
            eventually(lambda: len(api.arrived) == 1)
        started = time.monotonic()
        running.send(SIGTERM)
        code = running.process.wait(20)
        seconds = time.monotonic() - started
        eventually(lambda: running.told[-1] == last)

    assert expected == code
    assert seconds >= DRAIN
