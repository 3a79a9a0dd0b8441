"""What is looked at of a SQLite file and of the disk under it, told as findings; `look` is a pure function.

Sources: sqlite.org, "Write-Ahead Logging" (sections 1 and 2.2: all processes on one host, and no network file system),
"How To Corrupt An SQLite Database File", "PRAGMA synchronous"; proc(5), mountinfo; statvfs(3).
"""

from __future__ import annotations

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

LITTLE_SPACE: Final = 256 * 1024 * 1024
NO_SPACE: Final = 8 * 1024 * 1024
"""Bytes: the write-ahead log alone grows to some 4 MiB before it is folded into the file."""

_FULL: Final = 2
"""Of PRAGMA synchronous."""

_MOUNTS: Final = Path("/proc/self/mountinfo")

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
    `is_writable`: file and directory, by this process.
    """

    path: Path
    kind: str | None
    free: int | None
    mode: int | None
    is_writable: bool


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
    return Place(path, _kind(directory), free, mode, can_write)


def see_pragmas(connection: sqlite3.Connection, _: int) -> Pragmas:
    """Ask the connection that writes."""
    (journal_mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    return Pragmas(journal_mode, synchronous)


def look(place: Place, pragmas: Pragmas | None, version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> list[Finding]:
    """All findings; `pragmas` is None where no connection is open."""
    return [
        *_version(version),
        *_file(place),
        *_file_system(place),
        *_space(place),
        *(() if pragmas is None else _durability(pragmas)),
    ]


def _version(version: tuple[int, int, int]) -> Iterator[Finding]:
    said = ".".join(map(str, version))
    if version < OLDEST:
        text = f"SQLite {said} lacks what the schema needs: use {'.'.join(map(str, OLDEST))} or newer, as in a newer Python image"
        yield Finding(Level.ERROR, "version", text)
    else:
        yield Finding(Level.FINE, "version", f"SQLite {said}")


def _file(place: Place) -> Iterator[Finding]:
    if not place.is_writable:
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
