"""What a run of the model explores: how many requests, for how long, with which faults, under which policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from tests.model.promises import ALL, CALLERS_SEE, Promise
from tests.model.rules import Guard


class Mode(Enum):
    """The route's `on_unknown`. With `retry` the upstream is itself idempotent: it acts once for a key, and repeats its answer."""

    HOLD = "hold"
    RETRY = "retry"
    PROBE = "probe"


@dataclass(frozen=True, slots=True)
class Setting:
    """The bounds of a run. All interleavings within them are visited, up to `depth` steps.

    `late`: ticks for which a process may be stopped between its look at its lease and its first byte; None is for ever.
    """

    name: str
    mode: Mode = Mode.HOLD
    requests: int = 3
    ticks: int = 5
    faults: int = 2
    renewals: int = 1
    depth: int = 18
    late: int | None = 0
    operator: bool = False
    forget: bool = False
    loses_records: bool = False
    without: Guard | None = None
    watched: frozenset[Promise] = field(default=ALL)


HOLDING: Final = Setting("hold")
RETRYING: Final = Setting("retry", Mode.RETRY)
PROBING: Final = Setting("probe", Mode.PROBE)
RESOLVING: Final = Setting("hold, with an operator", operator=True)
FORGETTING: Final = Setting("hold, with an operator who forgets", operator=True, forget=True)
LOSING: Final = Setting("hold, with a store that loses records", loses_records=True)
ALL_GUARDED: Final = (HOLDING, RETRYING, PROBING, RESOLVING, FORGETTING, LOSING)

WINDOW: Final = replace(PROBING, name="probe, and a stop between look and first byte", late=None)

_MISSING: Final = {
    Guard.FENCE: HOLDING,
    Guard.LOOK: PROBING,
    Guard.LEASE_END: HOLDING,
    Guard.TIMEOUT: HOLDING,
    Guard.COMPLETION: RESOLVING,
    Guard.REWRITE: LOSING,
    Guard.SETTLE: PROBING,
    Guard.RECLAIM: PROBING,
    Guard.DOUBT: PROBING,
    Guard.STALE: RESOLVING,
}
UNGUARDED: Final = tuple(
    replace(setting, name=f"without: {guard.value}", without=guard, watched=CALLERS_SEE) for guard, setting in _MISSING.items()
)
