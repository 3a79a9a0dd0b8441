"""The scope: whose keys these are. Two scopes never see each other's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from idemproxy.core.key import hash_secretly
from idemproxy.core.message import Fields, field_values

SHARED: Final = "shared"


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """The header fields, by lower-case name, whose values make the scope; none: all callers share one scope."""

    headers: tuple[bytes, ...] = ()


def find_scope(fields: Fields, rule: ScopeRule, secret: bytes | None) -> str:
    """`shared`, or the hash of the named fields' values.

    Names, counts and lengths are part of what is hashed, so that an absent field, an empty one and a value
    that was split differently are three scopes and not one.
    """
    if not rule.headers:
        return SHARED
    parts = []
    for name in rule.headers:
        values = field_values(fields, name)
        parts.append(b"%b:%d" % (name, len(values)))
        parts.extend(b"%d:%b" % (len(value), value) for value in values)
    return hash_secretly(b"\n".join(parts), secret)
