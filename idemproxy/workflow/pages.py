"""The proxy's own pages, for agents: what became of a key, where a workflow stands, and what its agent has saved.

    GET /_idemproxy/keys/{key}                  the record, as JSON; `?upstream=NAME` where several have the key, `?wait=SECONDS`
    GET /_idemproxy/keys/{key}/response         the stored answer; the same parameters
    GET /_idemproxy/workflows/{id}              the checkpoint
    GET /_idemproxy/workflows/{id}/memory       the memory, with its ETag
    PUT /_idemproxy/workflows/{id}/memory       save it; `If-Match`, `If-None-Match: *`

HEAD is taken as GET. Everything is looked for in the scope of who asks: what is another's is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from idemproxy.core.problem import Slug, problem
from idemproxy.proxy.answers import RETRY_AFTER
from idemproxy.proxy.inbound import RESERVED
from idemproxy.store.base import LostRecordsError, StoreError
from idemproxy.workflow.answers import turned_away
from idemproxy.workflow.asked import Asked, TurnedAwayError, fits, read_name, read_parameters, way_of
from idemproxy.workflow.keys import Keys
from idemproxy.workflow.memory import Memories
from idemproxy.workflow.workflows import Workflows

if TYPE_CHECKING:
    from idemproxy.core.message import Request
    from idemproxy.core.policy import Route
    from idemproxy.core.scope import ScopeRule
    from idemproxy.proxy.reply import Reply
    from idemproxy.server.incoming import Incoming
    from idemproxy.store.base import Store

_log = logging.getLogger(__name__)

Page: TypeAlias = Callable[[Asked], Awaitable["Reply"]]

_SAME: Final = {"HEAD": "GET"}
_NAME_AT: Final = 1
_KEY: Final = "key"
_ID: Final = "workflow's id"


@dataclass(frozen=True, slots=True)
class Place:
    """A row of the table: the way to some pages, what the name in it is, the page of each method, and the parameters."""

    way: tuple[bytes | None, ...]
    names: str
    methods: Mapping[str, Page]
    parameters: frozenset[str] = frozenset()

    @property
    def allow(self) -> bytes:
        """The field line that says which methods there are."""
        also = [also for also, method in _SAME.items() if method in self.methods]
        return b"Allow: %b\r\n" % ", ".join([*self.methods, *also]).encode("ascii")


class Pages:
    """The pages over a store.

    `scope` says whose workflows there are; a memory has at most `max_memory` bytes, and stays for `kept` microseconds after its
    last save.
    """

    def __init__(
        self, store: Store, routes: Sequence[Route], scope: ScopeRule, secret: bytes | None, *, max_memory: int, kept: int
    ) -> None:
        self._draining = False
        keys = Keys(store, routes, secret, lambda: self._draining)
        workflows = Workflows(store, routes, scope, secret)
        memories = Memories(workflows, max_memory, kept)
        of_keys = frozenset({"upstream", "wait"})
        self._places = (
            Place((b"keys", None), _KEY, {"GET": keys.record}, of_keys),
            Place((b"keys", None, b"response"), _KEY, {"GET": keys.response}, of_keys),
            Place((b"workflows", None), _ID, {"GET": workflows.checkpoint}),
            Place((b"workflows", None, b"memory"), _ID, {"GET": memories.load, "PUT": memories.save}),
        )

    def drain(self) -> None:
        """Let nobody wait any more: what is under way is told as it stands."""
        self._draining = True

    async def answer(self, http: Incoming, request: Request, patience: float) -> Reply:
        """The reply of the page that is asked for, or why there is none. `patience`: seconds without any of its body."""
        try:
            place, page = self._find(request)
            name = read_name(way_of(request.path)[_NAME_AT], place.names)
            parameters = read_parameters(request.target, place.parameters)
            reply = await page(Asked(http, request, name, parameters, patience))
        except TurnedAwayError as exc:
            reply = turned_away(exc.problem, exc.lines)
        except LostRecordsError:  # told once, by store.inspection
            detail = (
                "The store of this proxy has lost records, and has none of this operation: nobody knows whether it was carried "
                "out. Find out at the upstream, or ask whoever runs this proxy."
            )
            reply = turned_away(problem(Slug.RECORDS_LOST, detail))
        except StoreError as exc:
            _log.warning("a page: %s", exc)
            detail = "The store of this proxy did not confirm what was asked, so nothing can be told now: ask the same again."
            reply = turned_away(problem(Slug.STORE_UNAVAILABLE, detail, retry_after=RETRY_AFTER))
        unread = http.body_exists and not http.content.at_eof()
        return replace(reply, close=True) if unread else reply

    def _find(self, request: Request) -> tuple[Place, Page]:
        """The row of a request, and its page. Raises TurnedAwayError."""
        way = way_of(request.path)
        place = next((place for place in self._places if fits(way, place.way)), None)
        if place is None:
            detail = f"Paths below {RESERVED.decode('ascii')} are this proxy's own, and there is nothing at this one."
            raise TurnedAwayError(problem(Slug.NO_ROUTE, detail))
        page = place.methods.get(_SAME.get(request.method, request.method))
        if page is None:
            detail = "This page of the proxy has no such method, so nothing was done: `Allow` names those that it has."
            raise TurnedAwayError(problem(Slug.METHOD_NOT_ALLOWED, detail), place.allow)
        return place, page
