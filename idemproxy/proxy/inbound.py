"""From a client's request to a call: which route, which key, whose, and what exactly is asked.

Everything that can be refused without the store is refused here, in the order of the contract: route, key, size, body.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aiohttp import web

from idemproxy.core.fingerprint import fingerprint
from idemproxy.core.key import KeyInvalidError, KeyMode, KeySource, find_key, hash_secretly
from idemproxy.core.message import Request, field_values
from idemproxy.core.policy import KIB, SAFE_METHODS, Effect, Route, comparable_path, match_route
from idemproxy.core.problem import Problem, Slug, problem
from idemproxy.core.record import Identity
from idemproxy.core.scope import find_scope
from idemproxy.core.stamp import StampError, stamp
from idemproxy.observe.observation import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_WAIT: Final = 120.0
"""The longest that a client may ask to wait, in seconds: what holds on to a connection should end."""

LARGE: Final = 256 * KIB
"""From this size on a body's fingerprint is taken in a thread, so that it does not hold up other requests."""

RESERVED: Final = b"/_idemproxy/"
"""A path that begins so, however it is spelled, never reaches an upstream."""

_WAIT_PREFERENCE = re.compile(rb"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?:$|[,;])", re.IGNORECASE)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class RefusedError(Exception):
    """A request that goes no further; `close` when its body is left unread."""

    def __init__(self, found: Problem, route: str = "-", *, close: bool = False) -> None:
        super().__init__(found.detail)
        self.problem = found
        self.route = route
        self.close = close


@dataclass(frozen=True, slots=True)
class Passing:
    """A request that is passed through: a read, or a write that names no operation."""

    request: Request
    route: Route
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Covered:
    """A write with a key, its body not yet read."""

    request: Request
    route: Route
    identity: Identity
    key: str = field(repr=False)


def arrive(http: web.BaseRequest, routes: Sequence[Route], secret: bytes | None) -> Passing | Covered:
    """Find the route, the key and the scope. Raises RefusedError."""
    target = http.raw_path.encode("utf-8", "surrogateescape")
    request = Request(http.method, target, http.raw_headers)
    if not target.startswith(b"/") or request.method == "CONNECT":
        detail = "This is no proxy for CONNECT or absolute targets: send a path, as in `POST /charges`."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), close=True)
    if comparable_path(request.path).startswith(RESERVED):
        detail = f"Paths below {RESERVED.decode('ascii')} are this proxy's own, and there is nothing at this one."
        raise RefusedError(problem(Slug.NO_ROUTE, detail), close=True)
    if not _is_plainly_framed(request):
        detail = "The request's body has a transfer coding other than chunked, so nothing was sent."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), close=True)
    route = match_route(routes, request, _host(request))
    if route is None:
        detail = "No route of this proxy takes this method, host and path, so nothing was sent."
        raise RefusedError(problem(Slug.NO_ROUTE, detail), close=True)
    if not route.covers(request):
        is_read = route.effect is Effect.READ or request.method in SAFE_METHODS
        return Passing(request, route, Outcome.READ if is_read else Outcome.BYPASSED)
    rule = route.policy.key
    try:
        key = find_key(request.fields, rule)
    except KeyInvalidError as exc:
        detail = f"The request was not sent, since {exc}."
        raise RefusedError(problem(Slug.KEY_INVALID, detail), route.name, close=True) from exc
    if key is None:
        if rule.mode is KeyMode.REQUIRED:
            names = {KeySource.HEADER: rule.header.decode("ascii").title(), KeySource.WORKFLOW: "Workflow-Id and Workflow-Step"}
            where = " or ".join(names[source] for source in KeySource if source in rule.sources)
            detail = f"Requests on this route need a key: name the operation in {where}, and use that name for every retry."
            raise RefusedError(problem(Slug.KEY_MISSING, detail), route.name, close=True)
        return Passing(request, route, Outcome.BYPASSED)
    scope = find_scope(request.fields, route.policy.scope, secret)
    return Covered(request, route, Identity(scope, route.upstream, hash_secretly(key.encode("ascii"), secret)), key)


