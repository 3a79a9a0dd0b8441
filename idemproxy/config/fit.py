"""Does a document have the shape of a configuration? All problems at once, and a shape to go on with even when there are some.

Pydantic reports everything that is wrong at one look, but gives no value then. So what is wrong is cut out (or, where something
must stand, filled in) and the rest is looked at again; `cut` tells later checks which conclusions would be hasty.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from idemproxy.config.problem import Trail, did_you_mean, either
from idemproxy.config.shape import ConfigurationShape, Limits
from idemproxy.config.source import Document, Unreadable

# What a required key gets when it is missing, so that the rest of its mapping can be looked at.
_FILLED: Final = {
    "name": "unnamed",
    "upstream": "unnamed",
    "url": "http://unnamed",
    "headers": ["unnamed"],
    "get": "/unnamed",
    "found": "unnamed",
    "certificate_file": "unnamed",
    "key_file": "unnamed",
}

_TYPES: Final = {
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_type": "must be text: put it in quotes",
    "string_too_short": "is empty: write something",
    "too_short": "is an empty list: write something or delete it",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A shape, and the trails of what is unsure in it: what was cut out of the document for it, and what is said there twice."""

    shape: ConfigurationShape
    unsure: frozenset[Trail]
    _around: frozenset[Trail] = field(init=False, repr=False)
    """All trails that lead to what is unsure."""

    def __post_init__(self) -> None:
        around = frozenset(hole[:depth] for hole in self.unsure for depth in range(len(hole)))
        object.__setattr__(self, "_around", around)

    def is_sure(self, *trails: Trail) -> bool:
        """Whether nothing at, within, or around these trails is unsure."""
        return not any(trail in self._around or _is_within(trail, self.unsure) for trail in trails)


def _is_within(trail: Trail, holes: Collection[Trail]) -> bool:
    """Whether a trail leads to one of the holes, or through it."""
    return any(trail[:depth] in holes for depth in range(len(trail) + 1))


def fit(document: Document) -> Fitted:
    """Validate a document; problems are added to it."""
    tree = copy.deepcopy(document.tree)
    cut: set[Trail] = set()
    for trail, value in _empty(tree, ()):
        if value is None:
            document.complain(trail, "is empty: give it a value, or delete the line")
        _cut_out(tree, trail, cut)
    while True:
        try:
            return Fitted(ConfigurationShape.model_validate(tree), frozenset(cut | document.twice))
        except ValidationError as failure:
            errors = failure.errors(include_url=False)
        for error in errors:
            trail = error["loc"]
            if not _is_within(trail, cut):
                document.complain(trail, _explain(error))
        for error in errors:
            if error["type"] == "missing":
                _fill_in(tree, error["loc"], cut)
            else:
                _cut_out(tree, error["loc"], cut)


def shape_at(trail: Trail) -> type[BaseModel] | None:
    """The model that describes the mapping at `trail`, or None where there is none."""
    here: Any = ConfigurationShape
    for step in trail:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(step))
            here = _plain(field.annotation) if field else None
        else:
            # A mapping's values, or a list's items: dict[str, X], tuple[X, ...].
            here = next((_plain(inner) for inner in get_args(here) if inner not in {str, ...}), None)
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _plain(annotation: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    """An annotation without `Annotated` and without `| None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in {Union, UnionType}:
            annotation = next(inner for inner in get_args(annotation) if inner is not type(None))
        else:
            return annotation


def _explain(error: ErrorDetails) -> str:
    """What is wrong, in words for someone who knows YAML and not Python."""
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    if kind == "extra_forbidden":
        if len(error["loc"]) == 1 and error["loc"][0] in Limits.model_fields:
            return f"unknown key (did you mean 'defaults.{error['loc'][0]}'?)"
        model = shape_at(error["loc"][:-1])
        known = [field.alias or name for name, field in model.model_fields.items()] if model else []
        hint = did_you_mean(str(error["loc"][-1]), known) or f"; known here: {', '.join(known)}"
        return f"unknown key{hint}"
    if kind == "missing":
        return "is missing: add it"
    if kind in {"enum", "literal_error"}:
        choices = re.findall(r"'([^']*)'", context["expected"])
        hint = did_you_mean(given, choices) if isinstance(given, str) else ""
        return f"must be {either(choices)}{hint}"
    if kind == "value_error":
        return str(context["error"])
    if kind in {"greater_than_equal", "less_than_equal"}:
        limit = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return f"{given} is out of range: {limit}"
    if kind == "string_pattern_mismatch":
        return f"{given!r} does not match {context['pattern']}"
    if kind == "model_type" and isinstance(given, str) and error["loc"][:-1] == ("upstreams",):
        return "must be a mapping: write {url: ...} around the URL"
    if kind == "tuple_type" and isinstance(given, str | int) and shape_at((*error["loc"], 0)) is None:
        return f"must be a list: write [{given}]"
    return _TYPES.get(kind, error["msg"])


def _empty(value: object, trail: Trail) -> list[tuple[Trail, object]]:
    """Where a document says nothing (None), or something that could not be read."""
    if value is None or value is Unreadable.VALUE:
        return [(trail, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for step, item in inner for found in _empty(item, (*trail, step))]


def _cut_out(tree: dict[str, Any], trail: Trail, cut: set[Trail]) -> None:
    """Take out the smallest part around `trail` that a mapping holds; a whole route or upstream leaves an empty one."""
    parents: list[Any] = [tree]
    for step in trail:
        inner = parents[-1]
        places = inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        if step not in places:
            break
        parents.append(inner[step])
    trail = trail[: len(parents) - 1]
    while trail:
        parent: Any = parents[len(trail) - 1]
        if len(trail) == 2 and trail[0] in {"routes", "upstreams"}:
            parent[trail[1]] = {}
        elif isinstance(parent, list):
            trail = trail[:-1]
            continue
        else:
            del parent[trail[-1]]
        cut.add(trail)
        return


def _fill_in(tree: dict[str, Any], trail: Trail, cut: set[Trail]) -> None:
    """Put something in the place of a missing key, unless what it is missing from was cut out meanwhile."""
    inner: Any = tree
    try:
        for step in trail[:-1]:
            inner = inner[step]
    except LookupError:
        return
    inner[trail[-1]] = _FILLED[str(trail[-1])]
    cut.add(trail)
