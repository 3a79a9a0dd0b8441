"""What of a request's target may stand in a log: never a plain key, nor credentials, nor what stands behind the path."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final
from urllib.parse import unquote_to_bytes

from idemproxy.core.key import KeyInvalidError
from idemproxy.core.message import Fields, field_values, has_any
from idemproxy.core.policy import comparable_path
from idemproxy.core.workflow import CARRIERS, find_workflow, step_key

_NAMING: Final = (b"/_idemproxy/keys/", b"/_idemproxy/workflows/")
"""The pages that are asked for by a key, or by the id of a workflow, which is part of its keys."""
_OWN: Final = b"/_idemproxy/"
_PART: Final = re.compile(rb"[/%]")

_ESCAPED = re.compile(rb'\\(["\\])')
_TO_ESCAPE = re.compile(rb'["\\]')
_USERINFO = re.compile(rb"((?:/|%2f){2})(?:(?!/|%2f).)*(?:@|%40)", re.IGNORECASE | re.DOTALL)
_PIECE = re.compile(rb"%[0-9a-f]{2}|.", re.IGNORECASE | re.DOTALL)


def plain_keys(fields: Fields, names: Collection[bytes]) -> set[bytes]:
    """Every key that a request may have, valid or not, in every spelling in which it can stand somewhere else.

    `names`: the fields, in lower case, that hold keys. A quoted key stands there as it was sent, and without its escapes.
    """
    keys: set[bytes] = set()
    for name in names:
        for value in field_values(fields, name):
            if _TO_ESCAPE.search(value) is None:  # as is usual: there is one spelling
                keys.add(value)
                continue
            inner = value.removeprefix(b'"').removesuffix(b'"')
            bare = _ESCAPED.sub(rb"\1", inner)
            keys |= {inner, bare, _TO_ESCAPE.sub(rb"\\\g<0>", bare)}
    if has_any(fields, CARRIERS):
        keys |= _workflow_keys(fields)
    keys.discard(b"")
    return keys


def _workflow_keys(fields: Fields) -> set[bytes]:
    """With a number, the id alone makes every key of the workflow."""
    keys: set[bytes] = set()
    with suppress(KeyInvalidError):
        workflow = find_workflow(fields)
        if workflow is not None:
            plain = workflow.id.encode("ascii")
            keys |= {plain, _TO_ESCAPE.sub(rb"\\\g<0>", plain)}
            keys.add((step_key(workflow) or "").encode("ascii"))
    return keys


def tells(text: bytes, keys: Collection[bytes]) -> bool:
    """Whether a text holds one of the keys, as it stands or percent-encoded."""
    plain = unquote_to_bytes(text) if b"%" in text else text
    return any(key in text or key in plain for key in keys)


def visible_path(target: bytes, keys: Collection[bytes]) -> bytes:
    """The path of a target, with `*` for a key, also one that is asked for, and for credentials; `-` where it is no path.

    So it is with the id of a workflow that is asked for.
    """
    path = target.partition(b"?")[0]
    if b"#" in path:
        path = path.partition(b"#")[0]
    if not path.startswith(b"/"):
        return b"-"  # it may hold credentials
    comparable = comparable_path(path)
    if comparable.startswith(_OWN):
        for page in _NAMING:
            if comparable.startswith(page):
                return page + b"*"
        if _PART.search(comparable, len(_OWN)):
            return _OWN + b"*"  # whoever mistypes a page gives it the same names
    if b"@" in path or b"%40" in path:
        path = _USERINFO.sub(rb"\1*@", path)
    return _without_keys(path, sorted(keys, key=len, reverse=True) if len(keys) > 1 else keys) if keys else path


def _without_keys(path: bytes, longest_first: Collection[bytes]) -> bytes:
    for key in longest_first:
        path = path.replace(key, b"*")
    if not longest_first or b"%" not in path:
        return path
    pieces, plain = _PIECE.findall(path), unquote_to_bytes(path)  # a byte for each piece
    for key in longest_first:
        at = plain.find(key)
        while at >= 0:
            pieces[at : at + len(key)] = [b"*", *[b""] * (len(key) - 1)]
            at = plain.find(key, at + len(key))
    return b"".join(pieces)
