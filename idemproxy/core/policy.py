"""What a route wants: its rules, each a small frozen value. The configuration becomes these; nothing else is read at run time.

Durations are seconds as floats; sizes are bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from idemproxy.core.fingerprint import FingerprintRule
from idemproxy.core.key import KeyRule
from idemproxy.core.message import Request
from idemproxy.core.probe import ProbeRule
from idemproxy.core.scope import ScopeRule
from idemproxy.core.stamp import StampRule
from idemproxy.core.workflow import NAMES

KIB: Final = 1024
MIB: Final = 1024 * KIB

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that ask for no change (RFC 9110, section 9.2.1)."""

COVERED_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Methods whose requests are covered when they carry a key."""

REPLAY_DENIED: Final = frozenset(
    {
        b"set-cookie",
        b"set-cookie2",
        b"www-authenticate",
        b"proxy-authenticate",
        b"authentication-info",
        b"proxy-authentication-info",
        b"retry-after",
        b"ratelimit",
        b"ratelimit-policy",
        b"ratelimit-limit",
        b"ratelimit-remaining",
        b"ratelimit-reset",
        b"x-ratelimit-limit",
        b"x-ratelimit-remaining",
        b"x-ratelimit-reset",
        b"x-request-id",
        b"request-id",
        b"x-correlation-id",
    }
)
"""Fields that speak of one exchange, or one client, only: they are not kept, and so not replayed."""


class OnUnknown(StrEnum):
    """What a retry of an operation with an unknown outcome gets."""

    HOLD = "hold"
    RETRY = "retry"
    PROBE = "probe"


class OnExpired(StrEnum):
    """What a retry gets when the operation happened but its answer is no longer kept."""

    REFUSE = "refuse"
    RENEW = "renew"


class Effect(StrEnum):
    """Whether requests on a route change anything at the upstream."""

    READ = "read"
    WRITE = "write"


class ForwardKey(StrEnum):
    """What the upstream sees of the key."""

    STRIP = "strip"
    SAME = "same"


class Forwarded(StrEnum):
    """How an upstream is told of the client, and of what that asked."""

    NONE = "none"
    X_FORWARDED = "x-forwarded"
    FORWARDED = "forwarded"


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """Statuses that a route judges in its own way; every other one is judged by the contract's table (`core.outcome`).

    `release`: the upstream did not act. `unknown`: nobody can say. `complete`: that was the answer.
    """

    release: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    complete: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Policy:
    """How a route treats the operations that it covers."""

    key: KeyRule = KeyRule()
    scope: ScopeRule = ScopeRule()
    fingerprint: FingerprintRule = FingerprintRule()
    outcome: OutcomeRule = OutcomeRule()
    on_unknown: OnUnknown = OnUnknown.HOLD
    probe: ProbeRule | None = None
    """How to ask whether an unknown operation happened; with `OnUnknown.PROBE`, and only then, there is one."""
    stamp: StampRule | None = None
    """Where the key is written into what is forwarded, whatever `forward_key` says."""
    on_expired: OnExpired = OnExpired.REFUSE
    forward_key: ForwardKey | bytes = ForwardKey.STRIP
    """`strip`, `same`, or the name of the field under which the upstream gets the key."""
    forward_workflow: bool = False
    """Whether the upstream sees what agents tell of their workflow."""
    lease: float = 15.0
    wait: float = 10.0
    retention: float = 86_400.0
    expired_mark: float = 7 * 86_400.0
    max_request_body: int = 10 * MIB
    max_stored_body: int = 1 * MIB
    replay_denied: frozenset[bytes] = REPLAY_DENIED


class Crossing(NamedTuple):
    """What a policy says of a request's fields on their way to the upstream; names are in lower case, but for `key_name`.

    `stays` do not go on. `goes` do, whatever the client lists in `Connection`: what names the operation is never this hop's
    alone. `key_name`: under which the key is told, in the place of `key_field`; None where it is not told.
    """

    stays: frozenset[bytes]
    goes: frozenset[bytes]
    key_field: bytes
    key_name: bytes | None
    with_workflow: bool


@lru_cache(maxsize=1024)
def _crossing(key_field: bytes, forward_key: ForwardKey | bytes, stamp: StampRule | None, *, with_workflow: bool) -> Crossing:
    stamped = {stamp.name.lower().encode("ascii")} if stamp is not None and stamp.place == "header" else set()
    stays = {b"expect", b"host"} | (set() if with_workflow else NAMES)  # the expectation has been answered by us
    key_name: bytes | None = None
    match forward_key:
        case ForwardKey.SAME:
            key_name = key_field.title()
        case ForwardKey.STRIP:
            stays |= {key_field}
        case key_name:
            stays |= {key_field, key_name.lower()}  # the key goes out under the other name, and once
    return Crossing(frozenset(stays), frozenset({key_field} | stamped), key_field, key_name, with_workflow)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits on one attempt, in seconds: connection, first byte of the answer, silence between bytes, the whole."""

    connect: float = 5.0
    first_byte: float = 60.0
    idle: float = 30.0
    total: float = 120.0


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """How TLS is spoken to an upstream: paths of PEM files, and the name that its certificate must have; None is the usual."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """An HTTP proxy on the way to an upstream; `authorization` is the value of `Proxy-Authorization`, where it wants one."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that requests are forwarded to. `base_path` has no slash at its end; `pool_idle` in seconds."""

    name: str
    scheme: str
    host: str
    port: int
    base_path: bytes = b""
    tls: UpstreamTls = UpstreamTls()
    proxy: EgressProxy | None = None
    timeouts: Timeouts = Timeouts()
    pool_idle: float = 4.0
    max_connections: int = 1_000

    authority: bytes = field(init=False)
    """The value of `Host`: the port only where it is not the scheme's own."""

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = {"http": 80, "https": 443}[self.scheme]
        authority = (host if self.port == default else f"{host}:{self.port}").encode("ascii")
        object.__setattr__(self, "authority", authority)  # once, and not for each request


