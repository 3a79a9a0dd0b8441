"""The key: the caller's name for an operation, read once, checked before anything else touches it, and kept only as a hash.

Two spellings are one key (draft-ietf-httpapi-idempotency-key-header-07, section 2.1, and what clients send in practice):
the structured-field string `"abc"` and the bare `abc`. After unquoting, a key is 1 to 255 visible ASCII characters.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from idemproxy.core.message import Fields, field_values

MAX_KEY_LENGTH: Final = 255

# RFC 9651, section 3.3.3: within the quotes only `"` and `\` are escaped, each by a backslash.
_QUOTED = re.compile(rb'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPE = re.compile(rb'\\(["\\])')
# A bare key with a comma would be a list, one with a quote a damaged string: neither has one sure reading.
_BARE = re.compile(rb"[\x21\x23-\x2b\x2d-\x7e]+")
_USUAL = re.compile(rb"[\x21\x23-\x2b\x2d-\x7e]{1,%d}" % MAX_KEY_LENGTH)
_VISIBLE = re.compile(rb"[\x21-\x7e]+")


class KeyMode(StrEnum):
    """What a write without a key means on a route."""

    OPTIONAL = "optional"
    REQUIRED = "required"
    DERIVE = "derive"
    """Where a workflow is told, the key is derived from that, the route and the fingerprint; else as `optional`."""


class KeySource(StrEnum):
    """What of a request names its operation."""

    HEADER = "header"
    WORKFLOW = "workflow"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Where a route finds its keys: the name of a header field, in lower case, and whether there must be a key.

    Of several sources the header comes first: `Workflow-Id` and `Workflow-Step` make a key only where no explicit one was sent.
    """

    header: bytes = b"idempotency-key"
    mode: KeyMode = KeyMode.OPTIONAL
    sources: frozenset[KeySource] = frozenset(KeySource)


class KeyInvalidError(ValueError):
    """The request names its operation in a way that has no single meaning; the message says why."""


def explicit_key(fields: Fields, rule: KeyRule) -> str | None:
    """The plain key that a request carries in the rule's field, None when it carries none. Raises KeyInvalidError."""
    if KeySource.HEADER in rule.sources and (lines := field_values(fields, rule.header)):
        return parse_key(sole(lines, "key"))
    return None


def sole(lines: list[bytes], name: str) -> bytes:
    """The value of a field that may stand on one line only; `name` is its name in messages. Raises KeyInvalidError."""
    if len(lines) != 1:
        raise KeyInvalidError(f"the {name} is given {len(lines)} times, and one operation has one")
    return lines[0]


def parse_key(value: bytes, name: str = "key") -> str:
    """Unquote and check one field value. Raises KeyInvalidError, whose message calls it `name`."""
    if _USUAL.fullmatch(value):
        return value.decode("ascii")
    if value.startswith(b'"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            raise KeyInvalidError(f"the {name} is not one well-formed quoted string")
        key = _ESCAPE.sub(rb"\1", quoted[1])
    elif _BARE.fullmatch(value) or not _VISIBLE.fullmatch(value):
        key = value
    else:
        raise KeyInvalidError(f"the {name} holds a comma or a quotation mark: send one, quoted if it needs such characters")
    if not key:
        raise KeyInvalidError(f"the {name} is empty")
    if len(key) > MAX_KEY_LENGTH:
        raise KeyInvalidError(f"the {name} has {len(key)} characters, and at most {MAX_KEY_LENGTH} are allowed")
    if not _VISIBLE.fullmatch(key):
        raise KeyInvalidError(f"the {name} holds a space, or another character that is not visible ASCII")
    return key.decode("ascii")


def spell_key(key: str) -> bytes:
    """A key as it is forwarded: always the same for one key, whichever spelling came; quoted only where it must be."""
    bare = key.encode("ascii")
    return bare if _BARE.fullmatch(bare) else b'"%b"' % re.sub(rb'(["\\])', rb"\\\1", bare)


def hash_secretly(text: bytes, secret: bytes | None) -> str:
    """SHA-256 of `text` in hex, or its HMAC when a secret is set: the only form in which keys and scopes are kept."""
    if secret is None:
        return hashlib.sha256(text).hexdigest()
    return hmac.digest(secret, text, "sha256").hex()
