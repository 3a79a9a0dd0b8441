"""From a client's request to a call: which route, which key, whose, and what exactly is asked.

Everything that can be refused without the store is refused here, in the order of the contract: route, key, size, body.
"""

from __future__ import annotations

import random
import re
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from idemproxy.core.journal import Note, WorkflowIdentity
from idemproxy.core.key import KeyInvalidError, KeyMode, KeySource, hash_secretly
from idemproxy.core.message import Fields, Indexed, Request, Shape, field_values
from idemproxy.core.origin import Arrival, believed, with_origin
from idemproxy.core.policy import SAFE_METHODS, Effect, Route, comparable_path
from idemproxy.core.problem import Problem, Slug, problem
from idemproxy.core.record import MICROSECONDS, Identity
from idemproxy.core.scope import ScopeRule, find_scope
from idemproxy.core.stamp import StampError
from idemproxy.core.workflow import Name, Workflow, derived_key, find_name
from idemproxy.observe.observation import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

    from idemproxy.core.routing import RouteTable
    from idemproxy.core.stamp import StampRule
    from idemproxy.proxy.digesting import Digesting
    from idemproxy.server.incoming import Incoming
else:
    from idemproxy.core.value import dataclass

MAX_WAIT: Final = 120.0
"""The longest that a client may ask to wait, in seconds: what holds on to a connection should end."""

RESERVED: Final = b"/_idemproxy/"
"""A path that begins so, however it is spelled, never reaches an upstream."""

_WAIT_PREFERENCE = re.compile(rb"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?:$|[,;])", re.IGNORECASE)
_NEVER_TUNNELLED: Final = (b"h2", b"http/", b"tls/")
_ABSOLUTE: Final = re.compile(rb"(https?)://([^/?]*)(/?.*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(rb"((?:[0-9a-z\-._~!$&'()*+,;=]|%[0-9a-f]{2})+|\[[0-9a-f:.]+\])(?::([0-9]{0,5}))?", re.IGNORECASE)
_DEFAULT_PORTS: Final = {b"http": b"80", b"https": b"443"}
_USUAL_HOST: Final = 64
"""More bytes than most values of Host have; longer ones are not remembered."""

_Authority: TypeAlias = tuple[bytes, bytes]
"""A host in lower case, and the port as it is written."""


class RefusedError(Exception):
    """A request that goes no further; `close` when its body is left unread."""

    def __init__(self, found: Problem, route: str = "-", *, close: bool = False) -> None:
        super().__init__(found.detail)
        self.problem = found
        self.route = route
        self.close = close


@dataclass(frozen=True, slots=True)
class Passing:
    """A request that is passed through: a read, or a write that names no operation.

    `upgrade`: the value of `Upgrade` to ask the upstream for, when the client asks for a tunnel.
    """

    request: Request
    route: Route
    outcome: Outcome
    upgrade: bytes | None = None


@dataclass(frozen=True, slots=True)
class Covered:
    """A write with a name, its body not yet read; `request` is what its client asks, and not yet what goes on (core.origin).

    `key` and `identity` are None while the key is to be derived from what the body says.
    """

    request: Request
    route: Route
    scope: str
    key: str | None = field(repr=False)
    identity: Identity | None
    workflow: Workflow | None
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class Own:
    """A request for one of the proxy's own pages, its body not yet read."""

    request: Request


def arrival_of(http: Incoming, is_trusted: Callable[[str], bool]) -> Arrival:
    """How a request came in, and a name for it; `is_trusted`: whether the word of a peer at an address is believed on others."""
    peer = http.remote or ""
    made = random.randbytes(16).hex().encode()  # noqa: S311 - a name, and no secret
    return Arrival(peer, http.secure, is_trusted(peer), made, b"1.%d" % http.version.minor)


def arrive(
    http: Incoming, fields: Indexed, arrival: Arrival, routes: RouteTable, secret: bytes | None
) -> Own | Passing | Covered:
    """Find the route, the key and the scope; `fields` are the request's. Raises RefusedError."""
    host = _host(http, fields)
    target = _origin_form(http, host)
    fields = believed(fields, arrival)
    has, request = fields.shape.places, Request(http.method, target, fields)
    path = comparable_path(target.partition(b"?")[0])
    if path.startswith(RESERVED):
        return Own(request)
    if b"transfer-encoding" in has and not _is_plainly_framed(fields):
        detail = "The request's body has a transfer coding other than chunked, so nothing was sent."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), close=True)
    route = routes.match(request, path, host[0] if host else b"")
    if route is None:
        detail = "No route of this proxy takes this method, host and path, so nothing was sent."
        raise RefusedError(problem(Slug.NO_ROUTE, detail), close=http.body_exists)
    if not (fields.shape.ask(_is_ascii) and b"".join(fields.values).isascii()):
        _name(request, route)  # if it is the key that cannot be read, this is what is told
        raise _bad("A field of the request holds bytes that are not ASCII, so nothing was sent: encode them.", route.name)
    asked = asked_upgrade(fields) if b"upgrade" in has and http.version.minor else None
    covers = route.covers(request)
    name = _name(request, route) if covers or asked else None
    if asked and name is not None:
        detail = "A tunnel is no operation that a key could name: leave the key, or the upgrade, out. Nothing was sent."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), route.name, close=True)
    if name is None or not covers:
        if covers and route.policy.key.mode is KeyMode.REQUIRED:
            raise _nameless(route, close=http.body_exists)
        is_read = not covers and (route.effect is Effect.READ or request.method in SAFE_METHODS)
        upgrade = asked if asked and not http.body_exists else None
        return Passing(with_origin(request, route, arrival), route, Outcome.READ if is_read else Outcome.BYPASSED, upgrade)
    scope = find_scope(fields, route.policy.scope, secret)
    identity = None if name.key is None else _identity(scope, route, name.key, secret)
    return Covered(request, route, scope, name.key, identity, name.workflow, arrival)


