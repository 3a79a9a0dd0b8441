"""Writes that keep what they are told: which fields a body must have is all that tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from idemproxy.demo.ledger import Ledger


def making(**wanted: type[str | int] | str) -> Callable[[Ledger, dict[str, Any]], dict[str, Any]]:
    """Make what a row of `Write` carries out: keep these fields of the body.

    A field is a string, a whole number above 0, or, where `wanted` names a kind, the id of something of that kind that was made.
    """

    def carry_out(ledger: Ledger, body: dict[str, Any]) -> dict[str, Any]:
        return {name: _checked(ledger, name, kind, body.get(name)) for name, kind in wanted.items()}

    return carry_out


def _checked(ledger: Ledger, name: str, kind: type[str | int] | str, value: object) -> object:
    """The value of a field; 422 where it is of another kind, 404 where nothing has that id."""
    match kind, value:
        case str(), str() if any(resource["id"] == value for resource in ledger.resources(kind)):
            return value
        case str(), _:
            raise web.HTTPNotFound(text=f"no {kind} {value!r}")
        case type(), str() if kind is str:
            return value
        case type(), int() if kind is int and not isinstance(value, bool) and value > 0:
            return value
    raise web.HTTPUnprocessableEntity(text=f"{name} must be {'a string' if kind is str else 'a whole number above 0'}")
