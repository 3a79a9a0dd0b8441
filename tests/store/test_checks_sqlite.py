"""What is looked at of a SQLite file: the disk under it, its modes, the space, and the connection that writes."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from idemproxy.store.base_finding import Level
from idemproxy.store.base_host import host_clock
from idemproxy.store.sqlite import SqliteStore
from idemproxy.store.sqlite_checks import OLDEST, Place, Pragmas, kind_of, look, processes_of, see_place
from tests.store.harness import SqliteHarness

LOCAL: Final = Place(Path("/data/records.db"), kind="ext4", free=1 << 40, mode=0o100600, is_writable=True)
SAFE: Final = Pragmas("wal", synchronous=2)
MOUNTS: Final = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 0:26 / /data rw,relatime shared:5 - nfs4 files:/export rw,vers=4.2
31 30 259:2 / /data/local\\040disk rw - xfs /dev/nvme1n1 rw
32 22 0:27 / /data/over rw - tmpfs tmpfs rw
33 22 259:3 / /data/over rw master:2 - btrfs /dev/sdb rw
"""


def levels(place: Place, pragmas: Pragmas | None = SAFE, version: tuple[int, int, int] = (3, 45, 1)) -> dict[str, Level]:
    """The level of each finding, by what was looked at."""
    return {finding.what: finding.level for finding in look(place, pragmas, version)}


def test_a_local_disk_is_fine() -> None:
    """There is nothing to say against a file of one's own on a local disk with space."""
    what = ["version", "file", "file system", "free space", "journal"]

    assert dict.fromkeys(what, Level.FINE) == levels(LOCAL)


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        *(
            (kind, Level.ERROR)
            for kind in ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre")
        ),
        *((kind, Level.WARNING) for kind in ("9p", "virtiofs", "fuse.grpcfuse", "fuse.lxcfs", "tmpfs", "overlay")),
        *((kind, Level.FINE) for kind in ("ext4", "xfs", "btrfs", "zfs", "f2fs")),
        (None, Level.UNVERIFIED),
    ],
)
def test_the_file_system(kind: str | None, level: Level) -> None:
    """A network's is an error, since the log needs one host; what may go, or may not lock, is a warning."""
    assert level is levels(replace(LOCAL, kind=kind))["file system"]


@pytest.mark.parametrize(
    ("place", "what", "level"),
    [
        (replace(LOCAL, free=255 << 20), "free space", Level.WARNING),
        (replace(LOCAL, free=7 << 20), "free space", Level.ERROR),
        (replace(LOCAL, free=None), "free space", Level.UNVERIFIED),
        (replace(LOCAL, is_writable=False), "file", Level.ERROR),
        (replace(LOCAL, mode=0o100644), "file", Level.WARNING),
        (replace(LOCAL, mode=None), "file", Level.FINE),
        (replace(LOCAL, has_directory=False), "file", Level.ERROR),
    ],
)
def test_space_and_modes(place: Place, what: str, level: Level) -> None:
    """Little space warns, none is an error; a file that others read warns, one that is not there yet is fine."""
    assert level is levels(place)[what]


@pytest.mark.parametrize("pragmas", [Pragmas("delete", 2), Pragmas("wal", 1)])
def test_the_connection_that_writes(pragmas: Pragmas) -> None:
    """Without the log, or without a flush at each commit, a power failure would forget operations."""
    assert Level.ERROR is levels(LOCAL, pragmas)["journal"]


def test_an_old_sqlite() -> None:
    """A library that cannot read the schema is an error, and the oldest that can is not."""
    assert [Level.ERROR, Level.FINE] == [levels(LOCAL, version=each)["version"] for each in ((3, 32, 3), OLDEST)]


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((3, 40, 1), Level.WARNING),
        ((3, 44, 5), Level.WARNING),
        ((3, 44, 6), Level.FINE),
        ((3, 46, 7), Level.WARNING),
        ((3, 50, 6), Level.WARNING),
        ((3, 50, 7), Level.FINE),
        ((3, 51, 2), Level.WARNING),
        ((3, 51, 3), Level.FINE),
        ((3, 53, 0), Level.FINE),
        ((4, 0, 0), Level.FINE),
    ],
)
def test_a_file_that_several_processes_use(version: tuple[int, int, int], level: Level) -> None:
    """A SQLite with the WAL-reset fault is a warning where they are several; one process, seen or not, cannot meet it."""
    told = [levels(replace(LOCAL, processes=count), version=version)["version"] for count in (3, 2, 1, None)]

    assert [level, level, Level.FINE, Level.FINE] == told