def derived(covered: Covered, fingerprint: str, secret: bytes | None) -> tuple[str, Identity]:
    """The key and the identity of a write that is named by what its workflow asks."""
    if covered.workflow is None:
        raise AssertionError("a covered request without a name")
    key = derived_key(covered.workflow, covered.route.name, fingerprint)
    return key, _identity(covered.scope, covered.route, key, secret)


def noted(
    covered: Covered, workflow: Workflow, identity: Identity, scope: ScopeRule, secret: bytes | None
) -> tuple[WorkflowIdentity, Note]:
    """What the journal is told of a step of a workflow; `scope` says whose workflows there are."""
    policy = covered.route.policy
    kept = round((policy.retention + policy.expired_mark) * MICROSECONDS)
    whose = WorkflowIdentity(
        find_scope(covered.request.fields, scope, secret), hash_secretly(workflow.id.encode("ascii"), secret)
    )
    return whose, Note(identity, covered.route.name, kept, workflow.step, workflow.action)


def _identity(scope: str, route: Route, key: str, secret: bytes | None) -> Identity:
    return Identity(scope, route.upstream, hash_secretly(key.encode("ascii"), secret))


def _name(request: Request, route: Route) -> Name | None:
    """What names the request's operation, None when nothing does. Raises RefusedError."""
    try:
        return find_name(request.fields, route.policy.key)
    except KeyInvalidError as exc:
        detail = f"The request was not sent, since {exc}."
        raise RefusedError(problem(Slug.KEY_INVALID, detail), route.name, close=True) from exc


def _nameless(route: Route, *, close: bool) -> RefusedError:
    rule = route.policy.key
    names = {KeySource.HEADER: rule.header.decode("ascii").title(), KeySource.WORKFLOW: "Workflow-Id and Workflow-Step"}
    where = " or ".join(names[source] for source in KeySource if source in rule.sources)
    detail = f"Requests on this route need a key: name the operation in {where}, and use that name for every retry."
    return RefusedError(problem(Slug.KEY_MISSING, detail), route.name, close=close)


