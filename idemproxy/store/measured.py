"""A store that reports how long each operation took, and whether it was confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeAlias, TypeVar

from idemproxy.core.record import Identity, Record
from idemproxy.core.transition import Ask, Completion, Found, Granted, Hold, Settled
from idemproxy.store.base import Store, Wake

Report: TypeAlias = Callable[[str, float, bool], None]
"""Takes the operation (`check`, `claim`, ...), its seconds, and whether the store confirmed it."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class MeasuredStore:
    """The store `inner`, each of whose operations ends with one `report`; keeps the promises of store.base.Store.

    An operation whose caller was cancelled says nothing about the store and is not reported. `check` is reported too: in a proxy
    without traffic, only the readiness probes see the store fail and recover.
    """

    def __init__(self, inner: Store, report: Report, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
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

    def mark_unknown(
        self, identity: Identity, hold: Hold, status: int | None, answer: bytes | None
    ) -> Coroutine[Any, Any, Settled]:
        """As the inner store, reported as `mark_unknown`."""
        return self._measured("mark_unknown", self._inner.mark_unknown, identity, hold, status, answer)

    def read(self, identity: Identity) -> Coroutine[Any, Any, Record | None]:
        """As the inner store, reported as `read`."""
        return self._measured("read", self._inner.read, identity)

    async def _measured(
        self, operation: str, call: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        started = self._clock()
        try:
            result = await call(*args, **kwargs)
        except Exception:
            self._report(operation, self._clock() - started, False)  # noqa: FBT003 - the shape of a report
            raise
        self._report(operation, self._clock() - started, True)  # noqa: FBT003 - the shape of a report
        return result
