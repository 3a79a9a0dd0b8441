"""What is looked at of a SQLite file and of the disk under it, told as findings; `look` is a pure function.

Sources: sqlite.org, "Write-Ahead Logging" (sections 1 and 2.2: all processes on one host, and no network file system),
"How To Corrupt An SQLite Database File", "PRAGMA synchronous"; proc(5), mountinfo and locks; statvfs(3).
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from idemproxy.store.base_finding import Finding, Level

OLDEST: Final = (3, 33, 0)
"""The schema has a computed column and is read by the name sqlite_schema."""

_MENDED: Final = (3, 51, 3)
_MENDED_BEFORE: Final = {(3, 44): 6, (3, 50): 7}
_MENDED_IN: Final = "3.51.3, 3.50.7 and 3.44.6"
"""From which version on the WAL-reset fault is gone; and from which patch on, of older lines that were mended too."""

LITTLE_SPACE: Final = 256 * 1024 * 1024
NO_SPACE: Final = 8 * 1024 * 1024
"""Bytes: the write-ahead log alone grows to some 4 MiB before it is folded into the file."""

_FULL: Final = 2
"""Of PRAGMA synchronous."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOCKS: Final = Path("/proc/locks")
_ALIVE: Final = "128"
"""The byte of the -shm file on which each process with the database open holds a shared lock (SQLite's os_unix.c)."""

