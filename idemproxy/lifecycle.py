"""A run from its start to its end: open the store, listen, tell, wait for a signal, drain, close.

Exit codes: 0 drained, 1 could not start, 3 ended with requests still under way (the caller of `run` adds 2, for a configuration
that cannot be run).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Final

from idemproxy.admin.access import Access
from idemproxy.admin.app import admin_server
from idemproxy.admin.health import Check, Health
from idemproxy.admin.records import Records
from idemproxy.admin.sight import Alone, Sight
from idemproxy.board import Seat
from idemproxy.config.certificates import CertificateError, client_context
from idemproxy.config.settings import Address, Settings
from idemproxy.core.record import MICROSECONDS, Identity
from idemproxy.core.transition import Doubt, Hold
from idemproxy.crew import Crew
from idemproxy.listening import NotListeningError, ShownCertificate, listen, listen_on
from idemproxy.observe.access_log import AccessLog, Outlet
from idemproxy.observe.log import Lines, take_over_standard_error
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.observation import Observation
from idemproxy.proxy.exchange import Exchange
from idemproxy.proxy.lease import Leases
from idemproxy.proxy.listener import Listener
from idemproxy.proxy.orphans import Owner, keep_adopting
from idemproxy.proxy.pool import Pool
from idemproxy.proxy.settler import Settler
from idemproxy.signals import Signals
from idemproxy.store.base import Store, StoreError
from idemproxy.store.choice import open_store, store_name
from idemproxy.store.inspection import Inspection
from idemproxy.store.measured import MeasuredStore
from idemproxy.store.spool import Spool
from idemproxy.workflow.pages import Pages

_log = logging.getLogger("idemproxy")

EXIT_DRAINED: Final = 0
EXIT_NOT_STARTED: Final = 1
EXIT_UNFINISHED: Final = 3

_YOUNG: Final = 5_000
"""How many more objects than there were before, of those that may be part of a cycle, before cycles are looked for."""

_ALL_AFTER: Final = 60
"""Seconds after which they are looked for among all objects, and not only among those that are new."""

LAST_WORDS: Final = 2.0
"""Seconds in which a run that ends with requests under way may still tell the store so."""


class NotStartedError(Exception):
    """What a run needs cannot be had; the message says what, and what to do."""


def run(settings: Settings, seat: Seat | None = None) -> int:
    """Serve until a signal comes, as one of several workers where there is a seat; the exit code."""
    open_standard_streams()
    outlet = Outlet(2, is_shared=seat is not None)
    lines = Lines(outlet, as_json=settings.log_format == "json", of="" if seat is None else seat.name)
    logging.basicConfig(level=logging.INFO, handlers=[lines], force=True)
    take_over_standard_error()
    _collect_seldom()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, seat))
    except (NotStartedError, NotListeningError, StoreError) as exc:
        _log.error("%s", exc)
        return EXIT_NOT_STARTED
    finally:
        outlet.close(1.0)


def open_standard_streams() -> None:
    """Let no socket become one of the three standard streams: uvloop ends the process over that, and others write to it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


