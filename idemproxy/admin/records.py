"""The records over HTTP, for people who must decide what a machine cannot: look at them, resolve them, forget them.

    GET  /records?phase=&limit=&cursor=                  {records, next}: some records, without their answers
    GET  /records/{scope}/{upstream}/{key}               one record, its stored answer and its audit trail
    POST /records/{scope}/{upstream}/{key}/resolve       {fence, who, why, as, ...}: `completed` with an answer, or `not_executed`
    POST /records/{scope}/{upstream}/{key}/forget        {fence, who, why}

Each act carries the fence that its author saw, is kept in the record's audit trail, and is told on standard error in one line.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from idemproxy.admin.access import Access
from idemproxy.admin.acts import Wish, read_forget, read_object, read_resolve
from idemproxy.admin.refusal import Cause, RefusedError
from idemproxy.admin.shown import Shown, record_shown, whole_shown
from idemproxy.core.policy import KIB, Policy
from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Acted, Verb
from idemproxy.store.base import Store, StoreError

_log = logging.getLogger("idemproxy.admin")

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000

_ID: Final = "/records/{scope}/{upstream}/{key}"

Page: TypeAlias = Callable[[web.Request], Awaitable[Shown]]


@dataclass(frozen=True, slots=True)
class Records:
    """The pages over a store. `policies`, by route, say how a resolved answer is kept; other routes are treated by default."""

    store: Store
    policies: Mapping[str, Policy]
    access: Access

    def routes(self) -> list[web.RouteDef]:
        """Every page, each behind the same guard."""
        return [
            web.get("/records", self._guarded(self._page)),
            web.get(_ID, self._guarded(self._show)),
            web.post(f"{_ID}/resolve", self._guarded(self._resolve)),
            web.post(f"{_ID}/forget", self._guarded(self._forget)),
        ]

    @property
    def longest_act(self) -> int:
        """Bytes of the longest JSON that is read: the longest body that a route keeps, in base64, and what goes with it."""
        longest = max(policy.max_stored_body for policy in (Policy(), *self.policies.values()))
        return 2 * longest + 256 * KIB

    def _guarded(self, page: Page) -> Handler:
        """The page for those who may see it; what it refuses, and what the store fails at, as a problem document."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                self.access.check(request)
                return web.Response(body=orjson.dumps(await page(request)), content_type="application/json")
            except RefusedError as refused:
                return refused.response()
            except StoreError as failure:
                return RefusedError(Cause.STORE_UNAVAILABLE, f"The records cannot be read now: {failure}").response()

        return answer

    async def _page(self, request: web.Request) -> Shown:
        if unknown := sorted(request.query.keys() - {"phase", "limit", "cursor"}):
            raise RefusedError(Cause.REQUEST_INVALID, f"The list has no parameter {unknown[0]!r}: phase, limit, cursor.")
        phase, limit = _phase(request.query.get("phase")), _limit(request.query.get("limit"))
        try:
            page = await self.store.list(phase, limit, request.query.get("cursor", ""))
        except ValueError as failure:
            detail = "`cursor` is not one that a list of this store has given: begin without one."
            raise RefusedError(Cause.REQUEST_INVALID, detail) from failure
        return {"records": [record_shown(*found) for found in page.records], "next": page.cursor or None}

    async def _show(self, request: web.Request) -> Shown:
        identity = _identity(request)
        record, acts = await self.store.read(identity), await self.store.audit(identity)
        if record is None and not acts:
            raise _absent()
        return whole_shown(identity, record, acts)

    async def _resolve(self, request: web.Request) -> Shown:
        identity, document = _identity(request), await _document(request)
        record = await self.store.read(identity)
        if record is None:
            raise _absent()
        wish = read_resolve(document, self.policies.get(record.route) or Policy())
        return await self._act(identity, wish, self.store.resolve(identity, wish.fence, wish.resolution, wish.who, wish.why))

    async def _forget(self, request: web.Request) -> Shown:
        identity, wish = _identity(request), read_forget(await _document(request))
        return await self._act(identity, wish, self.store.forget(identity, wish.fence, wish.who, wish.why))

    async def _act(self, identity: Identity, wish: Wish, doing: Awaitable[Acted]) -> Shown:
        """Let the store act, tell of it, and say what became of it."""
        told = f"{wish.verb} {identity} by {wish.who}: {wish.why}"
        try:
            acted = await doing
        except StoreError as failure:
            _log.warning("not confirmed: %s (%s)", told, failure)
            detail = f"The act may have been carried out, or not, so look at the record first: {failure}"
            raise RefusedError(Cause.ACT_UNCONFIRMED, detail) from failure
        if acted is Acted.DONE:
            _log.info("%s", told)
            return {"acted": acted.value}
        raise _not_done(acted, wish.verb, await self.store.read(identity))


def _not_done(acted: Acted, verb: Verb, present: Record | None) -> RefusedError:
    """Why nothing changed, with the phase and the fence that the record has now."""
    if acted is Acted.ABSENT:
        return _absent()
    if present is None:
        return RefusedError(Cause.RECORD_CHANGED, "The record has gone since: look at what was done to it before you act.")
    advice = f"its phase is now {present.phase} and its fence {present.fence}, so look at it again before you act."
    if acted is Acted.STALE:
        return RefusedError(Cause.RECORD_CHANGED, f"The record has another fence: {advice}")
    rule = "A record in flight cannot be forgotten" if verb is Verb.FORGET else "Only an unknown record can be resolved"
    return RefusedError(Cause.WRONG_PHASE, f"{rule}: {advice}")


def _absent() -> RefusedError:
    return RefusedError(Cause.RECORD_ABSENT, "There is no record of this id, and no act on one: its key is free.")


def _identity(request: web.Request) -> Identity:
    """The record that a path names. Its parts are visible characters, so that nobody forges a line of the log with one."""
    parts = [request.match_info[part] for part in ("scope", "upstream", "key")]
    if not all(part.isascii() and part.isprintable() and not {" ", "/"} & set(part) for part in parts):
        raise _absent()
    return Identity(*parts)


def _phase(text: str | None) -> Phase | None:
    if text is not None and text not in list(Phase):
        raise RefusedError(Cause.REQUEST_INVALID, f"`phase` is one of {', '.join(Phase)}; leave it out for all.")
    return None if text is None else Phase(text)


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_LIMIT:
        raise RefusedError(Cause.REQUEST_INVALID, f"`limit` is a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


async def _document(request: web.Request) -> Mapping[str, object]:
    """The JSON of an act. Only as `application/json`, which a form on a foreign web page cannot send."""
    if request.content_type != "application/json":
        raise RefusedError(Cause.MEDIA_TYPE, "Send the act as JSON, with Content-Type: application/json.")
    try:
        return read_object(await request.read())
    except web.HTTPRequestEntityTooLarge as failure:
        raise RefusedError(Cause.BODY_TOO_LARGE, "The act is longer than any answer that may be kept.") from failure
