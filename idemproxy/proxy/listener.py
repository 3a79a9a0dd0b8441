"""Where clients connect: takes each request through the house and tells those who watch what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiohttp import StreamReader, web

from idemproxy.core.fingerprint import fingerprint
from idemproxy.core.key import KeyRule
from idemproxy.core.message import Request, indexed
from idemproxy.core.origin import is_trusted, request_id_of
from idemproxy.core.policy import Timeouts
from idemproxy.core.problem import Executed, Slug, problem
from idemproxy.core.replay import status_lines
from idemproxy.core.routing import RouteTable
from idemproxy.core.visible import plain_keys, visible_path
from idemproxy.observe.metrics import OWN_ROUTE
from idemproxy.observe.observation import Observation, Outcome, Result
from idemproxy.proxy.body import SlowError, TooLongError, body_at_hand, unread, whole_body
from idemproxy.proxy.digesting import Digesting, is_read_at_once
from idemproxy.proxy.exchange import Call, Journey
from idemproxy.proxy.inbound import Covered, Own, Passing, RefusedError, arrival_of, arrive, derived, noted, stamped, wait_of
from idemproxy.proxy.outbound import send
from idemproxy.proxy.passthrough import pass_through
from idemproxy.proxy.reply import BrokenOffError, Reply, refusal
from idemproxy.proxy.tunnel import Tunnel
from idemproxy.server.connection import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from idemproxy.core.policy import Route
    from idemproxy.core.problem import Problem
    from idemproxy.core.record import Identity
    from idemproxy.core.scope import ScopeRule
    from idemproxy.proxy.exchange import Exchange
    from idemproxy.proxy.pool import Pool
    from idemproxy.proxy.reply import Forwarded
    from idemproxy.server.incoming import Incoming

CLIENT_GONE: Final = 499
"""The status noted for a client that left before its reply, as proxies have come to write it."""


class OwnPages(Protocol):
    """What the proxy answers itself, below its reserved prefix."""

    async def answer(self, http: Incoming, request: Request, patience: float) -> Reply:
        """The reply of the page that is asked for; `patience` as whole_body has it."""

    def drain(self) -> None:
        """Answer at once from now on, and let nobody wait for what is under way."""


class Visit:
    """What is known of one request while it is here."""

    path: str = "-"
    route: str = "-"
    outcome: Outcome = Outcome.REFUSED
    """What the request has come to if its client leaves now."""
    patience: float = Timeouts().idle
    identity: Identity | None = None
    """Of the operation, when it is covered and its key is known."""
    journey: Journey | None = None
    told: bool = False
    request_id: str | None = None
    tunnelled: int = 0
    """How many bytes the client sent behind an upgrade."""
    written: int = 0
    """How many bytes of its reply's body, or behind the 101, were written to it."""

    def __init__(self, method: str, content: StreamReader) -> None:
        self.method = method
        self.content = content
        self.started = perf_counter()


