"""Durations and sizes as people write them: `500ms`, `15s`, `24h`; `10MiB`, `64KiB`.

A bare number has no meaning here: every value names its unit. All functions raise ValueError with what is wrong and what to
write instead.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3_600), "d": Decimal(86_400)}
_BYTES: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "KB": 1000, "MB": 1000**2, "GB": 1000**3}

DURATION_PATTERN: Final = r"[0-9]{1,9}(\.[0-9]{1,6})? ?(ms|s|m|h|d)"
SIZE_PATTERN: Final = r"[0-9]{1,12} ?(B|KiB|MiB|GiB|KB|MB|GB)"

_NUMBER_AND_UNIT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([^0-9\s]*)")

# Hundred years: stores count microseconds since 1970 in 63 bits, and a typing error must not overflow them.
_LONGEST: Final = Decimal(36_500) * _SECONDS["d"]
_LEASE_MINIMUM: Final = 3.0
_CONFIRMATION_MAXIMUM: Final = 1.0


def seconds(value: object) -> float:
    """A duration in seconds."""
    number, unit = _split(value, "15s", tuple(_SECONDS))
    if unit not in _SECONDS:
        meant = next((known for known in _SECONDS if unit.lower().startswith(known)), None)
        raise ValueError(_wrong_unit(f"{value!r} is no duration", tuple(_SECONDS), f"{number}{meant}" if meant else None))
    duration = Decimal(number) * _SECONDS[unit]
    if duration > _LONGEST:
        raise ValueError(f"{value!r} is too long: at most 36500d")
    return float(duration)


def positive_seconds(value: object) -> float:
    """A duration above zero, in seconds."""
    duration = seconds(value)
    if duration == 0:
        raise ValueError(f"{value!r} leaves no time at all: write more than zero")
    return duration


def lease_seconds(value: object) -> float:
    """A lease in seconds; it is renewed every third of it, and a busy machine must be able to keep that up."""
    duration = seconds(value)
    if duration < _LEASE_MINIMUM:
        raise ValueError(f"{value!r} is too short: a lease is renewed every third of it, so at least 3s")
    return duration


def confirmation_seconds(value: object) -> float:
    """How long a confirmation of the store may take, in seconds; it must end well before the operation's own deadline."""
    duration = positive_seconds(value)
    if duration > _CONFIRMATION_MAXIMUM:
        raise ValueError(f"{value!r} is too long: an operation of the store is given up after 2s, so at most 1s")
    return duration


def size(value: object) -> int:
    """A size in bytes."""
    number, unit = _split(value, "10MiB", tuple(_BYTES))
    if "." in number:
        raise ValueError(f"{value!r} is no whole number: write it in a smaller unit")
    if unit not in _BYTES:
        wanted = unit.lower()
        meant = next((known for known in _BYTES if known.lower() in {wanted, f"{wanted}ib"}), None)
        raise ValueError(_wrong_unit(f"{value!r} is no size", tuple(_BYTES), f"{number}{meant}" if meant else None))
    return int(number) * _BYTES[unit]


def positive_size(value: object) -> int:
    """A size above zero, in bytes."""
    count = size(value)
    if count == 0:
        raise ValueError(f"{value!r} lets nothing through: write more than zero")
    return count


def _split(value: object, example: str, units: tuple[str, ...]) -> tuple[str, str]:
    """Number and unit of a value, both as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"must be a number with a unit, such as {example}")  # noqa: TRY004 - pydantic collects ValueError
    parts = _NUMBER_AND_UNIT.fullmatch(value)
    if parts is None:
        raise ValueError(f"{value!r} is not a number with a unit, such as {example}")
    number, unit = parts[1], parts[2]
    if not unit:
        example_unit = example.lstrip("0123456789")
        raise ValueError(f"{value} has no unit: write {number}{example_unit}, or another of {', '.join(units)}")
    return number, unit


def _wrong_unit(wrong: str, units: tuple[str, ...], meant: str | None) -> str:
    hint = f" (did you mean {meant!r}?)" if meant else ""
    return f"{wrong}: write a number and one of {', '.join(units)}{hint}"
