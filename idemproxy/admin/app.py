"""The pages of the admin listener: plain text for probes and for Prometheus, and the records."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

from aiohttp import web
from aiohttp.http import StreamWriter
from aiohttp.typedefs import Handler, Middleware

from idemproxy.admin.records import Records
from idemproxy.admin.refusal import Cause, RefusedError, problem_response
from idemproxy.admin.sight import Sight
from idemproxy.core.problem import Slug, problem
from idemproxy.server.connection import ServerConnection, Serving
from idemproxy.server.framing import UnreadableError
from idemproxy.server.incoming import Incoming

_UNEXPECTED = problem(Slug.BAD_REQUEST, "The field Expect knows 100-continue alone: send the request without it.", status=417)


@asynccontextmanager
async def admin_server(sight: Sight, records: Records | None = None) -> AsyncIterator[Callable[[], ServerConnection]]:
    """The pages as a factory of protocols for `loop.create_server`, until the context ends."""
    runner = web.AppRunner(admin_app(sight, records))
    await runner.setup()
    try:
        assert runner.server is not None  # noqa: S101 - it has been set up
        serving = _serving_with(runner.server)
        yield partial(ServerConnection, runner.server, serving, loop=asyncio.get_running_loop(), access_log=None)
    finally:
        await runner.cleanup()


def _serving_with(server: web.Server) -> Serving:
    """Serves requests with an application of aiohttp's, as aiohttp's own connection would."""

    async def serve(http: Incoming) -> bool:
        writer = StreamWriter(http.connection, asyncio.get_running_loop())
        task = cast("asyncio.Task[None]", asyncio.current_task())
        request = server.request_factory(http.message, http.content, http.connection, writer, task)
        try:
            try:
                response = await server.request_handler(request)
            except web.HTTPExpectationFailed as exc:  # in which aiohttp echoes a field
                raise UnreadableError(_UNEXPECTED) from exc
            except web.HTTPException as exc:
                response = exc
            await response.prepare(request)
            await response.write_eof()
        finally:
            http.begun = writer.output_size > 0
        return bool(response.keep_alive)

    return serve


def admin_app(sight: Sight, records: Records | None = None) -> web.Application:
    """GET /metrics, /livez, /readyz (`?verbose` lists every check) and /startupz, and the records where they are given.

    Anything else is a 404 problem document.
    """
    names = ["/metrics", "/livez", "/readyz", "/startupz"]
    app = web.Application() if records is None else web.Application(client_max_size=records.longest_act)
    app.on_response_prepare.append(_finish)
    pages = _Pages(sight)
    app.router.add_get("/metrics", pages.metrics_page)
    app.router.add_get("/livez", pages.livez)
    app.router.add_get("/readyz", pages.readyz)
    app.router.add_get("/startupz", pages.startupz)
    if records is not None:
        app.add_routes(records.routes())
        names.append("/records")
    app.middlewares.append(_misdirected_as_problem(f"it has {', '.join(names[:-1])} and {names[-1]}"))
    return app


@dataclass(frozen=True, slots=True)
class _Pages:
    """One method for each page."""

    sight: Sight

    async def metrics_page(self, _request: web.Request) -> web.Response:
        """In the text format of Prometheus."""
        page, content_type = await self.sight.metrics_page()
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def livez(self, _request: web.Request) -> web.Response:
        """200 `ok`, or 503 and who does not answer."""
        silent = await self.sight.silent()
        if silent:
            return web.Response(text="".join(f"{name} does not answer\n" for name in silent), status=503)
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        """200 `ok`, or 503 and what is wrong."""
        findings = await self.sight.findings()
        failed = [finding for finding in findings if finding.reason is not None]
        shown = findings if "verbose" in request.query else failed
        lines = [*map(str, shown), "not ready" if failed else "ok"]
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

    async def startupz(self, _request: web.Request) -> web.Response:
        """503 until the proxy has started; draining changes nothing here."""
        return web.Response(text="ok\n") if self.sight.has_started() else web.Response(text="not started yet\n", status=503)


def _misdirected_as_problem(pages: str) -> Middleware:
    """What answers for paths without a page, and for methods that a page does not take."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            refusal = problem(Slug.NO_ROUTE, f"The admin listener has no such page; {pages}.")
            return problem_response(refusal.document(uuid.uuid4().urn), refusal.status, refusal.proxy_status().decode("ascii"))
        except web.HTTPMethodNotAllowed as wrong:
            allowed = ", ".join(sorted(wrong.allowed_methods))
            fields = {"Allow": wrong.headers["Allow"]}
            return RefusedError(Cause.METHOD_NOT_ALLOWED, f"This page takes {allowed}.", fields).response()

    return answer


async def _finish(_request: web.Request, response: web.StreamResponse) -> None:
    """No answer is kept by a cache, and none tells which versions run here."""
    response.headers["Cache-Control"] = "no-store"
    response.headers.popall("Server", None)