class Listener:
    """The handler of aiohttp's low-level server."""

    def __init__(
        self,
        routes: Sequence[Route],
        pools: Mapping[str, Pool],
        exchange: Exchange,
        pages: OwnPages,
        observe: Callable[[Observation], None],
        scope: ScopeRule,
        secret: bytes | None,
        trusted: tuple[IPv4Network | IPv6Network, ...],
    ) -> None:
        self._routes = RouteTable(routes)
        self._key_fields = frozenset({KeyRule().header, *(route.policy.key.header for route in routes)})
        """Where a key may stand, as far as is known without a route."""
        self._pools = pools
        self._exchange = exchange
        self._pages = pages
        self._observe = observe
        self._scope = scope
        self._secret = secret
        self._is_trusted = lru_cache(maxsize=4096)(partial(is_trusted, networks=trusted))
        self.digesting = Digesting()
        self.draining = False
        self.active = 0
        self._tunnels: set[Tunnel] = set()
        self._idle = asyncio.Event()
        # A handler whose client has left is cancelled: it only waits for a journey, or belongs to a request that passes through.
        self.server = Server(self.handle, self._note, handler_cancellation=True, auto_decompress=False, access_log=None)

    async def handle(self, http: Incoming) -> bool:
        """One request, from its head to the last byte of its reply; whether another may follow on its connection."""
        visit = Visit(http.method, http.content)
        self.active += 1
        try:
            arrived = self._arrive(http, visit)
            if isinstance(arrived, Covered):
                return await self._send(http, visit, await self._journey(http, visit, arrived))
            if isinstance(arrived, Own):
                return await self._send(http, visit, await self._pages.answer(http, arrived.request, visit.patience))
            use = partial(self._use, http, visit)
            return await pass_through(http, arrived, self._pools[arrived.route.upstream], use)
        except RefusedError as exc:
            return await self._send(http, visit, refusal(exc.problem, Outcome.REFUSED, close=exc.close))
        except (ConnectionError, asyncio.CancelledError) as exc:  # before there was a reply
            if visit.journey is None and not visit.told:
                self._tell(visit, Reply(CLIENT_GONE, b"", visit.outcome), CLIENT_GONE)
            if isinstance(exc, asyncio.CancelledError):
                raise
            return False
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()

    async def finished(self) -> None:
        """Return when no request is here."""
        while self.active:
            self._idle.clear()
            await self._idle.wait()

    def drain(self) -> None:
        """Take no more requests; end the tunnels, which may otherwise last for hours."""
        self.draining = True
        self._pages.drain()
        for tunnel in self._tunnels:
            tunnel.close()

    def _arrive(self, http: Incoming, visit: Visit) -> Own | Passing | Covered:
        arrival, fields = arrival_of(http, self._is_trusted), indexed(http.raw_headers)
        try:
            if self.draining:
                detail = "This proxy is shutting down, so nothing was sent: retry with the same key."
                raise RefusedError(problem(Slug.DRAINING, detail, retry_after=1), close=True)  # noqa: TRY301 - logged as others
            arrived = arrive(http, fields, arrival, self._routes, self._secret)
        except RefusedError as exc:
            visit.route = exc.route
            target = http.raw_path.encode("utf-8", "surrogateescape")
            visit.path = _visible(target, plain_keys(fields, self._key_fields))
            raise
        request = arrived.request
        if isinstance(arrived, Own):
            visit.route, visit.outcome = OWN_ROUTE, Outcome.OWN
            visit.path = _visible(request.target, plain_keys(fields, self._key_fields))
            return arrived
        route = arrived.route
        keys = plain_keys(fields, (route.policy.key.header,))
        visit.route = route.name
        visit.path = _visible(request.target, keys)
        visit.patience = self._pools[route.upstream].upstream.timeouts.idle
        visit.request_id = request_id_of(fields, route, arrival, keys)
        if isinstance(arrived, Passing):
            visit.outcome = arrived.outcome
        return arrived

    async def _journey(self, http: Incoming, visit: Visit, covered: Covered) -> Reply:
        asked, route, policy = covered.request, covered.route, covered.route.policy
        visit.identity, limit = covered.identity, policy.max_request_body
        try:
            body = body_at_hand(http, asked, limit)
            if body is None:
                body = await whole_body(http, asked, limit, visit.patience)
        except (TooLongError, SlowError, web.RequestPayloadError) as exc:
            raise RefusedError(unread(exc, limit), route.name, close=True) from exc
        request = Request(asked.method, asked.target, asked.fields, body)
        if is_read_at_once(request):
            digest = fingerprint(request, policy.fingerprint, max_decoded=limit)
        else:
            digest = await self.digesting.fingerprint(request, route)
        key, identity, note = covered.key, covered.identity, None
        if key is None or identity is None:
            key, identity = derived(covered, digest, self._secret)
            visit.identity = identity
        if covered.workflow is not None:
            note = noted(covered, covered.workflow, identity, self._scope, self._secret)
        if policy.stamp is not None:
            request = await stamped(request, policy.stamp, key, route, self.digesting)
        call = Call(request, route, identity, key, digest, wait_of(request, route), covered.arrival, note)
        visit.journey = self._exchange.start(call)
        try:
            return await visit.journey.waiter
        except asyncio.CancelledError:
            visit.journey.leave(lambda reply: self._left(visit, reply))
            raise

    async def _send(self, http: Incoming, visit: Visit, reply: Reply) -> bool:
        status, keep_alive = reply.status, False
        try:
            keep_alive = await send(http, reply, visit.patience, visit)
        except BrokenOffError:
            reply = replace(reply, outcome=Outcome.UNKNOWN if visit.journey else reply.outcome, forwarded=_broken(reply))
        except (ConnectionError, asyncio.CancelledError) as exc:
            status = CLIENT_GONE
            if isinstance(exc, asyncio.CancelledError):
                raise
        finally:
            self._tell(visit, reply, status)
        return keep_alive

    def _use(self, http: Incoming, visit: Visit, found: Reply | Tunnel) -> Coroutine[Any, Any, bool]:
        return self._carry(visit, found) if isinstance(found, Tunnel) else self._send(http, visit, found)

    async def _carry(self, visit: Visit, tunnel: Tunnel) -> bool:
        """A tunnel, from its opening to its end, however it comes to that; only then is it told of."""
        self._tunnels.add(tunnel)
        if self.draining:
            tunnel.close()
        try:
            await tunnel.carry()
        finally:
            self._tunnels.discard(tunnel)
            visit.tunnelled, visit.written = tunnel.to_upstream, tunnel.to_client
            self._tell(visit, tunnel.reply, tunnel.reply.status)
        return False

    def _left(self, visit: Visit, reply: Reply) -> None:
        """A journey whose client had gone has come to its reply."""
        if not isinstance(reply.body, bytes):
            reply.body.leave()
        self._tell(visit, reply, CLIENT_GONE)

    def _note(self, found: Problem, written: int) -> bytes:
        """Tell of a request that could not be read, or that met a fault; the field lines of its answer that are ours."""
        outcome = Outcome.UNKNOWN if found.kind.executed is Executed.UNKNOWN else Outcome.REFUSED
        self._observe(Observation("-", "-", "-", found.status, outcome, 0.0, 0, written, slug=found.slug))
        return status_lines(outcome.value)

    def _tell(self, visit: Visit, reply: Reply, status: int) -> None:
        visit.told = True
        forwarded = reply.forwarded
        identity = visit.identity
        self._observe(
            Observation(  # by position: by name, it would take three times as long
                visit.route,
                visit.method,
                visit.path,
                status,
                reply.outcome,
                perf_counter() - visit.started,
                visit.content.total_bytes + visit.tunnelled,
                visit.written,
                forwarded.result if forwarded else None,
                forwarded.seconds if forwarded else None,
                visit.journey.waited if visit.journey else None,
                reply.slug,
                identity.scope if identity else None,
                identity.upstream if identity else None,
                identity.key_hash if identity else None,
                reply.fence,
                visit.request_id,
                reply.unrecorded,
            )
        )


def _visible(target: bytes, keys: set[bytes]) -> str:
    return visible_path(target, keys).decode("utf-8", "surrogateescape")


def _broken(reply: Reply) -> Forwarded | None:
    return replace(reply.forwarded, result=Result.UNKNOWN) if reply.forwarded else None
