"""A FastAPI application behind a middleware that passes on what it is sent.

`python_app.py MIDDLEWARE PORT UPSTREAM_URL REDIS_URL`. It runs under the interpreter of the peer's own environment: FastAPI on
uvicorn with uvloop and httptools, and aiohttp's client,
the fastest of the usual ones. Each middleware is set up as its documentation shows for Redis.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn  # type: ignore[import-not-found, unused-ignore]  # these are in the peer's environment, not in ours
from aiohttp import ClientSession, DummyCookieJar, TCPConnector
from fastapi import FastAPI, Request, Response  # type: ignore[import-not-found, unused-ignore]
from redis.asyncio import Redis

_CONNECTIONS: Final = 1024
"""To Redis, at most: redis-py's default of 100 would end in errors."""
_PASSED_ON: Final = ("content-type", "accept", "user-agent", "authorization", "idempotency-key")


def _idemkit(app: Any, redis_url: str) -> None:  # noqa: ANN401 - a class that is not in our environment
    from idemkit import IdempotencyMiddleware, RedisBackend  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    app.add_middleware(IdempotencyMiddleware, backend=RedisBackend.from_url(redis_url, max_connections=_CONNECTIONS))


def _asgi_idempotency_header(app: Any, redis_url: str) -> None:  # noqa: ANN401
    from idempotency_header_middleware import (  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
        IdempotencyHeaderMiddleware,
    )
    from idempotency_header_middleware.backends import RedisBackend  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    app.add_middleware(IdempotencyHeaderMiddleware, backend=RedisBackend(Redis.from_url(redis_url, max_connections=_CONNECTIONS)))


def _fastapi_idempotency_key(app: Any, redis_url: str) -> None:  # noqa: ANN401
    from fastapi_idempotency_key import IdempotencyMiddleware  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    from fastapi_idempotency_key.backends.redis import (  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
        RedisBackend,
    )

    app.add_middleware(IdempotencyMiddleware, backend=RedisBackend(redis=Redis.from_url(redis_url, max_connections=_CONNECTIONS)))


MIDDLEWARES: Final[dict[str, Callable[[Any, str], None]]] = {
    "idemkit": _idemkit,
    "asgi-idempotency-header": _asgi_idempotency_header,
    "fastapi-idempotency-key": _fastapi_idempotency_key,
}


def application(middleware: str, upstream: str, redis_url: str) -> Any:  # noqa: ANN401
    """The application, as ASGI."""
    sessions: list[ClientSession] = []

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        connector = TCPConnector(limit=0, keepalive_timeout=60)
        async with ClientSession(connector=connector, cookie_jar=DummyCookieJar(), auto_decompress=False) as session:
            sessions.append(session)
            yield

    async def pass_on(request: Request) -> Response:
        body = await request.body()
        fields = {name: value for name in _PASSED_ON if (value := request.headers.get(name)) is not None}
        url = upstream + request.url.path
        async with sessions[0].request(request.method, url, headers=fields, data=body, allow_redirects=False) as answer:
            return Response(await answer.read(), answer.status, {"content-type": answer.headers["Content-Type"]})

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.add_api_route("/{path:path}", pass_on, methods=["GET", "POST"])
    MIDDLEWARES[middleware](app, redis_url)
    return app


if __name__ == "__main__":
    _, _name, _port, _upstream, _redis_url = sys.argv
    uvicorn.run(
        application(_name, _upstream, _redis_url),
        port=int(_port),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
    )