async def _serve(settings: Settings, seat: Seat | None) -> int:
    loop = asyncio.get_running_loop()
    store = open_store(settings.store)
    metrics = metrics_of(settings, store) if seat is None else seat.metrics
    certificate, contexts = _certificates(settings, metrics)
    signals = Signals(loop, certificate, metrics, None if seat is None else seat.orders)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_ended, loop.create_task(_collect()))
        measured, inspection = await _open(store, settings.store.accepted_risks, metrics, stack)
        spool = await _open_spool(settings, stack)
        observe = await stack.enter_async_context(_observers(settings, metrics, loop, is_shared=seat is not None))
        settler = Settler(measured, spool, metrics, loop)
        stack.push_async_callback(settler.close)
        leases = Leases(measured, loop, min(route.policy.lease for route in settings.routes) / 3, metrics)
        stack.push_async_callback(leases.close)
        owner = Owner(secrets.token_hex(8) if spool is None else spool.instance)
        if spool is not None:
            stack.push_async_callback(_ended, loop.create_task(keep_adopting(spool, measured, metrics, settler.look_again)))
        pools = {name: Pool(upstream, loop, contexts.get(name)) for name, upstream in settings.upstreams.items()}
        for pool in pools.values():
            stack.callback(pool.close)
        exchange = Exchange(measured, settler, leases, pools, owner, loop)
        pages = _pages(settings, measured)
        listener = Listener(
            settings.routes, pools, exchange, pages, observe, settings.scope, settings.key_secret, settings.trusted_proxies
        )
        stack.push_async_callback(listener.digesting.close)

        health = Health({"store": _store_check(measured, inspection), "spool": _spool_check(spool, settler)})
        crew = None if seat is None else Crew(seat, health)
        await _listen_for_operators(settings, crew or Alone(metrics, health), measured, seat, stack)
        server = await listen(listener.server, settings.listen, "listening", "listen", certificate, is_shared=seat is not None)
        stack.callback(server.close)
        if crew is None:
            tell_settings(settings)
        else:
            await stack.enter_async_context(crew)
        health.started = True

        await signals.first()
        _log.info("draining: %d requests under way", listener.active)
        metrics.draining_until(time.time() + settings.drain)
        health.draining = True
        listener.drain()
        server.close()
        unfinished = await _drain(listener, exchange, signals, settings.drain)
        held = leases.held() if unfinished else []
        await _give_up(held, settler)
        await exchange.abandon()
        await listener.server.shutdown(timeout=0.5)
        if held:
            _log.error("ended with %d attempts under way: they are unknown", len(held))
            return EXIT_UNFINISHED
    if unfinished:
        _log.warning("drained; clients that were cut off, with nothing under way for them: %d", unfinished)
    else:
        _log.info("drained")
    return EXIT_DRAINED


async def _listen_for_operators(
    settings: Settings, sight: Sight, store: Store, seat: Seat | None, stack: contextlib.AsyncExitStack
) -> None:
    policies = {route.name: route.policy for route in settings.routes}
    records = Records(store, policies, Access(settings.admin_token))
    protocols = await stack.enter_async_context(admin_server(sight, records))
    if seat is None:
        servers = [await listen(protocols, settings.admin, "admin", "admin-listen")]
    else:
        servers = await listen_on(protocols, seat.admin)
    for server in servers:
        stack.callback(server.close)


def metrics_of(settings: Settings, store: Store) -> Metrics:
    """Every series of a run with these settings, at 0."""
    return Metrics([route.name for route in settings.routes], store.name)


def _pages(settings: Settings, store: Store) -> Pages:
    kept = round(settings.memory_kept * MICROSECONDS)
    return Pages(store, settings.routes, settings.scope, settings.key_secret, max_memory=settings.max_agent_memory, kept=kept)


def _certificates(settings: Settings, metrics: Metrics) -> tuple[ShownCertificate | None, Mapping[str, ssl.SSLContext]]:
    """What clients are shown, and how each upstream that speaks TLS is spoken to."""
    where, contexts = "", {}
    try:
        certificate = None if settings.tls is None else ShownCertificate(settings.tls, metrics.handshake_refused)
        for name, upstream in settings.upstreams.items():
            where = f"upstreams.{name}."
            if upstream.scheme == "https":
                contexts[name] = client_context(upstream.tls)
    except CertificateError as exc:
        raise NotStartedError(f"{where}tls.{exc.setting}: {exc}") from exc
    return certificate, contexts


async def _open(
    store: Store, accepted_risks: Collection[str], metrics: Metrics, stack: contextlib.AsyncExitStack
) -> tuple[MeasuredStore, Inspection]:
    """Start the store and look at it; an outage is told, and heals by itself. Raises NotStartedError where records may go."""
    inspection = Inspection(store, accepted_risks, metrics.store_findings)

    def observe(operation: str, seconds: float, failure: Exception | None) -> None:
        metrics.store_operation(operation, seconds, failure is None)
        inspection.operation(failure)

    measured = MeasuredStore(store, observe)
    await measured.start()
    stack.push_async_callback(measured.close)
    try:
        await measured.check()
    except StoreError as exc:
        _log.warning("not ready, covered writes get 503 until this heals: %s", exc)
    await inspection.look()
    if refusals := inspection.refusals():
        raise NotStartedError(f"not started, since records may go: {'; '.join(refusals)}")
    looking = asyncio.get_running_loop().create_task(inspection.keep_looking(measured.check))
    stack.push_async_callback(_ended, looking)
    return measured, inspection


