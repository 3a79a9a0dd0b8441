"""The spool: whose heir a process may take itself for, what becomes of a copied directory, and of a spool that is closed."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from idemproxy.core.record import Phase
from idemproxy.core.transition import Doubt, Hold
from idemproxy.observe.metrics import Metrics
from idemproxy.proxy.orphans import Owner, keep_adopting
from idemproxy.store import spool
from idemproxy.store.base import StoreError
from idemproxy.store.memory import MemoryStore
from idemproxy.store.spool import Entry, Spool
from tests.store.sqlite_steps import query
from tests.store.steps import ANSWER, WITHIN, ask, completion, granted, identity, phases

Opened: TypeAlias = Callable[[Path], Spool]
STORE = "sqlite:///records.db"
HELD = Hold(17, "owner", "v1:same", "charges", 16)
ENTRIES = [Entry(identity("one"), HELD, completion(ANSWER)), Entry(identity("two"), HELD, Doubt(500, 7, ANSWER, (3, "before")))]
HOLDS_A_SLOT: Final = """
import asyncio, sys
from pathlib import Path
from idemproxy.store.spool import Spool
from tests.store.test_spool import ENTRIES
slot = Spool.open(Path(sys.argv[1]), sys.argv[2])
asyncio.run(slot.put(ENTRIES[0]))
print(slot.instance, flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Opens slots, which are closed at the end."""
    slots: list[Spool] = []

    def take(directory: Path) -> Spool:
        slots.append(Spool.open(directory, STORE))
        return slots[-1]

    yield take
    for slot in slots:
        await slot.close()


async def kept(slot: Spool) -> list[Entry]:
    """What waits in a slot."""
    return [entry for _, entry in await slot.after(0, 10)]


async def test_an_heir_has_the_endings_and_knows_the_dead(opened: Opened, tmp_path: Path) -> None:
    """Who takes the slot that another has left finds what that one kept, and knows its claims until it has dealt with them."""
    first = opened(tmp_path)
    for entry in ENTRIES:
        await first.put(entry)
    await first.close()
    second = opened(tmp_path)
    await second.close()
    heir = opened(tmp_path)
    dead = await heir.adopt()
    await heir.forget([first.instance])

    assert first.path == heir.path
    assert ENTRIES == await kept(heir)
    assert [first.instance, second.instance] == dead
    assert [second.instance] == await heir.adopt()


def test_who_lives_beside_another_is_not_its_heir(opened: Opened, tmp_path: Path) -> None:
    """Two processes on one directory have a slot and a name each."""
    one, two = opened(tmp_path), opened(tmp_path)

    assert 2 == len({one.path, two.path})
    assert 2 == len({one.instance, two.instance})


@pytest.mark.parametrize("alive", [True, False])
async def test_a_copy_has_the_endings_and_another_name(opened: Opened, tmp_path: Path, *, alive: bool) -> None:
    """Who opens a copied directory does not take the claims of the first holder, who may live, for those of a dead one."""
    first = opened(tmp_path / "volume")
    for entry in ENTRIES:
        await first.put(entry)
    if not alive:
        await first.close()
    shutil.copytree(tmp_path / "volume", tmp_path / "copy")
    copy = opened(tmp_path / "copy")

    assert first.path.name == copy.path.name
    assert ENTRIES == await kept(copy)
    assert [] == await copy.adopt()


async def test_a_copy_has_heirs_of_its_own(opened: Opened, tmp_path: Path) -> None:
    """From its first use on, a copy is a place of its own."""
    opened(tmp_path / "volume")
    shutil.copytree(tmp_path / "volume", tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    await copy.close()

    assert [copy.instance] == await opened(tmp_path / "copy").adopt()


async def test_another_boot_has_another_name(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same device and inode on another machine, or after a restart, prove nothing: the endings stay, the name does not."""
    first = opened(tmp_path)
    await first.put(ENTRIES[0])
    await first.close()
    monkeypatch.setattr(spool, "boot_id", lambda: "another boot")
    after = opened(tmp_path)

    assert first.path == after.path
    assert [] == await after.adopt()
    assert [(1,)] == query(after.path, "SELECT count(*) FROM slot")
    assert ENTRIES[:1] == await kept(after)


async def test_a_closed_spool_says_so(opened: Opened, tmp_path: Path) -> None:
    """An ending that comes after the end is refused in our words, and neither counted nor kept; to close again does nothing."""
    slot = opened(tmp_path)
    await slot.put(ENTRIES[0])
    await slot.close()
    await slot.close()
    with pytest.raises(StoreError) as refused:
        await slot.put(ENTRIES[1])
    heir = opened(tmp_path)

    assert f"spool {slot.path}: it is closed, since the proxy ends" == str(refused.value)
    assert 1 == slot.entries
    assert ENTRIES[:1] == await kept(heir)


async def test_the_living_adopt_what_the_dead_have_left(opened: Opened, tmp_path: Path) -> None:
    """The endings of every dead neighbour come into the own slot, once, with the names; what the slot had before stays."""
    own, one, two = (opened(tmp_path) for _ in range(3))
    await own.put(ENTRIES[0])
    for neighbour in (one, two):
        await neighbour.put(ENTRIES[1])
        await neighbour.close()
    dead = await own.adopt()
    again = await own.adopt()

    assert ([one.instance, two.instance],) * 2 == (dead, again)
    assert [ENTRIES[0], ENTRIES[1], ENTRIES[1]] == await kept(own)
    assert (3, 3 * len(ANSWER)) == (own.entries, own.bytes)
    assert not one.path.exists()
    assert not two.path.exists()


async def test_the_living_are_not_adopted(opened: Opened, tmp_path: Path) -> None:
    """A slot that is held, and one of another store, keep what is theirs."""
    own, living = opened(tmp_path), opened(tmp_path)
    other = Spool.open(tmp_path, "redis://elsewhere")
    for neighbour in (living, other):
        await neighbour.put(ENTRIES[0])
    await other.close()

    assert [] == await own.adopt()
    assert 0 == own.entries
    assert ENTRIES[:1] == await kept(living)
    assert [(1,)] == query(other.path, "SELECT count(*) FROM entry")


async def test_who_comes_after_an_adoption_is_not_taken_for_the_dead(opened: Opened, tmp_path: Path) -> None:
    """The next holder of an adopted slot has a name that nobody knows as dead, also when not every ending was adopted."""
    own, dead = opened(tmp_path), opened(tmp_path)
    await dead.put(ENTRIES[0])
    await dead.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "MAX_ENTRIES", 0)
        names = await own.adopt()
    after = opened(tmp_path)

    assert [dead.instance] == names
    assert dead.path == after.path
    assert after.instance not in names
    assert ([], [dead.instance]) == (await after.adopt(), await own.adopt())
    assert ENTRIES[:1] == await kept(after)


