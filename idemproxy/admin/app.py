"""The pages of the admin listener, as plain text for probes and for Prometheus."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from idemproxy.admin.health import Health
from idemproxy.core.problem import Slug, problem
from idemproxy.observe.metrics import Metrics


@asynccontextmanager
async def admin_server(metrics: Metrics, health: Health) -> AsyncIterator[web.Server]:
    """The pages as a factory of protocols for `loop.create_server`, until the context ends."""
    runner = web.AppRunner(admin_app(metrics, health), access_log=None)
    await runner.setup()
    try:
        assert runner.server is not None  # noqa: S101 - it has been set up
        yield runner.server
    finally:
        await runner.cleanup()


def admin_app(metrics: Metrics, health: Health) -> web.Application:
    """GET /metrics, /livez, /readyz (`?verbose` lists every check) and /startupz; anything else is a 404 problem document."""
    app = web.Application(middlewares=[_unknown_path_as_problem])
    app.on_response_prepare.append(_never_stored)
    pages = _Pages(metrics, health)
    app.router.add_get("/metrics", pages.metrics_page)
    app.router.add_get("/livez", pages.livez)
    app.router.add_get("/readyz", pages.readyz)
    app.router.add_get("/startupz", pages.startupz)
    return app


@dataclass(frozen=True, slots=True)
class _Pages:
    """One method for each page."""

    metrics: Metrics
    health: Health

    async def metrics_page(self, _request: web.Request) -> web.Response:
        """Rendered in a thread: with many routes it takes tens of milliseconds, for which the loop would serve no one."""
        page, content_type = await asyncio.to_thread(self.metrics.render)
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def livez(self, _request: web.Request) -> web.Response:
        """That this is answered proves that the loop runs; restarting would not mend a store."""
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        """200 `ok`, or 503 and what is wrong."""
        findings = await self.health.findings()
        failed = [finding for finding in findings if finding.reason is not None]
        shown = findings if "verbose" in request.query else failed
        lines = [*map(str, shown), "not ready" if failed else "ok"]
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

    async def startupz(self, _request: web.Request) -> web.Response:
        """503 until the proxy has started; draining changes nothing here."""
        return web.Response(text="ok\n") if self.health.started else web.Response(text="not started yet\n", status=503)


@web.middleware
async def _unknown_path_as_problem(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        refusal = problem(Slug.NO_ROUTE, "The admin listener has no such page; it has /metrics, /livez, /readyz and /startupz.")
        return web.Response(
            body=orjson.dumps(refusal.document(uuid.uuid4().urn)),
            status=refusal.status,
            headers={"Content-Type": "application/problem+json", "Proxy-Status": refusal.proxy_status().decode("ascii")},
        )


async def _never_stored(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"