async def _open_spool(settings: Settings, stack: contextlib.AsyncExitStack) -> Spool | None:
    """This process's slot in the spool; without one a proxy still serves, and says what it cannot do."""
    try:
        spool = await asyncio.to_thread(Spool.open, settings.spool, store_name(settings.store))
    except StoreError as exc:
        _log.warning("without a spool, an answer that the store does not take is not kept: %s", exc)
        return None
    stack.push_async_callback(spool.close)
    if spool.entries:
        _log.warning("%d endings of an earlier run wait in the spool for the store", spool.entries)
    return spool


def _store_check(store: MeasuredStore, inspection: Inspection) -> Check:
    async def check() -> str | None:
        await store.check()
        return inspection.note()

    return check


def _spool_check(spool: Spool | None, settler: Settler) -> Check:
    async def check() -> str | None:
        if settler.unkept:
            raise StoreError(f"{len(settler.unkept)} endings are in memory only, since it could not be written")
        if spool is None:
            return "there is none: an ending that the store does not take is lost"
        if spool.is_full:
            raise StoreError(f"full: {spool.entries} endings, {spool.bytes} bytes wait for the store")
        return f"endings that wait for the store: {spool.entries}" if spool.entries else None

    return check


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and see it end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _give_up(held: Sequence[tuple[Identity, Hold]], settler: Settler) -> None:
    """Mark what is still forwarded as unknown, since nobody will be here to tell its outcome."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS):
            await asyncio.gather(*(settler.settle(identity, hold, Doubt()) for identity, hold in held))


@contextlib.asynccontextmanager
async def _observers(
    settings: Settings, metrics: Metrics, loop: asyncio.AbstractEventLoop, *, is_shared: bool
) -> AsyncIterator[Callable[[Observation], None]]:
    """What is told of each request: always to the metrics, and to the access log where there is one."""
    if not settings.access_log:
        yield metrics.observe
        return
    outlet = Outlet(1, is_shared=is_shared)
    log = AccessLog(outlet, loop.call_later, time.time)

    def observe(observation: Observation) -> None:
        metrics.observe(observation)
        log.observe(observation)

    try:
        yield observe
    finally:
        log.close()
        await asyncio.to_thread(outlet.close, 1.0)


def _collect_seldom() -> None:
    """Look for cycles of garbage less often than usual: requests leave hardly any, and looking took a tenth of their time."""
    gc.collect()
    gc.freeze()  # what is here now stays to the end
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


async def _collect() -> None:
    """Look for them by the clock, too: few objects can hold much memory, such as the bodies of those who left."""
    for second in count(1):
        await asyncio.sleep(1.0)
        gc.collect(1 if second % _ALL_AFTER else 2)


def tell_settings(settings: Settings) -> None:
    """Say in the log what is served, and how."""
    _log.info("store %s", store_name(settings.store).partition("#")[0])
    for name, upstream in settings.upstreams.items():
        base = upstream.base_path.decode("ascii", "backslashreplace")
        way = "" if upstream.proxy is None else f", through the proxy {Address(upstream.proxy.host, upstream.proxy.port)}"
        _log.info("upstream %s is %s://%s%s%s", name, upstream.scheme, upstream.authority.decode("ascii"), base, way)
    _log.info("%d %s", len(settings.routes), "route" if len(settings.routes) == 1 else "routes")
    for route, profile in settings.profiles.items():
        _log.info("route %s: profile %s", route, profile)
    for warning in settings.warnings:
        _log.warning("%s", warning)


async def _drain(listener: Listener, exchange: Exchange, signals: Signals, seconds: float) -> int:
    """Let what is under way come to its end, until the deadline or a second signal; how many requests did not."""
    finishing = asyncio.ensure_future(_finish(listener, exchange))
    second = asyncio.ensure_future(signals.second())
    await asyncio.wait({finishing, second}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    if finishing.done():
        return 0
    finishing.cancel()
    return max(listener.active, exchange.active, 1)


async def _finish(listener: Listener, exchange: Exchange) -> None:
    await listener.finished()
    await exchange.finished()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Uvloop's event loop where it is installed: it makes a request a quarter cheaper."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