_SLASH: Final = ord("/")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(rb"[A-Za-z0-9\-._~]")


def comparable_path(path: bytes) -> bytes:
    """A path in the one spelling in which patterns and requests are compared: a route must not be evaded by spelling.

    An escaped unreserved character is that character, and the digits of other escapes have no case (RFC 3986, sections
    6.2.2.1 and 6.2.2.2).
    """
    return _ESCAPE.sub(_spell, path) if b"%" in path else path


def _spell(escape: re.Match[bytes]) -> bytes:
    octet = bytes.fromhex(escape[1].decode("ascii"))
    return octet if _UNRESERVED.fullmatch(octet) else escape[0].upper()


@dataclass(frozen=True, slots=True)
class PathPattern:
    """Which paths a route takes: `text`, in comparable form, with `*` for any text without a slash; and all below it or not."""

    text: bytes
    and_below: bool = False
    _starred: re.Pattern[bytes] | None = field(default=None, init=False, repr=False, compare=False)
    """Where there is a `*`; most patterns are compared without it, and it is dear to make and to keep."""

    def __post_init__(self) -> None:
        if b"*" in self.text:
            expression = b"[^/]*".join(map(re.escape, self.text.split(b"*"))) + (b"(?:/.*)?" if self.and_below else b"")
            object.__setattr__(self, "_starred", re.compile(expression, re.DOTALL))

    def takes(self, path: bytes) -> bool:
        """Whether a path, in comparable form, is one of these."""
        if self._starred is not None:
            return self._starred.fullmatch(path) is not None
        return path == self.text or (self.and_below and path.startswith(self.text) and path[len(self.text)] == _SLASH)


def compile_path(pattern: str) -> PathPattern:
    """Read a path pattern: `*` is any text without a slash, `**`, at the end only, any text at all.

    `/a/**` also matches `/a`. Raises ValueError.
    """
    if not pattern.startswith("/"):
        raise ValueError(f"the path {pattern!r} does not begin with a slash")
    head, stars, rest = comparable_path(pattern.encode("utf-8")).partition(b"**")
    if rest or (stars and not head.endswith(b"/")):
        raise ValueError(f"in the path {pattern!r}, `**` may stand only at the end, after a slash")
    return PathPattern(head.removesuffix(b"/"), and_below=True) if stars else PathPattern(head)


@lru_cache(maxsize=1024)
def _any_spelling(prefix: bytes) -> re.Pattern[bytes]:
    """A prefix of a raw path in every spelling that compares as equal."""
    parts = []
    for part in re.findall(rb"%..|.", comparable_path(prefix), re.DOTALL):
        raw = re.escape(part)
        parts.append(b"(?:%b|(?i:%%%02X))" % (raw, part[0]) if _UNRESERVED.fullmatch(part) else b"(?i:%b)" % raw)
    return re.compile(b"".join(parts))


def without_prefix(target: bytes, prefix: bytes) -> bytes:
    """A raw target without a prefix that its path has, however it is spelled; it begins with a slash."""
    if target.startswith(prefix):
        rest = target[len(prefix) :]
    else:
        found = _any_spelling(prefix).match(target)
        rest = target if found is None else target[found.end() :]
    return rest if rest.startswith(b"/") else b"/" + rest  # the prefix took the slash with it


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the routing table: which requests it takes, where they go, and the policy for those it covers.

    `path` None takes every path, `methods` None every method, `host` None every host (lower case, without port).
    """

    name: str
    upstream: str
    path: PathPattern | None = None
    methods: frozenset[str] | None = None
    host: bytes | None = None
    strip_prefix: bytes = b""
    preserve_host: bool = False
    forwarded: Forwarded = Forwarded.NONE
    effect: Effect = Effect.WRITE
    policy: Policy = field(default=Policy(), repr=False)

    crossing: Crossing = field(init=False, repr=False, compare=False)
    names_operations: bool = field(init=False, repr=False, compare=False)
    """Whether its keys, or its stamps, stand in `X-Request-Id`: then it is not the request that has its name there."""

    def __post_init__(self) -> None:
        policy = self.policy
        crossing = _crossing(policy.key.header, policy.forward_key, policy.stamp, with_workflow=policy.forward_workflow)
        object.__setattr__(self, "crossing", crossing)  # once, and not for each request
        object.__setattr__(self, "names_operations", b"x-request-id" in crossing.goes)

    def takes(self, request: Request, path: bytes, host: bytes) -> bool:
        """Whether the request, with its path in comparable form, belongs to this route."""
        return (
            (self.methods is None or request.method in self.methods)
            and (self.path is None or self.path.takes(path))
            and (self.host is None or self.host == host)
        )

    def covers(self, request: Request) -> bool:
        """Whether a request of this route is a write that a key can make happen once."""
        return self.effect is Effect.WRITE and request.method in COVERED_METHODS
