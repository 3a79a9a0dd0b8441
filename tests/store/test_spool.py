"""The spool: whose heir a process may take itself for, what becomes of a copied directory, and of a spool that is closed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from idemproxy.core.transition import Doubt, Hold
from idemproxy.proxy.orphans import Owner
from idemproxy.store import spool
from idemproxy.store.base import StoreError
from idemproxy.store.spool import Entry, Spool
from tests.store.sqlite_steps import query
from tests.store.steps import ANSWER, completion, identity

Opened: TypeAlias = Callable[[Path], Spool]
STORE = "sqlite:///records.db"
HELD = Hold(17, "owner", "v1:same", "charges", 16)
ENTRIES = [Entry(identity("one"), HELD, completion(ANSWER)), Entry(identity("two"), HELD, Doubt(500, answer=ANSWER))]


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
    return [entry for _, entry in await slot.oldest(10)]


async def test_an_heir_has_the_name_and_the_endings(opened: Opened, tmp_path: Path) -> None:
    """Who takes the slot that another has left is the same instance, and finds what that one kept."""
    first = opened(tmp_path)
    for entry in ENTRIES:
        await first.put(entry)
    await first.close()
    heir = opened(tmp_path)

    assert (first.path, first.instance) == (heir.path, heir.instance)
    assert ENTRIES == await kept(heir)


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
    assert not Owner(copy.instance).is_orphaned(Owner(first.instance).draw())


async def test_the_name_of_a_copy_lasts(opened: Opened, tmp_path: Path) -> None:
    """From its first use on, a copy is a place of its own, with heirs of its own."""
    opened(tmp_path / "volume")
    shutil.copytree(tmp_path / "volume", tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    await copy.close()

    assert copy.instance == opened(tmp_path / "copy").instance


async def test_another_boot_has_another_name(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same device and inode on another machine, or after a restart, prove nothing: the endings stay, the name does not."""
    first = opened(tmp_path)
    await first.put(ENTRIES[0])
    await first.close()
    monkeypatch.setattr(spool, "boot_id", lambda: "another boot")
    after = opened(tmp_path)

    assert first.path == after.path
    assert first.instance != after.instance
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
