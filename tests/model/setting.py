"""What a run of the model explores: how many requests, for how long, with which faults, under which policy."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Final

from idemproxy.core.policy import OnUnknown
from tests.model.promises import Promise
from tests.model.rules import Guard

TO_THE_END: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class Setting:
    """The bounds of a run. All interleavings within them are visited, up to `depth` steps.

    With the mode `retry` the upstream is itself idempotent: it acts once for a key, and repeats its answer. `faults` and
    `renewals` are how many a history may have of them. `late`: ticks for which a process may be stopped between its look at
    its lease and its first byte, None is for ever. `watched`: the promises that end the run when they are broken.
    """

    name: str
    mode: OnUnknown = OnUnknown.HOLD
    requests: int = 2
    ticks: int = 4
    faults: int = 1
    renewals: int = 1
    depth: int = TO_THE_END
    late: int | None = 0
    operator: bool = False
    forgets: bool = False
    loses_records: bool = False
    without: Guard | None = None
    watched: frozenset[Promise] = field(default=frozenset(Promise))


_TWO: Final = (
    Setting("hold", faults=2),
    Setting("retry", OnUnknown.RETRY),
    Setting("probe", OnUnknown.PROBE, ticks=5),
    Setting("hold, with an operator", operator=True),
    Setting("hold, with an operator who forgets", operator=True, forgets=True, renewals=0),
    Setting("hold, with a store that loses records", loses_records=True),
)
DEPTH: Final = 9
"""Of the runs with three requests, unless more is asked for."""


def guarded(depth: int = DEPTH) -> tuple[Setting, ...]:
    """Every setting with all guards: two requests to the end of all histories, three to a depth."""
    three = (replace(two, name=f"{two.name}; three requests", requests=3, ticks=5, faults=1, depth=depth) for two in _TWO)
    return *_TWO, *three


OPEN_WINDOW: Final = Setting(
    "probe, and a process stopped for ever between its look and its first byte",
    OnUnknown.PROBE,
    ticks=5,
    faults=0,
    late=None,
    watched=frozenset({Promise.ONE_EFFECT}),
)
SHORT_WINDOW: Final = replace(OPEN_WINDOW, name="probe, and a process stopped there for less than `settle`", late=1)


def _without(guard: Guard, broken: Promise, setting: Setting) -> Setting:
    return replace(setting, name=f"without: {guard.value}", without=guard, watched=frozenset({broken}))


_SMALL: Final = Setting("", renewals=0)
_PROBE: Final = replace(_SMALL, mode=OnUnknown.PROBE)
_OPERATOR: Final = replace(_SMALL, operator=True)

UNGUARDED: Final = (
    _without(Guard.FENCE, Promise.ONE_EFFECT, replace(_SMALL, requests=3, ticks=1)),
    _without(Guard.LOOK, Promise.ONE_EFFECT, replace(_PROBE, faults=0)),
    _without(Guard.LEASE_END, Promise.ONE_EFFECT, replace(_SMALL, faults=0)),
    _without(Guard.RENEWAL, Promise.ONE_EFFECT, replace(_OPERATOR, ticks=2, renewals=1)),
    _without(Guard.READ_BACK, Promise.NO_MEANS_NO, _OPERATOR),
    _without(Guard.TIMEOUT, Promise.ONE_EFFECT, _SMALL),
    _without(Guard.COMPLETION, Promise.ONE_ANSWER, _OPERATOR),
    _without(Guard.REWRITE, Promise.ONE_EFFECT, replace(_SMALL, loses_records=True)),
    _without(Guard.SETTLE, Promise.ONE_EFFECT, _PROBE),
    _without(Guard.RECLAIM, Promise.ONE_EFFECT, replace(_PROBE, requests=3, faults=0)),
    _without(Guard.DOUBT, Promise.ONE_EFFECT, replace(_PROBE, requests=3, ticks=2)),
    _without(Guard.DOUBT, Promise.NO_MEANS_NO, replace(_SMALL, mode=OnUnknown.RETRY)),
    _without(Guard.STALE, Promise.NO_MEANS_NO, _OPERATOR),
)
"""Each guard taken away, with the promise that this breaks, in the smallest setting in which it does.

It is looked for where callers and the upstream see it, and not in the inner promise that the guard itself is.
"""
