"""Values that another process makes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from idemproxy.apart import NotMadeError, made_apart


def _nothing() -> None:
    pass


def _open_files() -> list[str]:
    return sorted(each.name for each in Path("/proc/self/fd").iterdir())


def test_another_process_makes_the_value_and_is_gone() -> None:
    """The value comes from another process, what that changed is not here, and nothing is left of it: no file, no process."""
    changed: list[int] = []
    before = _open_files()

    def make() -> tuple[int, str]:
        changed.append(1)
        return os.getpid(), "value"

    pid, value = made_apart(make, meanwhile=_nothing)

    assert (False, "value", []) == (pid == os.getpid(), value, changed)
    assert before == _open_files()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_meanwhile_is_done_here() -> None:
    """What is done meanwhile has its effect in this process."""
    done: list[int] = []

    assert "value" == made_apart(lambda: "value", meanwhile=lambda: done.append(os.getpid()))
    assert [os.getpid()] == done


def test_a_long_value_comes_whole() -> None:
    """A value that is longer than a pipe takes at once is read to its end."""
    value = os.urandom(1_000_000)

    assert value == made_apart(lambda: value, meanwhile=_nothing)


def test_a_maker_that_fails_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """What the maker raises stands on standard error, and the caller hears that there is no value."""

    def make() -> None:
        raise ValueError("why")

    with pytest.raises(NotMadeError):
        made_apart(make, meanwhile=_nothing)
    assert capfd.readouterr().err.endswith("ValueError: why\n")


def test_a_maker_that_is_killed_has_made_nothing() -> None:
    """A process that is killed, as for want of memory, leaves the caller without a value, and not waiting."""
    with pytest.raises(NotMadeError):
        made_apart(lambda: os.kill(os.getpid(), signal.SIGKILL), meanwhile=_nothing)


def test_children_that_are_reaped_by_the_system_are_not_waited_for() -> None:
    """Where the one who started this left SIGCHLD ignored, the value comes all the same."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert "value" == made_apart(lambda: "value", meanwhile=_nothing)
    finally:
        signal.signal(signal.SIGCHLD, before)