async def test_what_does_not_fit_stays(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adopted endings fill half of the spool at most; the others wait where they are, and come when there is room."""
    monkeypatch.setattr(spool, "MAX_ENTRIES", 6)
    own, dead = opened(tmp_path), opened(tmp_path)
    for _ in range(4):
        await dead.put(ENTRIES[0])
    await dead.close()
    await own.adopt()
    first, left = await own.after(0, 10), query(dead.path, "SELECT count(*) FROM entry")
    await own.remove(*first[0])
    await own.adopt()

    assert (3, [(1,)]) == (len(first), left)
    assert 3 == own.entries
    assert not dead.path.exists()


async def test_a_crash_during_an_adoption_loses_nothing(opened: Opened, tmp_path: Path) -> None:
    """Copied and not yet removed: the ending is there twice, the dead are known to the heir, and nobody who lives is one."""
    own, dead = opened(tmp_path), opened(tmp_path)
    await dead.put(ENTRIES[0])
    await dead.close()
    with closing(sqlite3.connect(dead.path)) as theirs, theirs:
        theirs.execute("CREATE TRIGGER crash BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'here it ends'); END")
    await own.adopt()
    await own.close()
    heir, after = opened(tmp_path), opened(tmp_path)

    assert [own.path, dead.path] == [heir.path, after.path]
    assert [ENTRIES[:1], ENTRIES[:1]] == [await kept(heir), await kept(after)]
    assert {own.instance, dead.instance} == set(await heir.adopt())
    assert [] == await after.adopt()


@pytest.mark.parametrize("broken", [b"no database" * 100, "CREATE TABLE entry (id INTEGER PRIMARY KEY)"])
async def test_a_slot_that_cannot_be_used_is_passed_over(
    opened: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: bytes | str
) -> None:
    """The next one is taken, and the neighbours' are adopted; the warning names the file, once each, which stays, not locked."""
    whole, unusable = Spool.open(tmp_path, STORE).path, opened(tmp_path)
    await unusable.close()
    unusable.path.unlink()
    if isinstance(broken, bytes):
        unusable.path.write_bytes(broken)
    else:
        query(unusable.path, broken)
    own = opened(tmp_path)
    for _ in range(2):
        await own.adopt()

    assert [0, 1, 2] == [int(path.stem.rpartition("-")[2]) for path in (whole, unusable.path, own.path)]
    assert unusable.path.exists()
    assert 2 == len([line for line in caplog.messages if f"spool {unusable.path} cannot be used" in line])
    with unusable.path.with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """Where no slot can be made there is no spool, and the error names the directory."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as refused:
        Spool.open(tmp_path / "file", STORE)

    assert f"spool directory {tmp_path / 'file'}: " in str(refused.value)


async def test_a_killed_process_is_survived_by_its_neighbour(opened: Opened, tmp_path: Path) -> None:
    """While it lives its slot is its own; once it is killed its ending is written and its claim unknown, and nobody else's."""
    own, store = opened(tmp_path), MemoryStore(lambda: 1)
    came = asyncio.Event()
    owner = Owner(own.instance)
    async with neighbour(tmp_path) as (process, instance):
        await granted(store, identity("orphan"), ask(owner=Owner(instance).draw()))
        await granted(store, identity("own"), ask(owner=owner.draw()))
        adopting = asyncio.create_task(keep_adopting(own, store, Metrics([], "memory"), came.set, seconds=0.01))
        living = await own.adopt(), own.entries
        with store.watch(identity("orphan")) as wake:
            process.kill()
            async with asyncio.timeout(WITHIN):
                await came.wait()
                await wake.wait(WITHIN)
        adopting.cancel()

    assert ([], 0) == living
    assert ENTRIES[:1] == await kept(own)
    assert [Phase.UNKNOWN, Phase.IN_FLIGHT] == await phases(store, identity("orphan"), identity("own"))


@asynccontextmanager
async def neighbour(directory: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Another process with a slot, in which an ending waits, and its name."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDS_A_SLOT, str(directory), STORE, stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    yield process, (await process.stdout.readline()).decode().strip()
    if process.returncode is None:
        process.kill()
    await process.wait()
