"""A store that reports how long each operation took, and whether it was confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from idemproxy.core.journal import Journal, Note, SaveResult, WorkflowIdentity
from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Act, Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.store.base import Page, Store, Wake
from idemproxy.store.base_finding import Finding
from idemproxy.store.base_journal import Journals

Report: TypeAlias = Callable[[str, float, Exception | None], None]
"""Takes the operation (`check`, `claim`, ...), its seconds, and why the store did not confirm it, None where it did."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class MeasuredStore:
    """The store `inner`, each of whose operations ends with one `report`; keeps the promises of store.base.Store.

    An operation whose caller was cancelled, or asked what makes no sense, says nothing about the store and is not reported.
    `check` is reported too: in a proxy without traffic, only the readiness probes see the store fail and recover.
    """

    def __init__(self, inner: Store, report: Report, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self.journals: Final = MeasuredJournals(inner.journals, self._measured)
        self._report = report
        self._clock = clock

    @property
    def name(self) -> str:
        """The name of the inner store."""
        return self._inner.name

    async def start(self) -> None:
        """As the inner store; not an operation."""
        await self._inner.start()

    async def close(self) -> None:
        """As the inner store; not an operation."""
        await self._inner.close()

    async def inspect(self) -> Sequence[Finding]:
        """As the inner store; not an operation, since nobody's request waits for it."""
        return await self._inner.inspect()

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As the inner store; waiting says nothing about the store's speed."""
        return self._inner.watch(identity)

    # Each returns the measuring coroutine itself: one frame per operation instead of two.

    def check(self) -> Coroutine[Any, Any, None]:
        """As the inner store, reported as `check`."""
        return self._measured("check", self._inner.check)

    def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Coroutine[Any, Any, Granted | Found]:
        """As the inner store, reported as `claim`."""
        return self._measured("claim", self._inner.claim, identity, ask, watched=watched)

    def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Coroutine[Any, Any, Sequence[bool]]:
        """As the inner store, reported as one `renew` for all the holds."""
        return self._measured("renew", self._inner.renew, holds, lease)

    def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Coroutine[Any, Any, Settled]:
        """As the inner store, reported as `complete`."""
        return self._measured("complete", self._inner.complete, identity, hold, completion)

    def release(self, identity: Identity, hold: Hold) -> Coroutine[Any, Any, Settled]:
        """As the inner store, reported as `release`."""
        return self._measured("release", self._inner.release, identity, hold)

    def mark_unknown(self, identity: Identity, hold: Hold, doubt: Doubt) -> Coroutine[Any, Any, Settled]:
        """As the inner store, reported as `mark_unknown`."""
        return self._measured("mark_unknown", self._inner.mark_unknown, identity, hold, doubt)

    def read(self, identity: Identity) -> Coroutine[Any, Any, Record | None]:
        """As the inner store, reported as `read`."""
        return self._measured("read", self._inner.read, identity)

    def list(self, phase: Phase | None, limit: int, cursor: str) -> Coroutine[Any, Any, Page]:
        """As the inner store, reported as `list`: one for each page."""
        return self._measured("list", self._inner.list, phase, limit, cursor)

    def resolve(
        self, identity: Identity, fence: int, resolution: Completion | None, who: str, why: str
    ) -> Coroutine[Any, Any, Acted]:
        """As the inner store, reported as `resolve`."""
        return self._measured("resolve", self._inner.resolve, identity, fence, resolution, who, why)

    def forget(self, identity: Identity, fence: int, who: str, why: str) -> Coroutine[Any, Any, Acted]:
        """As the inner store, reported as `forget`."""
        return self._measured("forget", self._inner.forget, identity, fence, who, why)

    def audit(self, identity: Identity) -> Coroutine[Any, Any, Sequence[Act]]:
        """As the inner store, reported as `audit`."""
        return self._measured("audit", self._inner.audit, identity)

    async def _measured(
        self, operation: str, call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        started = self._clock()
        try:
            result = await call(*args, **kwargs)
        except ValueError:  # such as a cursor that is none: what was asked makes no sense, and says nothing about the store
            raise
        except Exception as exc:
            self._report(operation, self._clock() - started, exc)
            raise
        self._report(operation, self._clock() - started, None)
        return result


class Measure(Protocol):
    """How one operation is carried out, and reported."""

    def __call__(
        self, operation: str, call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> Coroutine[Any, Any, _T]:
        """Gives what `call` gives."""


class MeasuredJournals:
    """The journals of the inner store, reported as its own operations are."""

    def __init__(self, inner: Journals, measured: Measure) -> None:
        self._inner = inner
        self._measured = measured

    def note(self, workflow: WorkflowIdentity, note: Note) -> Coroutine[Any, Any, None]:
        """As the inner store, reported as `note`."""
        return self._measured("note", self._inner.note, workflow, note)

    def journal(self, workflow: WorkflowIdentity) -> Coroutine[Any, Any, tuple[Journal, int] | None]:
        """As the inner store, reported as `journal`."""
        return self._measured("journal", self._inner.journal, workflow)

    def save(
        self, workflow: WorkflowIdentity, content: bytes, expected: int | None, kept: int
    ) -> Coroutine[Any, Any, SaveResult]:
        """As the inner store, reported as `save`."""
        return self._measured("save", self._inner.save, workflow, content, expected, kept)