def test_what_heals_does_not_keep_a_proxy_from_starting() -> None:
    """A full disk and a mode are mended under a running proxy; a network file system is not."""
    place = Place(LOCAL.path, kind="nfs4", free=0, mode=None, is_writable=False)
    healing = {finding.what: finding.heals for finding in look(place, None) if finding.level is Level.ERROR}

    assert {"file": True, "file system": False, "free space": True} == healing


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/srv", "ext4"),
        ("/data", "nfs4"),
        ("/data/more", "nfs4"),
        ("/database", "ext4"),
        ("/data/local disk/deep", "xfs"),
        ("/data/over", "btrfs"),
    ],
)
def test_which_mount_a_directory_lies_on(directory: str, kind: str) -> None:
    """The nearest mount counts, whole names only, a space in its name is read, and of two on one place the later covers."""
    assert kind == kind_of(Path(directory), MOUNTS)


LOCKS: Final = """\
1: POSIX  ADVISORY  READ 10680 fe:00:77 128 128
1: -> POSIX  ADVISORY  WRITE 99 fe:00:77 128 128
2: POSIX  ADVISORY  READ 10680 fe:00:77 123 123
3: POSIX  ADVISORY  READ 10681 fe:00:77 128 128
4: POSIX  ADVISORY  READ 10682 fe:00:78 128 128
5: POSIX  ADVISORY  READ 10683 fe:00:77 120 120
6: FLOCK  ADVISORY  WRITE 10684 fe:00:77 128 128
"""


@pytest.mark.parametrize(("place", "own", "count"), [("fe:00:77", 10680, 2), ("fe:00:78", 10682, 1), ("fe:00:77", 5, None)])
def test_who_has_the_file_open(place: str, own: int, count: int | None) -> None:
    """Whoever holds the byte of the living; not who waits for it or holds another; and nothing is known where we are not seen."""
    assert count == processes_of(place, own, LOCKS)


OTHER: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT 1 FROM record").fetchall()
print(flush=True)
input()
"""
"""A program that has the file open until its standard input has a line, or ends."""


async def test_processes_are_counted(files: SqliteHarness) -> None:
    """On a real file: this process is one, however many stores it has open on it, and another program is one more."""
    before = see_place(files.path).processes
    for _ in range(2):
        await files.open()
    alone = see_place(files.path).processes
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", OTHER, files.path, stdin=PIPE, stdout=PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    await other.stdout.readline()
    beside = see_place(files.path).processes
    other.stdin.close()
    await other.wait()

    assert [None, 1, 2] == [before, alone, beside]


async def test_a_real_file(files: SqliteHarness) -> None:
    """A started store finds its own settings in force, and nothing changes by looking."""
    store = await files.open()
    told = {finding.what: finding for finding in await store.inspect()}
    with closing(files.connect()) as connection:
        (records,) = connection.execute("SELECT count(*) FROM record").fetchone()

    assert {"version", "file", "file system", "free space", "journal"} == told.keys()
    assert Level.FINE is told["journal"].level
    assert [] == [finding for finding in told.values() if finding.level is Level.ERROR]
    assert 0 == records


async def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    """Before the start the disk is looked at, and no file is made."""
    store = SqliteStore(tmp_path / "records.db", clock=host_clock())
    told = {finding.what: finding.text for finding in await store.inspect()}
    made = list(tmp_path.iterdir())  # noqa: ASYNC240 - nothing else runs

    assert f"{tmp_path}/records.db is not there yet: the first run makes it" == told["file"]
    assert "journal" not in told
    assert [] == made


@contextmanager
def in_memory(directory: Path, size: bytes) -> Iterator[None]:
    """A file system in memory, mounted; skips where nobody may mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(directory).encode(), b"tmpfs", 0, b"size=" + size) != 0:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        libc.umount2(str(directory).encode(), 2)


async def test_a_real_mount(tmp_path: Path) -> None:
    """What lies under the file is found by what is mounted there, and so is the space."""
    with in_memory(tmp_path, b"4m"):
        told = {finding.what: finding for finding in await SqliteStore(tmp_path / "records.db", clock=host_clock()).inspect()}

    assert (Level.WARNING, True) == (told["file system"].level, told["file system"].text.startswith("tmpfs lies in memory"))
    assert (Level.ERROR, "4 MiB") == (told["free space"].level, told["free space"].detail)
