"""HTTP messages as they came: bytes, in order, with their repeats.

Field names keep the case in which they arrived and values keep their bytes; comparison ignores the case of names
(RFC 9110, section 5.1). Nothing is folded, decoded or normalised here, so what goes in can come out unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields in the order of the wire: (name as received, value without surrounding white space)."""

Found = TypeVar("Found")

_MOST_SHAPES: Final = 256
_MOST_NAMES: Final = 64
_LONGEST: Final = 1_024
"""So many shapes are remembered, of so many names with so many bytes in all: a client cannot fill the memory with them."""
_MOST_RESTS: Final = 64
"""And so many for each of what may be left of it."""


class Rest(NamedTuple):
    """Those of a shape's names that are left when others go: their places in it, and their own shape."""

    places: list[int]
    shape: Shape


class Shape:
    """The names of a message's fields, and what follows from them alone.

    A program names the same fields in message after message, so that is found out once, and not for each of them.
    """

    __slots__ = ("_answers", "_longer", "_rests", "has", "names", "places")

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = names
        self.places: dict[bytes, list[int]] = {}
        """Where each field stands, by its name in lower case."""
        for place, name in enumerate(names):
            self.places.setdefault(name.lower(), []).append(place)
        self.has: dict[frozenset[bytes], bool] = {}
        """Whether one of these names is among them: what `has_any` has found so far."""
        self._rests: dict[frozenset[bytes], Rest | None] = {}
        self._longer: dict[tuple[bytes, ...], Shape] = {}
        self._answers: dict[Callable[[Shape], Any], Any] = {}

    def ask(self, question: Callable[[Shape], Found]) -> Found:
        """What `question`, one of the few functions that read names, finds in these; never None."""
        found: Found | None = self._answers.get(question)
        if found is None:
            found = self._answers[question] = question(self)
        return found

    def rest(self, names: frozenset[bytes]) -> Rest | None:
        """What is left without `names`; None when all of it is."""
        if names not in self._rests:
            if len(self._rests) >= _MOST_RESTS:
                self._rests.clear()
            gone = {place for name in names for place in self.places.get(name, ())}
            kept = [place for place in range(len(self.names)) if place not in gone]
            self._rests[names] = Rest(kept, shape_of(tuple([self.names[place] for place in kept]))) if gone else None
        return self._rests[names]

    def longer(self, names: tuple[bytes, ...]) -> Shape:
        """The shape of these names with others behind them."""
        found = self._longer.get(names)
        if found is None:
            found = self._longer[names] = Shape(self.names + names)
        return found


_SHAPES: Final[dict[tuple[bytes, ...], Shape]] = {}


def shape_of(names: tuple[bytes, ...]) -> Shape:
    """The shape that these names have."""
    shape = _SHAPES.get(names)
    if shape is None:
        shape = Shape(names)
        if len(names) <= _MOST_NAMES and sum(map(len, names)) <= _LONGEST:
            if len(_SHAPES) >= _MOST_SHAPES:
                _SHAPES.clear()  # those that are in use are soon there again
            _SHAPES[names] = shape
    return shape


class Indexed(tuple[tuple[bytes, bytes], ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """Fields with their shape, made by `indexed`: some twenty times a request asks for one of them by its name."""

    shape: Shape
    values: tuple[bytes, ...]
    """Of the fields, in their order."""

    def __reduce__(self) -> tuple[Callable[[Fields], Indexed], tuple[Fields]]:
        """For another process, which has shapes of its own."""
        return indexed, (tuple(self),)

    def followed_by(self, names: tuple[bytes, ...], values: tuple[bytes, ...]) -> Indexed:
        """The fields, and others behind them."""
        made = tuple.__new__(Indexed, self + tuple(zip(names, values)))  # noqa: B905 - as above
        made.shape, made.values = self.shape.longer(names), self.values + values
        return made

    def lines(self, left_out: frozenset[bytes]) -> bytes:
        """The lines of the fields on the wire, each ended by CRLF, but for those whose lower-case name is in `left_out`."""
        rest = self.shape.rest(left_out)
        if rest is None:
            return self.shape.ask(_form) % self.values
        return rest.shape.ask(_form) % tuple([self.values[place] for place in rest.places])

    def without(self, names: frozenset[bytes]) -> Indexed:
        """The fields whose lower-case name is not in `names`."""
        rest = self.shape.rest(names)
        if rest is None:
            return self
        places, shape = rest
        made = tuple.__new__(Indexed, [self[place] for place in places])
        made.shape, made.values = shape, tuple([self.values[place] for place in places])
        return made


def indexed(fields: Sequence[tuple[bytes, bytes]]) -> Indexed:
    """The same fields, with their shape."""
    if type(fields) is Indexed:
        return fields
    made = tuple.__new__(Indexed, fields)
    names, made.values = zip(*fields) if fields else ((), ())  # noqa: B905 - they are pairs, and to be strict costs as much
    made.shape = shape_of(names)
    return made


def _form(shape: Shape) -> bytes:
    """The lines of fields on the wire, to be filled with their values."""
    return b"".join([name.replace(b"%", b"%%") + b": %b\r\n" for name in shape.names])


def field_values(fields: Fields, name: bytes) -> list[bytes]:
    """Every value of the field `name` (lower case), in order; empty when the field is absent."""
    if type(fields) is Indexed:
        places, values = fields.shape.places, fields.values
        if name not in places:
            return []
        found = places[name]
        return [values[found[0]]] if len(found) == 1 else [values[place] for place in found]
    return [value for field_name, value in fields if field_name.lower() == name]


def names_of(fields: Fields) -> Collection[bytes]:
    """The names of the fields, in lower case."""
    return fields.shape.places if isinstance(fields, Indexed) else {name.lower() for name, _ in fields}


def has_any(fields: Fields, names: frozenset[bytes]) -> bool:
    """Whether one of these names (lower case) is among those of the fields; of an Indexed, there are few such sets."""
    if type(fields) is not Indexed:
        return not names.isdisjoint(names_of(fields))
    has = fields.shape.has
    if names not in has:
        has[names] = not names.isdisjoint(fields.shape.places)
    return has[names]


def without(fields: Fields, names: frozenset[bytes]) -> Fields:
    """The fields whose lower-case name is not in `names`, in their order."""
    if isinstance(fields, Indexed):
        return fields.without(names)
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
