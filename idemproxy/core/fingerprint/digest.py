"""The fingerprint: a versioned digest of what was asked.

Version 1 is `v1:` and the SHA-256, in base64url without padding, of seven netstrings (module `frame`) in this order:

1. the method;
2. the request target, byte for byte;
3. the list of the Content-Type fields' essences (one, as a rule);
4. the list of the chosen header fields, by name in order: for each its name, then the list of its values in order;
5. the form of the body: `json`, `json-part`, `form`, `multipart` or `bytes`;
6. the codings that are still on it, empty for all but `bytes`;
7. the body in that form.

Nothing else of the request enters. A Content-Encoding is undone only for this: a gzip header holds a time stamp, and compressors
differ, so the same content seldom has the same encoded bytes on a second try. A body that is not well formed for its type, or is
JSON with a `charset` other than UTF-8, is compared as bytes, which can only make two requests differ that might be called the
same, never the reverse. What is written here must not change under this version: a store may hold fingerprints from before.
"""

from __future__ import annotations

from binascii import b2a_base64
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from idemproxy.core.coding import names, undo
from idemproxy.core.fingerprint.form import canonical_form
from idemproxy.core.fingerprint.frame import framed, framed_list
from idemproxy.core.fingerprint.json_form import canonical_json
from idemproxy.core.fingerprint.multipart import canonical_multipart
from idemproxy.core.fingerprint.parameters import essence, parameters
from idemproxy.core.fingerprint.rule import FingerprintRule, selection
from idemproxy.core.message import Request, field_values

_UTF8 = frozenset({b"utf-8", b"utf8"})
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_LENGTH = 43
"""Characters of base64 that a SHA-256 has, without padding."""


def fingerprint(request: Request, rule: FingerprintRule, *, max_decoded: int) -> str:
    """The fingerprint of `request` under `rule`: `v1:` and 43 characters of base64url.

    A Content-Encoding is undone up to `max_decoded` bytes of content. No request makes this raise; a rule with problems
    (see `check_rule`) does: ValueError.
    """
    content_types = field_values(request.fields, b"content-type")
    tag, codings, body = _body(request, rule, content_types, max_decoded)
    method, target = request.method.encode("utf-8", "surrogatepass"), request.target
    chosen = _chosen(request, rule) if rule.headers else b""
    types = _read(content_types[0]).framed if len(content_types) == 1 else framed_list(map(essence, content_types))
    digest = sha256(
        b"%d:%b%d:%b%b%d:%b%d:%b%d:%b%d:"
        % (
            *(len(method), method),
            *(len(target), target),
            types,
            *(len(chosen), chosen),
            *(len(tag), tag),
            *(len(codings), codings),
            len(body),
        )
    )
    digest.update(body)
    return f"v1:{b2a_base64(digest.digest())[:_LENGTH].translate(_URL_SAFE).decode()}"


class _Type(NamedTuple):
    """What follows from the value of a Content-Type field: its essence in a list, and the form and the charset of the body."""

    framed: bytes
    form: bytes
    charset: bytes
    """`utf-8` where none is named; empty where the parameters cannot be read."""


@lru_cache(maxsize=32)
def _read(content_type: bytes) -> _Type:
    kind, found = essence(content_type), parameters(content_type)
    if kind == b"application/json" or kind.endswith(b"+json"):
        form = b"json"
    elif kind == b"application/x-www-form-urlencoded":
        form = b"form"
    else:
        form = b"multipart" if kind.startswith(b"multipart/") else b"bytes"
    return _Type(framed_list([kind]), form, b"" if found is None else found.get(b"charset", b"utf-8").lower())


def _chosen(request: Request, rule: FingerprintRule) -> bytes:
    """The header fields that the rule names, sorted by name: the order in the configuration means nothing."""
    chosen = []
    for name in sorted({name.encode() for name in rule.headers}):
        chosen += [framed(name), framed_list(field_values(request.fields, name))]
    return b"".join(chosen)


def _body(request: Request, rule: FingerprintRule, content_types: list[bytes], max_decoded: int) -> tuple[bytes, bytes, bytes]:
    """The body as (form, codings still on it, content)."""
    encodings = field_values(request.fields, b"content-encoding")
    if encodings:
        encodings = names(encodings)
    if rule.mode == "raw":
        return b"bytes", b",".join(encodings), request.body
    body = undo(request.body, encodings, max_decoded=max_decoded) if encodings else request.body
    if body is None:
        return b"bytes", b",".join(encodings), request.body
    tag, canonical = _canonical(body, rule, content_types)
    return (b"bytes", b"", body) if canonical is None else (tag, b"", canonical)


def _canonical(body: bytes, rule: FingerprintRule, content_types: list[bytes]) -> tuple[bytes, bytes | None]:
    """The form that the content type calls for, and the body in it: None where it is malformed, or the type has no form."""
    if len(content_types) != 1:
        return b"bytes", None
    content_type = _read(content_types[0])
    match content_type.form:
        case b"json":
            is_utf8 = _is_utf8(body, content_type.charset)
            return canonical_json(body, selection(rule)) if is_utf8 else (b"json", None)
        case b"form":
            return b"form", canonical_form(body)
        case b"multipart":
            return b"multipart", canonical_multipart(body, content_types[0])
        case _:
            return b"bytes", None


def _is_utf8(body: bytes, charset: bytes) -> bool:
    """Whether nothing says that the text is in another character set.

    JSON is UTF-8 and its types have no such parameter (RFC 8259, sections 8.1 and 11), but there are servers that heed one; in
    another set two texts may differ that are the same in UTF-8. It is another too where the parameters cannot be read.
    """
    return charset in _UTF8 or (charset == b"us-ascii" and body.isascii())
