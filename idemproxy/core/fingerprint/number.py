"""JSON numbers, exactly: compared as decimals by their text, whatever their size and spelling.

Floats would make 0.1 and 0.1000000000000000055 the same, and 1e400 infinite; integers of Python refuse text of more than 4,300
digits, and 1e999999999 would fill the memory. So a number stays text until it is compared or written.
"""

from __future__ import annotations

import numbers
from decimal import Decimal
from functools import total_ordering

_PLAIN_DIGITS = 17
"""Integers of at most this many digits are plain integers, which is quick and lets expressions calculate with them."""

_MOST_EXPONENT_DIGITS = 18


@total_ordering
class Number(numbers.Number):
    """A number that is no small integer; expressions can compare it, exactly, but not calculate with it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return _is_number(other) and _decimal(self) == _decimal(other)

    def __hash__(self) -> int:
        return hash(_decimal(self))

    def __lt__(self, other: object) -> bool:
        return _decimal(self) < _decimal(other) if _is_number(other) else NotImplemented


def _is_number(value: object) -> bool:
    return isinstance(value, Number | int | float) and not isinstance(value, bool)


def _decimal(value: object) -> Decimal:
    """The exact value; of a float, which only a literal of an expression is, the value of its shortest spelling (0.1 is 0.1)."""
    return Decimal(str(value))


def integer(text: str) -> int | Number:
    """A JSON number without fraction and exponent."""
    return int(text) if len(text) <= _PLAIN_DIGITS else Number(text)


def canonical(text: str) -> int | str:
    """The one spelling of a value: an integer of at most 17 digits, or else its significant digits and exponent, `-125e-2`.

    Raises ValueError for an exponent of more than 18 digits, which is not worth exact arithmetic.
    """
    mantissa, _, power = text.lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    significant = digits.rstrip("0")
    exponent = _exponent(power) + len(digits) - len(significant) - len(fraction)
    if exponent >= 0 and len(significant) + exponent <= _PLAIN_DIGITS:
        return int(sign + significant + "0" * exponent)
    return f"{sign}{significant}e{exponent}"


def _exponent(text: str) -> int:
    magnitude = text.lstrip("+-").lstrip("0")
    if len(magnitude) > _MOST_EXPONENT_DIGITS:
        raise ValueError("an exponent of more than 18 digits")
    return -int(magnitude or 0) if text.startswith("-") else int(magnitude or 0)
