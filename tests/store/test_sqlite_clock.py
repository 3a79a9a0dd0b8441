"""The SQLite store's clock: one for all who share the file, whatever becomes of the wall clock, in this boot and the next."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from idemproxy.core.record import MICROSECONDS, Phase
from idemproxy.store.base_host import HostClock, boot_id
from idemproxy.store.sqlite import SqliteStore
from idemproxy.store.sqlite_clock import NOTE_EVERY, Kept, agreed
from tests.store.sqlite_steps import ROOT, commits, query, worker
from tests.store.steps import LEASE, RETENTION, completion, found, granted, identity

ME = identity()
HOUR = 3600
WALL = 1_800_000_000 * MICROSECONDS
NAMED = pytest.mark.skipif(not boot_id(), reason="this system has no name for its boots")


Opened: TypeAlias = Callable[..., SqliteStore]
"""A store of a process that begins now, its wall clock ahead by some hours, none if none are given."""


class Host:
    """A machine whose wall clock can be set, and which can be booted again; time passes when it is told to."""

    def __init__(self) -> None:
        self.wall = WALL
        self.boot = "boot 1"
        self.elapsed = 70 * MICROSECONDS

    def clock(self, ahead: int) -> HostClock:
        """What a process of the present boot reads, its wall clock `ahead` hours."""
        return HostClock(lambda: self.wall + ahead * HOUR * MICROSECONDS, self.boot, lambda: self.elapsed)

    def advance(self, microseconds: int) -> None:
        """Let time pass."""
        self.wall += microseconds
        self.elapsed += microseconds

    def set(self, hours: int) -> None:
        """Let the wall clock step."""
        self.wall += hours * HOUR * MICROSECONDS

    def reboot(self) -> None:
        """Begin the time since the boot anew."""
        self.boot, self.elapsed = f"{self.boot}, and another", 5 * MICROSECONDS


@pytest.fixture
def host() -> Host:
    """A machine."""
    return Host()


@pytest.fixture
async def opened(host: Host, tmp_path: Path) -> AsyncIterator[Opened]:
    """Makes stores on one file, each as of a process that is started now; they are closed at the end."""
    stores: list[SqliteStore] = []

    def make(ahead: int = 0) -> SqliteStore:
        stores.append(SqliteStore(tmp_path / "records.db", clock=host.clock(ahead)))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    ("kept", "boot", "wall", "elapsed", "expected"),
    [
        pytest.param(None, "a", 1000, 70, Kept("a", 930, 1000), id="a new file: the wall clock"),
        pytest.param(Kept("a", 930, 1000), "a", 1040, 110, Kept("a", 930, 1000), id="this boot: as it was agreed"),
        pytest.param(Kept("a", 930, 1000), "a", 9000, 110, Kept("a", 930, 1000), id="the wall clock was set forward"),
        pytest.param(Kept("a", 930, 1000), "a", 5, 110, Kept("a", 930, 1000), id="the wall clock was set back"),
        pytest.param(
            Kept("a", 930, 1000),
            "b",
            1000 + 2 * NOTE_EVERY,
            7,
            Kept("b", 993 + 2 * NOTE_EVERY, 1000 + 2 * NOTE_EVERY),
            id="the next boot: the wall clock",
        ),
        pytest.param(
            Kept("a", 930, 1000), "b", 5, 7, Kept("b", 993 + NOTE_EVERY, 1000 + NOTE_EVERY), id="never behind what was seen"
        ),
        pytest.param(Kept("a", 930, 50_000), "a", 60, 7, Kept("a", 930, 50_000), id="one clock, also where it was turned back"),
    ],
)
def test_what_the_processes_of_a_boot_agree_on(kept: Kept | None, boot: str, wall: int, elapsed: int, expected: Kept) -> None:
    """The first in a boot takes the wall clock, or what the file has seen if that is later; all others take what is kept."""
    assert expected == agreed(kept, boot, wall, elapsed)


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_step_of_the_wall_clock_ends_no_lease(host: Host, opened: Opened, hours: int) -> None:
    """A claim stays in flight for its lease, to those who were there before the step and to those who come after it."""
    before = opened()
    await before.start()
    await granted(before, ME)
    host.set(hours)
    after = opened()
    await after.start()

    host.advance(LEASE - 1)
    assert [Phase.IN_FLIGHT] * 2 == [(await found(store, ME)).phase for store in (before, after)]
    host.advance(1)
    assert [Phase.UNKNOWN] * 2 == [(await found(store, ME)).phase for store in (before, after)]


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_step_of_the_wall_clock_does_not_move_retention(host: Host, opened: Opened, hours: int) -> None:
    """An answer is kept for as long as was said, and no longer."""
    store = opened()
    await store.start()
    await store.complete(ME, await granted(store, ME), completion())
    host.set(hours)

    host.advance(RETENTION - 1)
    assert Phase.COMPLETED is (await found(store, ME)).phase
    host.advance(1)
    assert Phase.EXPIRED is (await found(store, ME)).phase


async def test_fences_grow_whatever_the_wall_clock_does(host: Host, opened: Opened) -> None:
    """Over steps in both directions, and a boot with a wall clock that is behind, each claim of a key has a higher fence."""
    fences = []
    for hours, reboot in ((0, False), (1, False), (-2, False), (0, True), (-1, False), (0, True)):
        host.set(hours)
        if reboot:
            host.reboot()
        store = opened()
        await store.start()
        for _ in range(3):
            host.advance(400_000)
            hold = await granted(store, ME)
            fences.append(hold.fence)
            await store.release(ME, hold)

    assert sorted(set(fences)) == fences


async def test_the_next_boot_follows_the_wall_clock(host: Host, opened: Opened) -> None:
    """A wall clock that was wrong, and has been set since, is followed by the first store that is opened after a restart."""
    store = opened()
    await store.start()
    await granted(store, ME)
    host.set(1)
    first = await granted(store, identity("this boot"))
    host.reboot()
    later = opened()
    await later.start()
    second = await granted(later, identity("next boot"))

    assert [WALL, WALL + HOUR * MICROSECONDS] == [first.claimed_at, second.claimed_at]


async def test_without_a_name_for_the_boot_the_wall_clock_is_the_clock(host: Host, opened: Opened) -> None:
    """Where boots have no names nothing is kept, and a step is followed."""
    host.boot = ""
    store = opened()
    await store.start()
    await granted(store, ME)
    host.set(1)

    assert Phase.UNKNOWN is (await found(store, ME)).phase


async def test_processes_that_open_the_file_at_once_agree(opened: Opened, tmp_path: Path) -> None:
    """Of stores that start together, with wall clocks that are hours apart, one sets the clock, and all have the same."""
    stores = [opened(hours) for hours in range(4)]
    await asyncio.gather(*[store.start() for store in stores])
    holds = [await granted(store, identity(f"key-{place}")) for place, store in enumerate(stores)]

    assert 1 == len({hold.claimed_at for hold in holds})
    assert [(1,)] == query(tmp_path / "records.db", "SELECT count(*) FROM clock")


async def test_how_far_the_clock_has_come_is_noted_at_no_cost(host: Host, opened: Opened, tmp_path: Path) -> None:
    """The file knows it to within NOTE_EVERY, and each claim costs its one commit all the same; reads note nothing."""
    path = tmp_path / "records.db"
    store = opened()
    await store.start()
    before, behind = commits(path), []
    for number in range(8):
        host.advance(NOTE_EVERY * 2 // 5)
        hold = await granted(store, identity(f"key-{number}"))
        ((latest,),) = query(path, "SELECT latest FROM clock")
        assert isinstance(latest, int)
        behind.append(hold.claimed_at - latest)
    host.advance(NOTE_EVERY * 2)
    await found(store, identity("key-0"))

    assert [NOTE_EVERY * part // 5 for part in (0, 2, 4) * 2 + (0, 2)] == behind
    assert 8 == commits(path) - before


# Real processes, real clocks


@NAMED
async def test_processes_whose_wall_clocks_are_hours_apart_share_one_clock(tmp_path: Path) -> None:
    """What one was granted is in flight to all, and of a key that goes from hand to hand the fences grow."""
    path = tmp_path / "records.db"
    async with worker(path) as first, worker(path, HOUR) as ahead, worker(path, -HOUR) as behind:
        claimed = await first.ask("claim key")
        seen = [await each.ask("claim key") for each in (ahead, behind)]
        fences = []
        for each in (first, ahead, behind, first):
            assert "granted" == await each.ask("claim shared")
            fences.append(int(await each.ask("fence shared")))
            assert "written" == await each.ask("release shared")

    assert ["granted", "in_flight", "in_flight"] == [claimed, *seen]
    assert sorted(set(fences)) == fences


@NAMED
def test_the_time_since_the_boot_is_the_hosts_in_every_time_namespace() -> None:
    """A process whose namespace makes the host look as if it had been up for an hour more has the clock of the others."""
    command = (sys.executable, "-c", "from idemproxy.store.base_host import host_clock; print(host_clock().elapsed())")
    apart = ("unshare", "--user", "--map-root-user", "--time", "--boottime", str(HOUR), "--fork")
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no time namespaces for this user")
    times = [
        int(subprocess.run([*prefix, *command], check=True, capture_output=True, cwd=ROOT).stdout) for prefix in ((), apart, ())
    ]

    assert sorted(times) == times
