"""Visiting every state, breadth first, so that the first history that breaks a promise is a shortest one."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from tests.model.rules import NAMES, Rules
from tests.model.setting import Setting
from tests.model.state import NOBODY, State
from tests.model.world import World


@dataclass(frozen=True, slots=True)
class Explored:
    """What a run has seen. `whole`: it came to the end of all histories, and not to the bound of its depth."""

    setting: Setting
    states: int
    steps: int
    depth: int
    seconds: float
    whole: bool
    broken: str = ""
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The run in a line, and the history that broke a promise, where one did, in lines below."""
        end = "to the end" if self.whole else f"to depth {self.depth}"
        line = f"{self.setting.name}: {self.states} states, {self.steps} steps, {end}, {self.seconds:.1f} s"
        if not self.broken:
            return line
        return "\n".join((line, f"  broken: {self.broken}", *(f"  {each}" for each in self.history)))


def explore(setting: Setting) -> Explored:
    """Visit all states of a setting to its depth, or to the first broken promise."""
    gc.disable()  # millions of tuples, and no cycle among them: to look for one takes half of the time
    try:
        return _explore(setting)
    finally:
        gc.enable()


def _explore(setting: Setting) -> Explored:
    started = perf_counter()
    world = World(setting)
    first = world.first()
    came_from: dict[State, tuple[State, str, int] | None] = {first: None}
    level, depth, steps = [first], 0, 0
    while level and depth < setting.depth:
        depth += 1
        following = []
        for state in level:
            for text, who, after in world.steps(state):
                steps += 1
                if after in came_from:
                    continue
                came_from[after] = state, text, who
                if after.broken:
                    seen = len(came_from), steps, depth, perf_counter() - started
                    return Explored(
                        setting, *seen, whole=False, broken=after.broken, history=_history(world.rules, came_from, after)
                    )
                following.append(after)
        level = following
    return Explored(setting, len(came_from), steps, depth, perf_counter() - started, whole=not level)


_HEAD: Final = f"{'tick':4} {'who':3} {'what happens':<76} {'the store then':<26} effects"


def _history(rules: Rules, came_from: dict[State, tuple[State, str, int] | None], last: State) -> tuple[str, ...]:
    lines: list[str] = []
    state = last
    while (origin := came_from[state]) is not None:
        before, text, who = origin
        name = "-" if who == NOBODY else NAMES[who]
        lines.append(f"{state.tick:4} {name:3} {text:<76} {_stored(rules, state):<26} {state.effects}")
        state = before
    return (_HEAD, *reversed(lines))


def _stored(rules: Rules, state: State) -> str:
    record = rules.records[state.record]
    return "-" if record is None else f"{record.phase.value} {record.fence} {record.owner}"
