"""HTTP messages as they came: bytes, in order, with their repeats.

Field names keep the case in which they arrived and values keep their bytes; comparison ignores the case of names
(RFC 9110, section 5.1). Nothing is folded, decoded or normalised here, so what goes in can come out unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields in the order of the wire: (name as received, value without surrounding white space)."""


def field_values(fields: Fields, name: bytes) -> list[bytes]:
    """Every value of the field `name` (lower case), in order; empty when the field is absent."""
    return [value for field_name, value in fields if field_name.lower() == name]


def without(fields: Fields, names: frozenset[bytes]) -> Fields:
    """The fields whose lower-case name is not in `names`, in their order."""
    return tuple(pair for pair in fields if pair[0].lower() not in names)


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
