"""Durations and sizes: what each unit means, and what is refused with which advice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.config import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("15s", 15.0),
        ("2m", 120.0),
        ("24h", 86_400.0),
        ("7d", 604_800.0),
        ("1.5h", 5_400.0),
        ("0s", 0.0),
        ("3 s", 3.0),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    """Each unit of time has its length."""
    assert seconds == units.seconds(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512B", 512),
        ("64KiB", 65_536),
        ("10MiB", 10_485_760),
        ("1GiB", 1_073_741_824),
        ("1KB", 1_000),
        ("1MB", 1_000_000),
        ("2 GB", 2_000_000_000),
    ],
)
def test_sizes_are_bytes(text: str, count: int) -> None:
    """Binary and decimal units differ, as their names say."""
    assert count == units.size(text)


@given(number=st.integers(0, 10**9 - 1), unit=st.sampled_from(["ms", "s"]))
def test_milliseconds_and_seconds_agree(number: int, unit: str) -> None:
    """A thousand of one is one of the other, for any number that may be written."""
    shorter = units.seconds(f"{number}ms")

    assert {"ms": shorter, "s": number}[unit] == units.seconds(f"{number}{unit}")


DURATIONS = "ms, s, m, h, d"
SIZES = "B, KiB, MiB, GiB, KB, MB, GB"


@pytest.mark.parametrize(
    ("read", "value", "told"),
    [
        (units.seconds, 15, f"15 has no unit: write 15s, or another of {DURATIONS}"),
        (units.seconds, "1.5", f"1.5 has no unit: write 1.5s, or another of {DURATIONS}"),
        (units.seconds, "1.5.5s", "'1.5.5s' is not a number with a unit, such as 15s"),
        (units.seconds, "-1s", "'-1s' is not a number with a unit, such as 15s"),
        (units.seconds, "", "'' is not a number with a unit, such as 15s"),
        (units.seconds, True, "must be a number with a unit, such as 15s"),
        (units.seconds, ["15s"], "must be a number with a unit, such as 15s"),
        (units.seconds, "5min", f"'5min' is no duration: write a number and one of {DURATIONS} (did you mean '5m'?)"),
        (units.seconds, "1week", f"'1week' is no duration: write a number and one of {DURATIONS}"),
        (units.seconds, "36501d", "'36501d' is too long: at most 36500d"),
        (units.positive_seconds, "0ms", "'0ms' leaves no time at all: write more than zero"),
        (units.lease_seconds, "2999ms", "'2999ms' is too short: a lease is renewed every third of it, so at least 3s"),
        (units.size, 1024, f"1024 has no unit: write 1024MiB, or another of {SIZES}"),
        (units.size, "10mb", f"'10mb' is no size: write a number and one of {SIZES} (did you mean '10MB'?)"),
        (units.size, "10k", f"'10k' is no size: write a number and one of {SIZES} (did you mean '10KiB'?)"),
        (units.size, "1.5MiB", "'1.5MiB' is no whole number: write it in a smaller unit"),
        (units.positive_size, "0B", "'0B' lets nothing through: write more than zero"),
    ],
)
def test_what_is_no_duration_or_size_is_told(read: Callable[[object], float], value: object, told: str) -> None:
    """Each wrong value gets its reason and, where one is near, the right spelling."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        read(value)

    assert told == str(caught.value)
