"""The state of the model: a tuple of small numbers and short words, so that hundreds of thousands of them can be told apart.

A stopped process needs no word here: it is one that takes no step while the others, the store and the clock do. So a stop and a
wake at every step are in every run. A crash is a fault like the others, and a run has at most so many.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NOBODY: Final = -1


class Stage:
    """How far a request has come at its proxy."""

    IDLE: Final = "idle"
    ASKED: Final = "asked"
    """Its claim is on its way to the store."""
    WAITING: Final = "waiting"
    """For the end of somebody else's operation."""
    READY: Final = "ready"
    """Its claim is granted."""
    LOOKED: Final = "looked"
    """It has seen that its lease lives, and its first byte is due (only where the window of contract 13 is open)."""
    SENT: Final = "sent"
    ENDING: Final = "ending"
    """How it ended is on its way to the store, and nobody has been answered."""
    SPOOLED: Final = "spooled"
    """The caller has been answered, and how it ended lies in the spool."""
    GIVING = "giving back"
    """The store did not say whether the claim was granted; the caller has been told that the store is unavailable."""
    RETURNING: Final = "returning"
    """It was granted, and is to be ended: nothing was sent."""
    DONE: Final = "done"
    DEAD: Final = "dead"
    """Its process has crashed."""


class Wire:
    """Where the bytes of a request are."""

    NONE: Final = ""
    TRAVELLING: Final = "travelling"
    EFFECT: Final = "effect"
    """They have arrived, and the upstream has acted."""
    REFUSED: Final = "refused"
    """They have arrived, and the upstream says that it did not act (429)."""


class Told:
    """What a caller is told: `EXECUTED` and `REPLAYED` give an answer."""

    EXECUTED: Final = "executed"
    REPLAYED: Final = "replayed"
    RECOVERED: Final = "recovered"
    NOT_EXECUTED: Final = "executed: no"
    UNKNOWN: Final = "executed: unknown"
    IN_PROGRESS: Final = "in progress"


class Request(NamedTuple):
    """One request of a caller at its proxy. `hold`, `ending` and `stray` are numbers that `Rules` gave."""

    stage: str = Stage.IDLE
    until: int = 0
    """The tick at which its lease is over, as it believes: counted from when the claim, or the renewal, was asked for."""
    hold: int = 0
    reclaim: int = 0
    """The fence of the unknown record that it wants to take, or has taken, and since when (microseconds) that was unknown."""
    since: int = 0
    waited: bool = False
    wire: str = Wire.NONE
    sent_at: int = 0
    ending: int = 0
    stray: int = 0
    """A copy of its claim that nobody waits for any more, and that may yet be carried out."""


class State(NamedTuple):
    """Everything at one moment."""

    requests: tuple[Request, ...]
    tick: int = 0
    record: int = 0
    effects: int = 0
    actor: int = NOBODY
    """The request that made the first effect."""
    given: int = 0
    """The answer that a caller has been given as what happened."""
    grants: int = 0
    fences: tuple[int, ...] = ()
    """Those under which a first byte has left."""
    faults: int = 0
    renewals: int = 0
    lost: bool = False
    """The store has lost a record, and nobody has written it anew."""
    excused: bool = False
    """A key was used again after a loss, or an operator's `forget`: what the contract says of it no longer holds."""
    verdict: tuple[int, bool] | None = None
    """What an operator has seen, and not acted upon yet: the fence, and whether it was executed."""
    broken: str = ""
    """The promise that the last step broke."""


class Step(NamedTuple):
    """What happened, to which request (or NOBODY), and what came of it."""

    text: str
    who: int
    state: State


def put(state: State, who: int, request: Request) -> State:
    """The state with one request changed."""
    requests = state.requests
    return state._replace(requests=(*requests[:who], request, *requests[who + 1 :]))
