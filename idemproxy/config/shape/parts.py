"""What the parts of a configuration are made of: kinds of values, kept as written and checked by the functions that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from idemproxy.config import units, values


def checked(read: Callable[[Any], object]) -> BeforeValidator:
    """Keep the value as written when `read` understands it."""

    def check(value: object) -> object:
        read(value)
        return value

    return BeforeValidator(check)


def checked_text(read: Callable[[str], object]) -> BeforeValidator:
    """As `_checked`, for text; anything else is left to the type's own check."""
    return checked(lambda value: read(value) if isinstance(value, str) else None)


# A variable may stand in the place of a value, or of a part of it.
DURATION = WithJsonSchema({"type": "string", "pattern": rf"^({units.DURATION_PATTERN}|.*\$\{{.*)$", "examples": ["500ms", "15s"]})
SIZE = WithJsonSchema({"type": "string", "pattern": rf"^({units.SIZE_PATTERN}|.*\$\{{.*)$", "examples": ["64KiB", "10MiB"]})

Duration: TypeAlias = Annotated[str, checked(units.seconds), DURATION]
Patience: TypeAlias = Annotated[str, checked(units.positive_seconds), DURATION]
Lease: TypeAlias = Annotated[str, checked(units.lease_seconds), DURATION]
Size: TypeAlias = Annotated[str, checked(units.size), SIZE]
PositiveSize: TypeAlias = Annotated[str, checked(units.positive_size), SIZE]
Listen: TypeAlias = Annotated[str, checked_text(values.read_address)]
FieldName: TypeAlias = Annotated[str, checked_text(values.read_field_name)]
ForwardKeyText: TypeAlias = Annotated[
    str, checked_text(values.read_forward_key), Field(json_schema_extra={"pattern": "^(strip|same|rename:.+)$"})
]
Status: TypeAlias = Annotated[int, Field(ge=100, le=599)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]


class Shape(BaseModel):
    """Part of a configuration: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def or_words(words: list[str], mapping: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of one of some words, or a mapping."""
    about = mapping.pop("description", "")
    return {"description": about, "anyOf": [{"enum": [str(word) for word in words]}, mapping]}
