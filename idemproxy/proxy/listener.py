"""Where clients connect: takes each request through the house and tells those who watch what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiohttp import StreamReader, web

from idemproxy.core.key import KeyRule
from idemproxy.core.message import Indexed
from idemproxy.core.origin import request_id_of, told
from idemproxy.core.policy import Timeouts
from idemproxy.core.problem import Executed, Slug, problem
from idemproxy.core.replay import status_lines
from idemproxy.core.routing import RouteTable
from idemproxy.core.visible import plain_keys, visible_path
from idemproxy.observe.metrics import OWN_ROUTE
from idemproxy.observe.observation import Observation, Outcome, Result
from idemproxy.proxy.body import read_body
from idemproxy.proxy.digesting import Digesting
from idemproxy.proxy.exchange import Call, Journey
from idemproxy.proxy.inbound import Covered, Own, Passing, RefusedError, arrival_of, arrive, named, noted, stamped, wait_of
from idemproxy.proxy.outbound import Written, send
from idemproxy.proxy.passthrough import pass_through
from idemproxy.proxy.reply import BrokenOffError, Reply, refusal
from idemproxy.proxy.tunnel import Tunnel
from idemproxy.server.connection import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from idemproxy.core.message import Request
    from idemproxy.core.policy import Route
    from idemproxy.core.problem import Problem
    from idemproxy.core.record import Identity
    from idemproxy.core.scope import ScopeRule
    from idemproxy.proxy.exchange import Exchange
    from idemproxy.proxy.pool import Pool
    from idemproxy.proxy.reply import Forwarded

CLIENT_GONE: Final = 499
"""The status noted for a client that left before its reply, as proxies have come to write it."""


class OwnPages(Protocol):
    """What the proxy answers itself, below its reserved prefix."""

    async def answer(self, http: web.BaseRequest, request: Request, patience: float) -> Reply:
        """The reply of the page that is asked for; `patience` as read_body has it."""

    def drain(self) -> None:
        """Answer at once from now on, and let nobody wait for what is under way."""


@dataclass(slots=True)
class Visit:
    """What is known of one request while it is here."""

    method: str
    content: StreamReader
    started: float
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
        self._trusted = trusted
        self.digesting = Digesting()
        self._keep = Written(keep_alive=True)
        self._close = Written(keep_alive=False)
        self.draining = False
        self.active = 0
        self._tunnels: set[Tunnel] = set()
        self._idle = asyncio.Event()
        # A handler whose client has left is cancelled: it only waits for a journey, or belongs to a request that passes through.
        self.server = Server(self.handle, self._note, handler_cancellation=True, auto_decompress=False, access_log=None)

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """One request, from its head to the last byte of its reply."""
        visit = Visit(http.method, http.content, perf_counter())
        self.active += 1
        try:
            return await self._visit(http, visit)
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()

    async def finished(self) -> None:
        """Return when no request is here."""
        while self.active:
            self._idle.clear()
            await self._idle.wait()

    async def _visit(self, http: web.BaseRequest, visit: Visit) -> web.StreamResponse:
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
                self._tell(visit, Reply(CLIENT_GONE, b"", visit.outcome), CLIENT_GONE, 0)
            if isinstance(exc, asyncio.CancelledError):
                raise
            return self._close

    def drain(self) -> None:
        """Take no more requests; end the tunnels, which may otherwise last for hours."""
        self.draining = True
        self._pages.drain()
        for tunnel in self._tunnels:
            tunnel.close()

    def _arrive(self, http: web.BaseRequest, visit: Visit) -> Own | Passing | Covered:
        arrival, fields = arrival_of(http, self._trusted), Indexed(http.raw_headers)
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
        if isinstance(arrived, Own):
            visit.route, visit.outcome = OWN_ROUTE, Outcome.OWN
            visit.path = _visible(arrived.request.target, plain_keys(fields, self._key_fields))
            return arrived
        keys = plain_keys(fields, {arrived.route.policy.key.header})
        visit.route = arrived.route.name
        visit.path = _visible(arrived.request.target, keys)
        visit.patience = self._pools[arrived.route.upstream].upstream.timeouts.idle
        visit.request_id = request_id_of(arrived.request, arrived.route, arrival, keys)
        if isinstance(arrived, Passing):
            visit.outcome = arrived.outcome
        return arrived

    async def _journey(self, http: web.BaseRequest, visit: Visit, covered: Covered) -> Reply:
        visit.identity, route = covered.identity, covered.route
        request = await read_body(http, covered, visit.patience)
        fingerprint = await self.digesting.fingerprint(request, route)
        key, identity = named(covered, fingerprint, self._secret)
        visit.identity = identity
        wait, note = wait_of(request, route), noted(covered, identity, self._scope, self._secret)
        asked = told(await stamped(request, route, key, self.digesting), route, covered.arrival)
        visit.journey = self._exchange.start(Call(asked, route, identity, key, fingerprint, wait, note))
        try:
            return await visit.journey.wait()
        except asyncio.CancelledError:
            visit.journey.reply.add_done_callback(lambda done: self._left(visit, done))
            raise

    async def _send(self, http: web.BaseRequest, visit: Visit, reply: Reply) -> web.StreamResponse:
        status, written, keep_alive = reply.status, 0, False
        try:
            keep_alive, written = await send(http, reply, visit.patience)
        except BrokenOffError:
            reply = replace(reply, outcome=Outcome.UNKNOWN if visit.journey else reply.outcome, forwarded=_broken(reply))
        except (ConnectionError, asyncio.CancelledError) as exc:
            status = CLIENT_GONE
            if isinstance(exc, asyncio.CancelledError):
                raise
        finally:
            self._tell(visit, reply, status, written)
        return self._keep if keep_alive else self._close

    def _use(self, http: web.BaseRequest, visit: Visit, found: Reply | Tunnel) -> Coroutine[Any, Any, web.StreamResponse]:
        return self._carry(visit, found) if isinstance(found, Tunnel) else self._send(http, visit, found)

    async def _carry(self, visit: Visit, tunnel: Tunnel) -> web.StreamResponse:
        """A tunnel, from its opening to its end, however it comes to that; only then is it told of."""
        self._tunnels.add(tunnel)
        if self.draining:
            tunnel.close()
        try:
            await tunnel.carry()
        finally:
            self._tunnels.discard(tunnel)
            visit.tunnelled = tunnel.to_upstream
            self._tell(visit, tunnel.reply, tunnel.reply.status, tunnel.to_client)
        return self._close

    def _left(self, visit: Visit, done: asyncio.Future[Reply]) -> None:
        """A journey whose client had gone has come to its reply."""
        if not done.cancelled():
            reply = done.result()
            if not isinstance(reply.body, bytes):
                reply.body.leave()
            self._tell(visit, reply, CLIENT_GONE, 0)

    def _note(self, found: Problem, written: int) -> bytes:
        """Tell of a request that could not be read, or that met a fault; the field lines of its answer that are ours."""
        outcome = Outcome.UNKNOWN if found.kind.executed is Executed.UNKNOWN else Outcome.REFUSED
        self._observe(Observation("-", "-", "-", found.status, outcome, 0.0, 0, written, slug=found.slug))
        return status_lines(outcome.value)

    def _tell(self, visit: Visit, reply: Reply, status: int, written: int) -> None:
        visit.told = True
        forwarded = reply.forwarded
        identity = visit.identity
        self._observe(
            Observation(
                route=visit.route,
                method=visit.method,
                path=visit.path,
                status=status,
                outcome=reply.outcome,
                seconds=perf_counter() - visit.started,
                request_bytes=visit.content.total_bytes + visit.tunnelled,
                response_bytes=written,
                result=forwarded.result if forwarded else None,
                attempt_seconds=forwarded.seconds if forwarded else None,
                waited=visit.journey.waited if visit.journey else None,
                slug=reply.slug,
                scope=identity.scope if identity else None,
                upstream=identity.upstream if identity else None,
                key_hash=identity.key_hash if identity else None,
                fence=reply.fence,
                unrecorded=reply.unrecorded,
                request_id=visit.request_id,
            )
        )


def _visible(target: bytes, keys: frozenset[bytes]) -> str:
    return visible_path(target, keys).decode("utf-8", "surrogateescape")


def _broken(reply: Reply) -> Forwarded | None:
    return replace(reply.forwarded, result=Result.UNKNOWN) if reply.forwarded else None
