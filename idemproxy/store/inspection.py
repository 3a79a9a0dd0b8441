"""What is known of the place where the records lie: looked at when the proxy starts, again and again, and when it has come back.

An error that was not accepted refuses the start. One that comes to light later is told in the log, in a metric, and by
`/readyz?verbose`, but the proxy stays ready: records that are there still protect their operations, and to send clients away
would take that protection, and the service, from all of them for a fault that may never strike. Only where records are lost
already, the store's own `check` makes it unready: nothing new is granted then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from idemproxy.store.base import LostRecordsError, Store, StoreError
from idemproxy.store.base_finding import RECORDS, Finding, Level, judged

_log = logging.getLogger("idemproxy")

# Seconds between two looks, each up to a fifth longer or shorter, so that the proxies of a server do not ask in step.
_EVERY: Final = 60.0
_UNTIL_SEEN: Final = 5.0
"""The same, while it could not be seen."""
_AFTER_RETURN: Final = 1.0
"""Seconds within which a store that has come back is looked at: not at once, since all who wait for it come at once."""

_LEVELS: Final = {Level.ERROR: logging.ERROR, Level.FINE: logging.INFO}

Tell = Callable[[Mapping[str, int]], None]
"""Takes how many findings there are of each level, by the level's name in lower case."""


class Inspection:
    """The findings on a store. `accepted`: `store.accept_risk`. Each finding is logged once, for as long as it stays the same."""

    def __init__(self, store: Store, accepted: Collection[str], tell: Tell) -> None:
        self._store = store
        self._accepted = accepted
        self._tell = tell
        self._findings: list[Finding] = []
        self._was_seen = False
        self._confirms = True
        self._has_lost = False
        self._wanted = asyncio.Event()

    def refusals(self) -> list[str]:
        """Why a proxy must not start; empty when it may, or when nothing could be seen."""
        return [_line(each) for each in self._errors() if not each.heals]

    def note(self) -> str | None:
        """For whoever asks whether the store is well: the errors."""
        return "; ".join(_line(each) for each in self._errors()) or None

    def operation(self, failure: Exception | None) -> None:
        """The store has confirmed an operation, or has not: it is looked at anew when it confirms again, or has lost records."""
        if isinstance(failure, LostRecordsError):  # which says nothing of what it confirms
            if not self._has_lost:
                self._wanted.set()
            self._has_lost = True
            return
        if failure is None and not self._confirms:
            self._wanted.set()
        self._confirms = failure is None

    async def look(self) -> None:
        """Look once, and tell what is new. A store that is out of reach keeps its old findings."""
        try:
            found = judged(await self._store.inspect(), self._accepted)
        except StoreError:  # whoever needs the store is told of that
            self._was_seen = False
            return
        before = {each.what: each for each in self._findings if each.level is not Level.FINE}
        known = set(self._findings)
        for each in found:
            if each not in known and (each.level is not Level.FINE or each.what in before):
                sentence = f"store: {_line(each)}"  # whole, since of the same sentence the log writes one a second
                _log.log(_LEVELS.get(each.level, logging.WARNING), sentence)
        self._findings, self._was_seen = found, True
        self._has_lost = self._has_lost and any(each.what == RECORDS for each in found)
        self._tell(Counter(each.level.name.lower() for each in found))

    async def keep_looking(self, check: Callable[[], Awaitable[None]]) -> None:
        """Look again for as long as the proxy runs, and `check` that it confirms: perhaps nobody else asks."""
        while True:
            pause = (_EVERY if self._was_seen else _UNTIL_SEEN) * random.uniform(0.8, 1.2)  # noqa: S311 -- spreads, guards nothing
            try:
                await asyncio.wait_for(self._wanted.wait(), pause)
            except TimeoutError:
                with suppress(StoreError):  # whoever needs the store is told of that
                    await check()
            else:
                await asyncio.sleep(_AFTER_RETURN * random.random())  # noqa: S311 -- as above
            self._wanted.clear()
            await self.look()

    def _errors(self) -> list[Finding]:
        return [each for each in self._findings if each.level is Level.ERROR]


def _line(finding: Finding) -> str:
    level = "" if finding.level in {Level.ERROR, Level.WARNING} else f"{finding.level}: "
    return f"{finding.what}: {level}{finding}"
