"""Could a run have its places on this machine's disk? They are looked at, and nothing is made.

A later run may still fail, and one on another machine may not: `check` asks this, `run` just tries.
"""

from __future__ import annotations

import os
from pathlib import Path

from idemproxy.config.settings import StoreSettings


def why_no_store_file(settings: StoreSettings) -> str | None:
    """What is wrong with the place of a SQLite file, or None where nothing is; other stores have no file."""
    scheme, _, rest = settings.url.partition("://")
    if scheme != "sqlite":
        return None
    file = Path(rest.removeprefix("/")).absolute()
    if not file.parent.is_dir():
        return f"there is no directory {file.parent}: make it, or choose another place for the file"
    if file.is_dir():
        return f"{file} is a directory: name a file in it"
    # SQLite keeps its log beside the file.
    if not _can_hold_files(file.parent) or (file.exists() and not os.access(file, os.R_OK | os.W_OK)):
        return f"{file} cannot be written by this user: choose another place for the file, or another user"
    return None


def why_no_spool(directory: Path) -> str | None:
    """What is wrong with the spool's directory, which is made with those above it; None where nothing is."""
    there = directory.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        return f"{there} is no directory: choose another place"
    if not _can_hold_files(there):
        return f"{there} cannot be written by this user: choose a directory on a disk that outlives the process"
    return None


def _can_hold_files(directory: Path) -> bool:
    """Whether files can be made in it; root may write everywhere, but /proc and its like have no room for any file."""
    return os.access(directory, os.W_OK | os.X_OK) and os.statvfs(directory).f_blocks > 0
