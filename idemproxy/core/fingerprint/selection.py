"""Which parts of a JSON body count: JSON Pointers (RFC 6901) and JMESPath expressions.

`include` takes either. `exclude` removes what it names, so it takes what names a place: a pointer, or a JMESPath path of names,
indexes and wildcards. Both become one list of steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.parser import ParsedResult

Node: TypeAlias = Mapping[str, Any]
"""A node of a parsed expression: its type, its children and its value (jmespath.ast)."""


@dataclass(frozen=True, slots=True)
class Token:
    """One part of a pointer: a name in an object, or an index in an array where it is spelled as one."""

    name: str
    index: int | None


class Every(Enum):
    """The wildcards: each item of an array, each member of an object, and what `[]` does: the items of an array, or the value."""

    ITEM = "[*]"
    MEMBER = "*"
    FLAT = "[]"


_FLATTENED = ((Every.ITEM, Every.FLAT), (Every.FLAT,), ())
"""The steps of a `[]` by the levels of lists to its left: it opens the values, or the results, or only the lists of results."""

Step: TypeAlias = str | int | Token | Every
Place: TypeAlias = tuple[dict[str, Any] | list[Any], Any]
"""A container and the name or index of a value in it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a rule leaves out of a document, and then takes from what is left."""

    include: tuple[tuple[Token, ...] | ParsedResult, ...]
    exclude: tuple[tuple[Step, ...], ...]

    def without_excluded(self, document: object) -> object:
        """The document, changed in place, without what `exclude` names. Places are found before anything is removed."""
        holder = [document]
        doomed = [place for steps in self.exclude for place in _places(holder, steps)]
        arrays: dict[int, tuple[list[Any], set[int]]] = {}
        for container, key in doomed:
            if isinstance(container, dict):
                container.pop(key, None)
            else:
                arrays.setdefault(id(container), (container, set()))[1].add(key)
        for array, indexes in arrays.values():
            array[:] = [item for index, item in enumerate(array) if index not in indexes]
        return holder[0]

    def included(self, document: object) -> list[list[object]]:
        """For each of `include` a list of what it selects: one value, or none where a pointer leads nowhere.

        An expression that finds nothing selects null. Raises whatever an expression raises.
        """
        return [_selected(document, entry) for entry in self.include]


def _selected(document: object, entry: tuple[Token, ...] | ParsedResult) -> list[object]:
    if isinstance(entry, ParsedResult):
        return [entry.search(document)]
    return [container[key] for container, key in _places([document], entry)]


def _places(holder: list[object], steps: Sequence[Step]) -> list[Place]:
    places: list[Place] = [(holder, 0)]
    for step in steps:
        places = [found for place in places for found in _step(place, step)]
    return places


def _step(place: Place, step: Step) -> Iterator[Place]:
    """Where `step` leads from `place`: nowhere, to one place, or to several."""
    container, key = place
    match step, container[key]:
        case ((str(name) | Token(name=name)), dict(members)) if name in members:
            yield members, name
        case ((int(index) | Token(index=int(index))), list(items)) if -len(items) <= index < len(items):
            yield items, index % len(items)
        case ((Every.ITEM | Every.FLAT), list(items)):
            yield from ((items, index) for index in range(len(items)))
        case Every.MEMBER, dict(members):
            yield from ((members, name) for name in members)
        case Every.FLAT, _:
            yield place


def selector(text: str) -> tuple[Token, ...] | ParsedResult:
    """An entry of `include`. Raises ValueError with a sentence when it is neither a pointer nor an expression."""
    return pointer(text) if _is_pointer(text) else expression(text)


def path(text: str) -> tuple[Step, ...]:
    """An entry of `exclude`. Raises ValueError with a sentence when it names no place below the root."""
    steps = pointer(text) if _is_pointer(text) else _steps(expression(text).parsed)
    if not steps:
        raise ValueError("it names the whole body, so nothing would be left to compare")
    return steps


def _is_pointer(text: str) -> bool:
    return text == "" or text.startswith("/")


def pointer(text: str) -> tuple[Token, ...]:
    """The parts of a JSON Pointer; none of the empty one, which names the whole. Raises ValueError with a sentence."""
    if re.search(r"~(?![01])", text):
        raise ValueError('in a JSON Pointer, "~" is followed by 0 or 1 (RFC 6901)')
    names = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    return tuple(Token(name, int(name) if re.fullmatch(r"0|[1-9][0-9]{0,17}", name) else None) for name in names)


def expression(text: str) -> ParsedResult:
    """A JMESPath expression, ready to search. Raises ValueError with a sentence."""
    try:
        compiled = jmespath.compile(text)
    except JMESPathError as problem:
        raise ValueError(f"it is no JMESPath expression: {_reason(problem)}") from problem
    for name in _functions(compiled.parsed):
        if name not in Functions.FUNCTION_TABLE:
            raise ValueError(f"JMESPath has no function {name}()")
    return compiled


def _reason(problem: JMESPathError) -> str:
    """The first line of the library's message; the others show the expression again."""
    return str(problem).partition("\n")[0].removesuffix(" for expression:").rstrip(":,")


def _functions(node: Node) -> Iterator[str]:
    """The names of the functions that an expression calls."""
    if node["type"] == "function_expression":
        yield node["value"]
    for child in node["children"]:
        if isinstance(child, dict):  # The children of a slice are numbers.
            yield from _functions(child)


def _steps(node: Node) -> tuple[Step, ...]:
    """The steps of a JMESPath path. Raises ValueError for any other expression.

    What follows a wildcard stands on its right side in the tree. A wildcard on the left side was grouped: `(a[*])[0]` is
    the first result of all, where `a[*][0]` is the first item of each, so it is no path.
    """
    match node:
        case {"type": "field" | "index", "value": value}:
            return (value,)
        case {"type": "identity" | "current"}:
            return ()
        case {"type": "subexpression" | "index_expression", "children": [*heads, last]} if not any(map(_levels, heads)):
            return (*(step for head in heads for step in _steps(head)), *_steps(last))
        case {"type": "projection", "children": [{"type": "flatten", "children": [left]}, right]} if _levels(left) < len(
            _FLATTENED
        ):
            return (*_steps(left), *_FLATTENED[_levels(left)], *_steps(right))
        case {"type": "projection", "children": [left, right]} if not _levels(left):
            return (*_steps(left), Every.ITEM, *_steps(right))
        case {"type": "value_projection", "children": [left, right]} if not _levels(left):
            return (*_steps(left), Every.MEMBER, *_steps(right))
        case _:
            raise ValueError("exclude takes a path: names, indexes and wildcards")


def _levels(node: Node) -> int:
    """How many lists within one another the wildcards of a path make of its results."""
    match node:
        case {"type": "projection", "children": [{"type": "flatten", "children": [left]}, right]}:
            return max(1, _levels(left) - 1) + _levels(right)
        case {"type": "projection" | "value_projection", "children": [_, right]}:
            return 1 + _levels(right)
        case {"type": "subexpression" | "index_expression", "children": [*_, last]}:
            return _levels(last)
        case _:
            return 0
