"""What a dead proxy has left in flight, and who may say that it is dead."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from signal import SIGSTOP
from typing import Final

import pytest

from tests.process.asking import Answer, ask, configuration, eventually, problem, request_bytes, samples
from tests.process.points import Asked
from tests.processes import Program, proxy
from tests.servers import redis_server

UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
IN_PROGRESS: Final = problem(409, "in-progress", "in_progress", "same_key")
MORE_THAN_A_PAGE: Final = 600
"""A store is read in pages of 500 records."""


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The address of an upstream that takes everything and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def arguments(directory: Path, upstream: str, store_url: str) -> tuple[str, ...]:
    """Of a proxy whose leases outlive every test, with its spool in `directory`."""
    settings = {"upstreams": {"api": {"url": upstream}}, "defaults": {"lease": "1h"}, "store": {"url": store_url}}
    return (*configuration(directory, settings), "--spool", str(directory / "spool"))


def in_flight(running: Program) -> float:
    """How many attempts the proxy is forwarding."""
    return samples(running.admin)["idemproxy_in_flight", ()]


def begin(running: Program, stack: ExitStack, *keys: str) -> None:
    """Send a request for each key, and wait until all are forwarded."""
    already = in_flight(running)
    for key in keys:
        stack.enter_context(Asked(running, request_bytes(key)))
    eventually(lambda: in_flight(running) == already + len(keys))


def ask_all(running: Program, keys: list[str], wait: int) -> list[Answer]:
    """The answers for many keys."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda key: ask(running.url, key, wait=wait), keys))


def test_all_orphans_are_found(silent: str, store_url: str, key: str, tmp_path: Path) -> None:
    """However many there are, an heir marks every one, and says how many; none waits for its lease."""
    run = arguments(tmp_path, silent, store_url)
    keys = [f"{key}-{number}" for number in range(MORE_THAN_A_PAGE)]
    with ExitStack() as stack, proxy(*run) as killed:
        begin(killed, stack, *keys)
        killed.kill()
    with proxy(*run) as heir:
        line = f"WARNING marked unknown: claims of proxies that are dead, {len(keys)} of them; see `idemproxy records list`\n"
        eventually(lambda: line in heir.told)
        answers = ask_all(heir, keys[::30], wait=0)

    assert [UNKNOWN] * len(answers) == [answer.problem for answer in answers]


def test_a_living_neighbour_is_left_alone(silent: str, store_url: str, key: str, tmp_path: Path) -> None:
    """Of two proxies on one spool directory one is killed: its heir marks what that one held, and not what the other holds."""
    run = arguments(tmp_path, silent, store_url)
    with ExitStack() as stack, proxy(*run) as killed, proxy(*run) as neighbour:
        begin(killed, stack, f"{key}-killed")
        begin(neighbour, stack, f"{key}-neighbour")
        killed.kill()
        with proxy(*run) as heir:
            orphan = ask(heir.url, f"{key}-killed", wait=30)
            living = ask(heir.url, f"{key}-neighbour", wait=0)
        neighbour.kill()

    assert [UNKNOWN, IN_PROGRESS] == [orphan.problem, living.problem]


def test_who_is_only_stopped_is_not_dead(silent: str, store_url: str, key: str, tmp_path: Path) -> None:
    """A stopped process keeps its slot of the spool: who starts beside it is not its heir."""
    run = arguments(tmp_path, silent, store_url)
    with ExitStack() as stack, proxy(*run) as stopped:
        begin(stopped, stack, key)
        stopped.send(SIGSTOP)
        with proxy(*run) as beside:
            begin(beside, stack, f"{key}-beside")
            beside.kill()
        with proxy(*run) as heir:  # of the one beside
            orphan = ask(heir.url, f"{key}-beside", wait=30)
            living = ask(heir.url, key, wait=0)
        stopped.kill()

    assert [UNKNOWN, IN_PROGRESS] == [orphan.problem, living.problem]


def test_an_heir_that_finds_no_store_waits_for_it(silent: str, key: str, tmp_path: Path) -> None:
    """It starts, refuses, and marks the orphans as soon as the store is there."""
    with redis_server(appendonly=True) as server:
        run = arguments(tmp_path, silent, server.url)
        with ExitStack() as stack, proxy(*run) as killed:
            begin(killed, stack, key)
            killed.kill()
        server.stop()
        with proxy(*run) as heir:
            refused = ask(heir.url, key)
            server.start()
            eventually(lambda: ask(heir.url, key, wait=0).told == "unknown")
            held = ask(heir.url, key)

    assert problem(503, "store-unavailable", "no", "same_key") == refused.problem
    assert UNKNOWN == held.problem
