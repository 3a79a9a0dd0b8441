"""What the machine tells of itself: which run of its kernel this is, how long that has lasted, and what its wall clock shows.

A wall clock can be set: by a person, by NTP after a start without a network, or when a virtual machine goes on after a pause.
The time since the boot cannot. It only goes forward, goes on while the machine sleeps, is slewed to the right speed by NTP, and
is the same for all processes of one kernel, in containers too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/timens_offsets")


@dataclass(frozen=True, slots=True)
class HostClock:
    """The raw readings of a host, in whole microseconds: `wall` since the epoch, `elapsed` since it was booted.

    `boot` names the run of its kernel. Where that has no name, `boot` is empty, and `wall` is all that there is to go by.
    """

    wall: Callable[[], int]
    boot: str = ""
    elapsed: Callable[[], int] = lambda: 0


def host_clock() -> HostClock:
    """The clocks of this machine."""
    hidden = _hidden()
    return HostClock(
        wall=lambda: time.time_ns() // 1000,
        boot=boot_id(),
        elapsed=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - hidden,
    )


def boot_id() -> str:
    """The name that Linux draws for each of its boots; empty where the system gives none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _hidden() -> int:
    """How many microseconds a time namespace adds to what this process sees of the time since the boot (time_namespaces(7))."""
    try:
        offsets = [line.split() for line in _NAMESPACE.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(seconds) * 1_000_000 + int(rest) // 1000 for name, seconds, rest in offsets if name == "boottime")
