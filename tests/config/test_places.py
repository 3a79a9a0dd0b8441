"""Places on the disk are looked at before a run, and nothing is made there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from idemproxy.config.places import why_no_spool, why_no_store_file
from idemproxy.config.settings import StoreSettings

UNWRITTEN = "cannot be written by this user: choose a directory on a disk that outlives the process"


def test_a_place_that_there_is(tmp_path: Path) -> None:
    """A directory that can be written is fine, also where it is made first, and stays as it was."""
    assert (None, None, None) == (
        why_no_store_file(StoreSettings(f"sqlite:///{tmp_path}/file.db")),
        why_no_spool(tmp_path),
        why_no_spool(tmp_path / "more" / "spool"),
    )
    assert [] == list(tmp_path.iterdir())


def test_a_relative_file_stands_below_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sqlite:///file.db` is looked for where the run would look for it."""
    monkeypatch.chdir(tmp_path)
    missing = f"there is no directory {tmp_path}/data: make it, or choose another place for the file"

    assert (None, missing) == tuple(why_no_store_file(StoreSettings(f"sqlite:///{file}")) for file in ("file.db", "data/file.db"))


def test_a_file_that_is_a_directory(tmp_path: Path) -> None:
    """The name of a directory is no name of a store's file."""
    told = f"{tmp_path} is a directory: name a file in it"

    assert told == why_no_store_file(StoreSettings(f"sqlite:///{tmp_path}"))


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/0", "unix:///nowhere/socket", "memory://"])
def test_other_stores_have_no_file(url: str) -> None:
    """Nothing on this disk is asked for a server, or for the memory."""
    assert None is why_no_store_file(StoreSettings(url))


def test_a_file_in_the_way_of_the_spool(tmp_path: Path) -> None:
    """A directory cannot be made below a file, nor in the place of a link to nothing."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(tmp_path / "nothing")

    assert [f"{there} is no directory: choose another place" for there in (file, link)] == [
        why_no_spool(file / "spool"),
        why_no_spool(link / "spool"),
    ]


def test_what_holds_no_files_holds_no_spool() -> None:
    """Whoever asks, root as well: no directory can be made in /proc."""
    assert (f"/proc {UNWRITTEN}", f"/proc {UNWRITTEN}") == (why_no_spool(Path("/proc/x")), why_no_spool(Path("/proc/x/y")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_others(tmp_path: Path) -> None:
    """What this user may not write is told, of the spool and of the store's file."""
    tmp_path.chmod(0o500)
    file = f"{tmp_path}/file.db cannot be written by this user: choose another place for the file, or another user"

    assert (f"{tmp_path} {UNWRITTEN}", file) == (
        why_no_spool(tmp_path / "spool"),
        why_no_store_file(StoreSettings(f"sqlite:///{tmp_path}/file.db")),
    )