async def read_body(http: web.BaseRequest, covered: Covered, patience: float) -> Request:
    """The request with its body. Raises RefusedError when it is too long or broken; nothing is stored by then.

    `patience`: how many seconds may pass without any of it.
    """
    limit = covered.route.policy.max_request_body
    if (http.content_length or 0) > limit:
        raise _too_large(covered.route)
    await answer_expectation(http, covered.request)
    pieces = []
    size = 0
    try:
        while piece := await next_piece(http, patience):
            size += len(piece)
            if size > limit:
                raise _too_large(covered.route)
            pieces.append(piece)
    except TimeoutError as exc:
        detail = f"Nothing of the request body came for {patience:g} s, so nothing was sent."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), covered.route.name, close=True) from exc
    except web.RequestPayloadError as exc:
        detail = "The request body is broken off or wrongly framed, so nothing was sent."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), covered.route.name, close=True) from exc
    return replace(covered.request, body=b"".join(pieces))


def _too_large(route: Route) -> RefusedError:
    detail = f"The request body exceeds {route.policy.max_request_body} bytes, so nothing was sent."
    return RefusedError(problem(Slug.BODY_TOO_LARGE, detail), route.name, close=True)


def stamped(request: Request, covered: Covered) -> Request:
    """The request as it is forwarded: with its key where the route's upstream keeps it. Raises RefusedError."""
    rule = covered.route.policy.stamp
    if rule is None:
        return request
    try:
        return stamp(request, rule, covered.key)
    except StampError as exc:
        detail = f"The request was not sent, since it cannot carry its key to the upstream: {exc}."
        raise RefusedError(problem(Slug.BAD_REQUEST, detail), covered.route.name) from exc


async def take_fingerprint(request: Request, route: Route) -> str:
    """What is asked, as a digest; in a thread when the body is large."""
    policy = route.policy
    if len(request.body) < LARGE:
        return fingerprint(request, policy.fingerprint, max_decoded=policy.max_request_body)
    return await asyncio.to_thread(fingerprint, request, policy.fingerprint, max_decoded=policy.max_request_body)


async def next_piece(http: web.BaseRequest, patience: float) -> bytes:
    """The next piece of the client's body, b"" at its end. Raises TimeoutError when none comes for `patience` seconds."""
    if http.content.is_eof():
        return http.content.read_nowait()  # it was all here, as is usual: no need for a timer
    async with asyncio.timeout(patience):
        return await http.content.readany()


async def answer_expectation(http: web.BaseRequest, request: Request) -> None:
    """Tell a client that waits for it to send its body (RFC 9110, section 10.1.1); the decision to take it has been made."""
    expected = any(value.lower() == b"100-continue" for value in field_values(request.fields, b"expect"))
    if expected and http.version.minor:  # an HTTP/1.0 client would take it for the answer
        await http.writer.write(_CONTINUE)


def wait_of(request: Request, route: Route) -> float:
    """How long, in seconds, this request waits for another with its key: the route's `wait`, or `Prefer: wait=n` (RFC 7240)."""
    for value in field_values(request.fields, b"prefer"):
        if preference := _WAIT_PREFERENCE.search(value):
            return min(float(preference[1]), max(MAX_WAIT, route.policy.wait))
    return route.policy.wait


def _is_plainly_framed(request: Request) -> bool:
    """Whether no transfer coding but chunked was used: any other is part of the body, and goes with the field that names it."""
    return [value.lower() for value in field_values(request.fields, b"transfer-encoding")] in ([], [b"chunked"])


def _host(request: Request) -> bytes:
    """The request's host in lower case, without its port; empty when it names none."""
    host = b"".join(field_values(request.fields, b"host")[:1]).lower()
    name, colon, port = host.rpartition(b":")
    return name if colon and not port.strip(b"0123456789") else host
