"""A store that reports how long each operation took, and whether it was confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from idemproxy.core.record import Identity
from idemproxy.store.base import Store, Wake
from idemproxy.store.base_finding import Finding
from idemproxy.store.base_journal import Journals

Report: TypeAlias = Callable[[str, float, Exception | None], None]
"""Takes the operation (`check`, `claim`, ...), its seconds, and why the store did not confirm it, None where it did."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Inner = TypeVar("_Inner")


class _Measured:
    """Something whose operations end with one `report` each."""

    def __init__(self, inner: Any, report: Report, clock: Callable[[], float]) -> None:  # noqa: ANN401 -- a store, or its journals
        self._inner = inner
        self._report = report
        self._clock = clock


def _reported(
    operation: Callable[Concatenate[_Inner, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Measured, _P], Coroutine[Any, Any, _T]]:
    """The same operation of what is inside, reported under its name: one frame, since each request passes two."""
    name = operation.__name__

    async def reported(self: _Measured, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        started = self._clock()
        try:
            result: _T = await getattr(self._inner, name)(*args, **kwargs)
        except ValueError:  # such as a cursor that is none: what was asked makes no sense, and says nothing about the store
            raise
        except Exception as exc:
            self._report(name, self._clock() - started, exc)
            raise
        self._report(name, self._clock() - started, None)
        return result

    return reported


class MeasuredStore(_Measured):
    """The store `inner`, each of whose operations ends with one `report`; keeps the promises of store.base.Store.

    An operation whose caller was cancelled, or asked what makes no sense, says nothing about the store and is not reported.
    `check` is reported too: in a proxy without traffic, only the readiness probes see the store fail and recover.
    """

    def __init__(self, inner: Store, report: Report, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(inner, report, clock)
        self.name: Final = inner.name
        self.journals: Final = MeasuredJournals(inner.journals, report, clock)

    check = _reported(Store.check)
    claim = _reported(Store.claim)
    renew = _reported(Store.renew)  # one report for all the holds
    complete = _reported(Store.complete)
    release = _reported(Store.release)
    mark_unknown = _reported(Store.mark_unknown)
    read = _reported(Store.read)
    list = _reported(Store.list)  # one report for each page
    resolve = _reported(Store.resolve)
    forget = _reported(Store.forget)
    audit = _reported(Store.audit)

    async def start(self) -> None:
        """As the inner store; not an operation."""
        await self._inner.start()

    async def close(self) -> None:
        """As the inner store; not an operation."""
        await self._inner.close()

    async def inspect(self) -> Sequence[Finding]:
        """As the inner store; not an operation, since nobody's request waits for it."""
        found: Sequence[Finding] = await self._inner.inspect()
        return found

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As the inner store; waiting says nothing about the store's speed."""
        wake: AbstractContextManager[Wake] = self._inner.watch(identity)
        return wake


class MeasuredJournals(_Measured):
    """The journals of the inner store, reported as its own operations are."""

    note = _reported(Journals.note)
    journal = _reported(Journals.journal)
    save = _reported(Journals.save)