def asked_upgrade(fields: Fields) -> bytes | None:
    """The value of `Upgrade` when the client asks for another protocol that may be tunnelled (RFC 9110, section 7.8).

    Not tunnelled are other versions of HTTP and TLS: inside such a tunnel requests would pass this proxy unseen (h2c smuggling).
    """
    tokens = [token.strip().lower() for value in field_values(fields, b"connection") for token in value.split(b",")]
    if b"upgrade" not in tokens:
        return None
    protocols = [name.strip() for value in field_values(fields, b"upgrade") for name in value.split(b",")]
    return b", ".join(name for name in protocols if name and not name.lower().startswith(_NEVER_TUNNELLED)) or None


async def stamped(request: Request, rule: StampRule, key: str, route: Route, digesting: Digesting) -> Request:
    """The request as it is forwarded: with its key where the route's upstream keeps it. Raises RefusedError."""
    try:
        return await digesting.stamp(request, rule, key)
    except StampError as exc:
        detail = f"The request was not sent, since it cannot carry its key to the upstream: {exc}."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), route.name) from exc


def wait_of(request: Request, route: Route) -> float:
    """How long, in seconds, this request waits for another with its key: the route's `wait`, or `Prefer: wait=n` (RFC 7240)."""
    for value in field_values(request.fields, b"prefer"):
        if preference := _WAIT_PREFERENCE.search(value):
            return min(float(preference[1]), max(MAX_WAIT, route.policy.wait))
    return route.policy.wait


def _is_plainly_framed(fields: Fields) -> bool:
    """Whether no transfer coding but chunked was used: any other is part of the body, and goes with the field that names it."""
    return [coding.lower() for coding in field_values(fields, b"transfer-encoding")] == [b"chunked"]


def _is_ascii(shape: Shape) -> bool:
    return all(map(bytes.isascii, shape.names))


def _host(http: Incoming, fields: Fields) -> _Authority | None:
    """Host and port that the request names; None where HTTP/1.0 names none (RFC 9112, section 3.2). Raises RefusedError."""
    values = field_values(fields, b"host")
    if not values and not http.version.minor:
        return None
    host = _authority(values[0]) if len(values) == 1 else None
    if host is None:
        raise _bad("The request needs one Host field, with a host and perhaps a port, so nothing was sent.")
    return host


def _authority(text: bytes) -> _Authority | None:
    return _read_authority(text) if len(text) <= _USUAL_HOST else _read_authority.__wrapped__(text)


@lru_cache(maxsize=1024)
def _read_authority(text: bytes) -> _Authority | None:
    found = _AUTHORITY.fullmatch(text)
    return None if found is None else (found[1].lower(), found[2] or b"")


def _origin_form(http: Incoming, host: _Authority | None) -> bytes:
    """The target as a path with its query (RFC 9112, section 3.2). Raises RefusedError.

    An absolute target, as a forward proxy gets it, may name the server of the Host field alone, or the request could be read in
    two ways; the rest of it is taken byte for byte. `OPTIONS *`, or its absolute form, asks about a server, and here are several.
    """
    target = http.raw_path.encode("utf-8", "surrogateescape")
    if b"#" in target:
        raise _bad("The request's target holds a fragment, which is for the client alone, so nothing was sent.")
    if target.startswith(b"/"):
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or (http.method == "OPTIONS" and not absolute[3]):
        raise _bad("The request's target is no path, so nothing was sent: send one, as in `POST /charges`.")
    named, scheme = _authority(absolute[2]), b"https" if http.secure else b"http"
    if named is None or host is None or _server(named, absolute[1]) != _server(host, scheme):
        raise _bad(
            "The request's target names another server than its Host field, so nothing was sent: this is no forward proxy."
        )
    return absolute[3] if absolute[3].startswith(b"/") else b"/" + absolute[3]


def _server(authority: _Authority, scheme: bytes) -> _Authority:
    return authority[0], authority[1] or _DEFAULT_PORTS[scheme.lower()]


def _bad(detail: str, route: str = "-") -> RefusedError:
    return RefusedError(problem(Slug.BAD_REQUEST, detail), route, close=True)
