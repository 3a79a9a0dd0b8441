"""The sample upstream over HTTP: writes that happen again on every call, reads, the ledger, and faults on demand.

    POST /charges  /refunds  ...        201 with Location; what can go wrong is told in `faults`
    GET  /charges  /charges/{id}  ...   what was made; `?customer=ann`, or any other field, picks by equality
    GET  /flights/{flight}  ...         what was there before, and never changes
    GET  /ledger                        {effects, by_kind, by_key}; `?customer=ann` picks here, too
    DELETE /ledger                      start afresh: no effects, no armed faults, nobody held
    POST /faults {fault, times?}        arm a fault for the next writes that name none of their own
    GET  /faults                        {armed}: what the next writes will suffer, in order
    GET  /holds/{name}                  204 once a request is held under that name (`hold_after=NAME`)
    DELETE /holds/{name}                204: it is held no longer

Writes and reads are tables: another API is more rows of `Write` and `Read`. Whatever is made keeps the caller's own `reference`,
a string, where the body has one. Errors are `{"error": "a sentence"}`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from idemproxy.demo.faults import Faults, checked
from idemproxy.demo.ledger import Ledger, fits


@dataclass(frozen=True, slots=True)
class Write:
    """One row: `carry_out` checks the body of a `POST /{path}` and returns the fields of the resource it makes."""

    path: str
    kind: str
    id_prefix: str
    carry_out: Callable[[Ledger, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Read:
    """One row: `look_up` is given what stands in `{braces}` in the path, and in the query."""

    path: str
    look_up: Callable[[Mapping[str, str]], dict[str, Any]]


def create_app(ledger: Ledger, writes: Sequence[Write], reads: Sequence[Read] = ()) -> web.Application:
    """Build the application that answers `reads`, carries out `writes` and keeps their effects in `ledger`."""
    app, faults = web.Application(middlewares=[_errors_as_json]), Faults()
    for write in writes:
        collection = _Collection(write, ledger, faults)
        app.router.add_post(f"/{write.path}", collection.make)
        app.router.add_get(f"/{write.path}", collection.list)
        app.router.add_get(f"/{write.path}/{{id}}", collection.show)
    for read in reads:
        app.router.add_get(f"/{read.path}", _Fixed(read, faults).show)
    control = _Control(ledger, faults)
    app.router.add_get("/ledger", control.show_ledger)
    app.router.add_delete("/ledger", control.clear)
    app.router.add_get("/faults", control.show_faults)
    app.router.add_post("/faults", control.arm)
    app.router.add_get("/holds/{name}", control.until_held)
    app.router.add_delete("/holds/{name}", control.let_go)
    return app


@dataclass(frozen=True, slots=True)
class _Collection:
    """The endpoints of one row."""

    write: Write
    ledger: Ledger
    faults: Faults

    async def make(self, request: web.Request) -> web.StreamResponse:
        return await self.faults.around(self._effect, request)

    async def _effect(self, request: web.Request) -> web.Response:
        content = await request.read()
        # No await from here on: the check against the ledger and the entry in it are one step.
        body = _json_object(content)
        fields = self.write.carry_out(self.ledger, body) | _reference(body)
        digest = hashlib.sha256(content).hexdigest()
        effect = self.ledger.append(self.write.kind, self.write.id_prefix, _idempotency_key(request), digest, fields)
        return _json(effect.resource, 201, Location=f"/{self.write.path}/{effect.id}")

    async def list(self, request: web.Request) -> web.StreamResponse:
        return await self.faults.around(self._all, request)

    async def _all(self, request: web.Request) -> web.Response:
        made = self.ledger.resources(self.write.kind)
        return _json({self.write.path: [resource for resource in made if fits(resource, request.query)]})

    async def show(self, request: web.Request) -> web.StreamResponse:
        return await self.faults.around(self._one, request)

    async def _one(self, request: web.Request) -> web.Response:
        for resource in self.ledger.resources(self.write.kind):
            if resource["id"] == request.match_info["id"]:
                return _json(resource)
        raise web.HTTPNotFound(text=f"no {self.write.kind} {request.match_info['id']!r}")


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The endpoint of one row."""

    read: Read
    faults: Faults

    async def show(self, request: web.Request) -> web.StreamResponse:
        return await self.faults.around(self._look_up, request)

    async def _look_up(self, request: web.Request) -> web.Response:
        return _json(self.read.look_up({**request.query, **request.match_info}))


@dataclass(frozen=True, slots=True)
class _Control:
    """The endpoints for those who watch and steer the sample."""

    ledger: Ledger
    faults: Faults

    async def show_ledger(self, request: web.Request) -> web.Response:
        return _json(self.ledger.summary(request.query))

    async def clear(self, _request: web.Request) -> web.Response:
        self.ledger.clear()
        self.faults.clear()
        return web.Response(status=204)

    async def show_faults(self, _request: web.Request) -> web.Response:
        return _json({"armed": list(self.faults.armed)})

    async def arm(self, request: web.Request) -> web.Response:
        match _json_object(await request.read()):
            case {"fault": str(fault), **rest} if isinstance(times := rest.get("times", 1), int) and 1 <= times <= 1000:
                checked(fault)
                self.faults.armed.extend([fault] * times)
                return await self.show_faults(request)
        raise web.HTTPBadRequest(text='expected {"fault": "...", "times": 1 to 1000}')

    async def until_held(self, request: web.Request) -> web.Response:
        await self.faults.holds[request.match_info["name"]].begun.wait()
        return web.Response(status=204)

    async def let_go(self, request: web.Request) -> web.Response:
        self.faults.holds[request.match_info["name"]].over.set()
        return web.Response(status=204)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPError as error:
        error.text = orjson.dumps({"error": error.text}).decode()
        error.content_type = "application/json"
        raise


def _json(value: object, status: int = 200, **headers: str) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as problem:
        raise web.HTTPBadRequest(text=f"bad JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise web.HTTPBadRequest(text="bad JSON: expected an object")
    return value


def _reference(body: dict[str, Any]) -> dict[str, str]:
    match body.get("reference"):
        case None:
            return {}
        case str(reference):
            return {"reference": reference}
    raise web.HTTPUnprocessableEntity(text="reference must be a string")


def _idempotency_key(request: web.Request) -> str | None:
    """Read the header as received: lines joined (RFC 9110, section 5.2), bytes that are not UTF-8 shown as escapes."""
    lines = request.headers.getall("Idempotency-Key", [])
    value = ", ".join(lines).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value if lines else None
