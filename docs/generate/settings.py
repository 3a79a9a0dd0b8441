"""Every key of a configuration file, from the JSON Schema that the shape makes of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from docs.generate.markdown import NOTHING, anchor, code, table
from idemproxy.config import units
from idemproxy.config.load import load
from idemproxy.config.show import json_schema

Schema: TypeAlias = Mapping[str, Any]

_NAME: Final = "name"
"""The upstream of the configuration whose values are shown as defaults."""

_HEADING = ("key", "value", "default", "meaning")
_UNIT_PATTERNS = {units.DURATION_PATTERN: "duration", units.SIZE_PATTERN: "size"}


def settings() -> str:
    """One table for each mapping of the file, the outermost first."""
    schema = json.loads(json_schema())
    reader = _Reader(schema.get("$defs", {}))
    in_force = load({"upstream": [f"{_NAME}=http://127.0.0.1:9000"]}, {}).shape.model_dump(mode="json", by_alias=True)
    return "\n".join(reader.tables("", schema, in_force))


class _Reader:
    """Walks through a schema; `defs` are its named parts."""

    def __init__(self, defs: Mapping[str, Schema]) -> None:
        self._defs = defs

    def tables(self, path: str, schema: Schema, in_force: object) -> Iterator[str]:
        """The table of one mapping, then those of the mappings in it. `in_force`: its values where nothing is said."""
        required, rows, inner = schema.get("required", ()), [], []
        for name, said in schema["properties"].items():
            whole = f"{path}.{name}" if path else name
            resolved, value = self._resolved(said), in_force.get(name) if isinstance(in_force, dict) else None
            about = said.get("description") or resolved.get("description", "")
            step, mapping = self._mapping(resolved)
            if mapping is not None:
                about += f" See [below](#{anchor(whole + step)})."
                inner.append((whole + step, mapping, _inside(value, step)))
            default = "required" if name in required else _default(resolved, said.get("default", value))
            rows.append([code(whole), self._type(resolved), default, " ".join(about.split()).replace("<", "&lt;")])
        yield f"### {code(path) if path else 'Top level'}\n\n{table(_HEADING, rows)}"
        for place, mapping, value in inner:
            yield from self.tables(place, mapping, value)

    def _resolved(self, schema: Schema) -> Schema:
        """The schema, or the named one that it refers to."""
        reference = schema.get("$ref")
        return self._defs[reference.removeprefix("#/$defs/")] if reference else schema

    def _mapping(self, schema: Schema) -> tuple[str, Schema | None]:
        """The mapping that a value is, or holds, and how its path goes on; None for a plain value."""
        choices = [self._resolved(choice) for choice in schema.get("anyOf", [schema])]
        for choice in choices:
            inside = {"[]": choice.get("items"), ".NAME": choice.get("additionalProperties"), "": choice}
            for step, found in inside.items():
                if isinstance(found, dict) and "properties" in (resolved := self._resolved(found)):
                    return step, resolved
        return "", None

    def _type(self, schema: Schema) -> str:
        """What may be written there."""
        schema = self._resolved(schema)
        match schema:
            case {"anyOf": choices}:
                return " or ".join(map(self._type, choices))
            case {"enum": words}:
                return ", ".join(map(code, words))
            case {"type": "string", "pattern": str(pattern)}:
                return next((word for unit, word in _UNIT_PATTERNS.items() if unit in pattern), f"text, {code(pattern)}")
            case {"type": "string"}:
                return "text"
            case {"type": "integer", "minimum": least, "maximum": most}:
                return f"number, {least} to {most}"
            case {"type": "boolean"}:
                return "`true`, `false`"
            case {"type": "array", "items": items}:
                return f"list: {self._type(items)}"
            case {"type": "object", "properties": _}:
                return "mapping"
            case {"type": "object", "additionalProperties": values}:
                return f"mapping: {self._type(values)}"
            case _:
                raise AssertionError(f"no words for a value of {schema}")


def _inside(value: object, step: str) -> object:
    match step, value:
        case "[]", [first, *_]:
            return first
        case ".NAME", {"name": named}:
            return named
        case _:
            return value


def _default(schema: Schema, value: object) -> str:
    """A default that fits into a cell; a mapping has its own in its table."""
    match value:
        case None:
            return NOTHING
        case dict() if value or "properties" in schema:
            return "see below" if "properties" in schema or "anyOf" in schema else NOTHING
        case list() if any(isinstance(item, dict) for item in value):
            return NOTHING
        case str():
            return code(value)
        case _:
            return code(json.dumps(value))
