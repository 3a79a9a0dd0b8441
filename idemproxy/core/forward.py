"""The request as the upstream gets it: the bytes of its head.

Order, case and repeats are the client's. What changes: `Host` is the upstream's, unless the route preserves the client's; what is
for this proxy or this hop goes; and what is told anew, the key and the framing, stands where the client's stood.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from idemproxy.core.hop import FRAMING, dropped_names
from idemproxy.core.key import spell_key
from idemproxy.core.message import Request, field_values, has_any
from idemproxy.core.policy import ForwardKey, Policy, Route, Upstream, without_prefix
from idemproxy.core.workflow import BAGGAGE, NAMES, without_workflow

_OURS: Final = frozenset({b"expect", b"host"})  # the expectation has been answered by us
_OURS_AND_WORKFLOW: Final = _OURS | NAMES


def request_head(
    request: Request,
    route: Route,
    upstream: Upstream,
    framing: bytes | None,
    key: str | None = None,
    *,
    upgrade: bytes | None = None,
) -> bytes:
    """The request line and fields for the upstream, with the empty line.

    `framing`: one field line without CRLF, or None where there is no body. `key`: the plain key of a covered request. `upgrade`:
    the protocols that the upstream is offered, as a value of `Upgrade`; without it no upgrade is asked for (RFC 9110, 7.8).
    """
    policy = route.policy
    target = without_prefix(request.target, route.strip_prefix) if route.strip_prefix else request.target
    lines = [b"%b %b%b HTTP/1.1" % (request.method.encode("ascii"), upstream.base_path, target)]
    told = {b"host": (b"Host", _host(request, route, upstream))} | _key_field(policy, key)
    dropped = _not_forwarded(request, policy)
    apart = dropped | told.keys() | {BAGGAGE}
    offer = None if upgrade is None else b"Connection: Upgrade\r\nUpgrade: %b" % upgrade
    for name, value in request.fields:
        lowered = name.lower()
        if lowered not in apart:
            lines.append(b"%b: %b" % (name, value))
        elif lowered in FRAMING:
            lines.extend([framing] if framing is not None else [])
            framing = None
        elif lowered == b"upgrade":
            lines.extend([offer] if offer is not None else [])
            offer = None
        elif lowered in told:
            new_name, new_value = told.pop(lowered)
            lines.append(b"%b: %b" % (name if new_name.lower() == lowered else new_name, new_value))
        elif lowered not in dropped:  # baggage
            others = value if policy.forward_workflow else without_workflow(value)
            lines.extend([b"%b: %b" % (name, others)] if others or others == value else [])
    # An HTTP/1.0 client may leave out Host, which HTTP/1.1 needs; and the operation may be named by other fields than the key's.
    lines[1:1] = [b"%b: %b" % field for field in told.values()]
    lines.extend(line for line in (framing, offer) if line is not None)
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def whole_body_framing(request: Request) -> bytes | None:
    """The framing of a request whose body is known: its length, unless the client announced no body and sent none."""
    announced = has_any(request.fields, FRAMING)
    return b"Content-Length: %d" % len(request.body) if request.body or announced else None


def _host(request: Request, route: Route, upstream: Upstream) -> bytes:
    """The value of `Host`: the client's on a route that preserves it, where there is one."""
    values = field_values(request.fields, b"host") if route.preserve_host else []
    return values[0] if values else upstream.authority


def _key_field(policy: Policy, key: str | None) -> dict[bytes, tuple[bytes, bytes]]:
    """What the upstream is told of the key, in one spelling for all tries: the field it stands for, its name and its value."""
    if key is None or policy.forward_key is ForwardKey.STRIP:
        return {}
    renamed = policy.forward_key if isinstance(policy.forward_key, bytes) else policy.key.header.title()
    return {policy.key.header: (renamed, spell_key(key))}


def _not_forwarded(request: Request, policy: Policy) -> frozenset[bytes]:
    """The fields that stay here, and those that are told anew.

    What names the operation is never this hop's alone, whatever the client lists in `Connection`.
    """
    stamp = policy.stamp.name.lower().encode("ascii") if policy.stamp is not None and policy.stamp.place == "header" else b""
    ours = _OURS if policy.forward_workflow else _OURS_AND_WORKFLOW
    return _staying(dropped_names(request.fields), ours, policy.key.header, stamp, policy.forward_key)


@lru_cache(maxsize=64)
def _staying(
    dropped: frozenset[bytes], ours: frozenset[bytes], key_header: bytes, stamp: bytes, forward_key: ForwardKey | bytes
) -> frozenset[bytes]:
    match forward_key:
        case ForwardKey.SAME:
            pass
        case ForwardKey.STRIP:
            ours |= {key_header}
        case renamed:
            ours |= {key_header, renamed.lower()}  # the key goes out under the other name, and once
    return (dropped - {key_header, stamp}) | ours