_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|ceph|afs|coda|lustre|gfs2|ocfs2|glusterfs|beegfs|gpfs|ncpfs"
    r"|fuse\.(sshfs|s3fs|glusterfs|ceph.*|rclone|gcsfuse|goofys|juicefs|mount-s3|blobfuse2?|davfs|smbnetfs|curlftpfs|seaweedfs)"
)
_SHARED: Final = re.compile(r"9p|virtiofs|vboxsf|prl_fs|fuse|fuse\..*|fuseblk")
_FLEETING: Final = re.compile(r"tmpfs|ramfs|devtmpfs")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the file lies, or is to lie; None is what could not be seen.

    `kind`: the file system's, by its name in Linux; `free` in bytes; `mode`: of the file, None when there is none yet;
    `is_writable`: file and directory, by this process; `processes`: how many have the file open, this one included.
    """

    path: Path
    kind: str | None
    free: int | None
    mode: int | None
    is_writable: bool
    has_directory: bool = True
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Pragmas:
    """What the connection that writes says of itself."""

    journal_mode: str
    synchronous: int


def see_place(path: Path) -> Place:
    """Look at the disk; nothing is made."""
    absolute = path.absolute()
    directory = absolute.parent
    mode = absolute.stat().st_mode if absolute.exists() else None
    try:
        told = os.statvfs(directory)
    except OSError:
        free = None
    else:
        free = told.f_bavail * told.f_frsize
    can_write = os.access(directory, os.W_OK | os.X_OK) and (mode is None or os.access(absolute, os.R_OK | os.W_OK))
    return Place(path, _kind(directory), free, mode, can_write, directory.is_dir(), _processes(absolute))


def see_pragmas(connection: sqlite3.Connection, _: int) -> Pragmas:
    """Ask the connection that writes."""
    (journal_mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    return Pragmas(journal_mode, synchronous)


def look(place: Place, pragmas: Pragmas | None, version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> list[Finding]:
    """All findings; `pragmas` is None where no connection is open."""
    return [
        *_version(version, place.processes or 1),
        *_file(place),
        *(() if not place.has_directory else (*_file_system(place), *_space(place))),
        *(() if pragmas is None else _durability(pragmas)),
    ]


def _version(version: tuple[int, int, int], processes: int) -> Iterator[Finding]:
    """Whether it knows enough, and whether several processes may use it: not with the WAL-reset fault.

    With that, where one process folds the log into the file as another begins the log anew, committed pages can be left out of
    the file later, which damages it (sqlite.org, "Write-Ahead Logging", section "The WAL Reset Bug"). One process alone has one
    connection here, and cannot meet it.
    """
    said = ".".join(map(str, version))
    if version < OLDEST:
        text = f"SQLite {said} lacks what the schema needs: use {'.'.join(map(str, OLDEST))} or newer, as in a newer Python image"
        yield Finding(Level.ERROR, "version", text)
    elif version >= _MENDED or version[2] >= _MENDED_BEFORE.get(version[:2], math.inf):
        yield Finding(Level.FINE, "version", f"SQLite {said}")
    elif processes == 1:
        yield Finding(
            Level.FINE,
            "version",
            f"SQLite {said}, for one process: before {_MENDED_IN} several may, in rare cases, damage the file",
        )
    else:
        text = (
            f"SQLite {said} may, in rare cases, damage a file to which several processes write (its WAL-reset fault, gone in "
            f"{_MENDED_IN}), and several have this one open: use a newer SQLite, let one proxy alone use the file, or use Redis"
        )
        yield Finding(Level.WARNING, "version", text, detail=f"{processes} processes, this one included")


def _file(place: Place) -> Iterator[Finding]:
    if not place.has_directory:
        text = f"there is no directory {place.path.absolute().parent}: make it, or choose another place for the file in store.url"
        yield Finding(Level.ERROR, "file", text, heals=True)
    elif not place.is_writable:
        text = f"{place.path} or its directory, where SQLite's log lies, cannot be written by this user: mend the modes"
        yield Finding(Level.ERROR, "file", text, heals=True)
    elif place.mode is None:
        yield Finding(Level.FINE, "file", f"{place.path} is not there yet: the first run makes it")
    elif place.mode & stat.S_IROTH:
        text = f"every user of this host may read {place.path}, and the answers in it: chmod o-rwx"
        yield Finding(Level.WARNING, "file", text)
    else:
        yield Finding(Level.FINE, "file", f"{place.path} can be written")


def _file_system(place: Place) -> Iterator[Finding]:
    what, kind = "file system", place.kind
    if kind is None:
        text = "this system does not tell what lies under the file: see that it is a local disk, not a network's"
        yield Finding(Level.UNVERIFIED, what, text)
    elif _NETWORK.fullmatch(kind):
        text = (
            f"{kind} reaches other hosts, and SQLite's log needs memory that all its processes share, on one host: two hosts "
            "would damage the file, or forward an operation twice; name a path on a local disk, or use Redis"
        )
        yield Finding(Level.ERROR, what, text)
    elif _SHARED.fullmatch(kind):
        text = (
            f"{kind} may be reached from outside this system, and may not keep SQLite's locks or its memory map: "
            "name a path on a local disk, or a volume of the container's own"
        )
        yield Finding(Level.WARNING, what, text)
    elif _FLEETING.fullmatch(kind):
        text = f"{kind} lies in memory: a restart of the host forgets every operation; name a path on a disk"
        yield Finding(Level.WARNING, what, text)
    elif kind == "overlay":
        text = "overlay is a container's own layer, and goes with it: every operation would be forgotten; mount a volume there"
        yield Finding(Level.WARNING, what, text)
    else:
        yield Finding(Level.FINE, what, kind)


def _space(place: Place) -> Iterator[Finding]:
    what = "free space"
    if place.free is None:
        yield Finding(Level.UNVERIFIED, what, "it cannot be seen how much space the disk has left")
    elif place.free < NO_SPACE:
        text = f"less than {_size(NO_SPACE)}, which the log alone may take: soon nothing can be noted, nor sent; free some"
        yield Finding(Level.ERROR, what, text, detail=_size(place.free), heals=True)
    elif place.free < LITTLE_SPACE:
        text = f"less than {_size(LITTLE_SPACE)}: on a full disk nothing can be noted, and nothing is sent; free some"
        yield Finding(Level.WARNING, what, text, detail=_size(place.free))
    else:
        yield Finding(Level.FINE, what, f"more than {_size(LITTLE_SPACE)}")


def _durability(pragmas: Pragmas) -> Iterator[Finding]:
    if pragmas.journal_mode != "wal":
        text = f"journal_mode is {pragmas.journal_mode}, not wal: another program has changed it; restart the proxy"
        yield Finding(Level.ERROR, "journal", text)
    elif pragmas.synchronous < _FULL:
        text = f"synchronous is {pragmas.synchronous}, less than FULL: a power failure would forget operations"
        yield Finding(Level.ERROR, "journal", text)
    else:
        yield Finding(Level.FINE, "journal", "write-ahead log, synchronous: a commit has reached the disk when it counts")


def _processes(file: Path) -> int | None:
    try:
        shared = file.with_name(f"{file.name}-shm").stat()
        place = f"{os.major(shared.st_dev):02x}:{os.minor(shared.st_dev):02x}:{shared.st_ino}"
        return processes_of(place, os.getpid(), _LOCKS.read_text())
    except OSError:
        return None


def processes_of(place: str, own: int, locks: str) -> int | None:
    """How many processes have the database open, by the lines of /proc/locks; None where not even this one, `own`, is seen.

    `place`: of its -shm file, `major:minor:inode`. Processes of other containers are not seen (proc(5)).
    """
    lines = [line.split() for line in locks.splitlines() if " -> " not in line]
    holders = {words[4] for words in lines if words[1] == "POSIX" and words[5:7] == [place, _ALIVE]}
    return len(holders) if str(own) in holders else None


def _kind(directory: Path) -> str | None:
    try:
        return kind_of(directory.resolve(), _MOUNTS.read_text())
    except OSError:
        return None


def kind_of(directory: Path, mounts: str) -> str | None:
    """The file system of a resolved directory, by the lines of mountinfo; of two mounts on one place the later one covers."""
    found, nearest = None, -1
    for line in mounts.splitlines():
        fields, _, filesystem = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields.split()[4]))
        if directory.is_relative_to(point) and len(point.parts) >= nearest:
            found, nearest = filesystem.split()[0], len(point.parts)
    return found


def _size(count: int) -> str:
    return f"{count / (1024 * 1024):.0f} MiB"
