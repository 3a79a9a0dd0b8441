"""HTTP messages as they came: bytes, in order, with their repeats.

Field names keep the case in which they arrived and values keep their bytes; comparison ignores the case of names
(RFC 9110, section 5.1). Nothing is folded, decoded or normalised here, so what goes in can come out unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Self, TypeAlias

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields in the order of the wire: (name as received, value without surrounding white space)."""


class Indexed(tuple[tuple[bytes, bytes], ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """Fields of a message that came, gone through once: some twenty times a request asks for one of them by its name."""

    by_name: dict[bytes, list[bytes]]
    """The values of each field, by its name in lower case."""

    def __new__(cls, fields: Sequence[tuple[bytes, bytes]]) -> Self:
        """The same fields."""
        self = super().__new__(cls, fields)
        by_name: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            by_name.setdefault(name.lower(), []).append(value)
        self.by_name = by_name
        return self

    def followed_by(self, more: Fields) -> Indexed:
        """The fields, and others behind them."""
        made = tuple.__new__(Indexed, self + more)
        made.by_name = {**self.by_name}
        for name, value in more:
            lowered = name.lower()
            made.by_name[lowered] = [*made.by_name.get(lowered, ()), value]
        return made


def field_values(fields: Fields, name: bytes) -> list[bytes]:
    """Every value of the field `name` (lower case), in order; empty when the field is absent."""
    if isinstance(fields, Indexed):
        return fields.by_name.get(name) or []
    return [value for field_name, value in fields if field_name.lower() == name]


def names_of(fields: Fields) -> Collection[bytes]:
    """The names of the fields, in lower case."""
    return fields.by_name if isinstance(fields, Indexed) else {name.lower() for name, _ in fields}


def has_any(fields: Fields, names: frozenset[bytes]) -> bool:
    """Whether one of these names (lower case) is among those of the fields."""
    return not names.isdisjoint(names_of(fields))


def without(fields: Fields, names: frozenset[bytes]) -> Fields:
    """The fields whose lower-case name is not in `names`, in their order."""
    if isinstance(fields, Indexed) and names.isdisjoint(fields.by_name):
        return fields
    return tuple([pair for pair in fields if pair[0].lower() not in names])


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for. `target` is the raw request target, byte for byte."""

    method: str
    target: bytes
    fields: Fields
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> bytes:
        """The target up to its query, still percent-encoded."""
        return self.target.partition(b"?")[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an upstream replied: status (100 to 599), reason phrase, end-to-end fields, and the whole body."""

    status: int
    reason: bytes
    fields: Fields
    body: bytes = field(default=b"", repr=False)
