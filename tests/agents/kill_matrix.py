"""The kill matrix in its long form: `python -m tests.agents.kill_matrix`, or `make kill-matrix`.

Agent, proxy, or both are killed (kill -9) before, during and after each step, for both ways to resume, and a table is printed as
it fills. Exit status: 0 when every trip ended like one that nothing happened to.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable

from idemproxy.demo.trip import STEPS
from tests.agents.killing import POINTS, VICTIMS, WAYS, Case, Outcome, Stage, killed, matrix, stage, unharmed
from tests.processes import scratch


def main() -> int:
    """Run what the process's arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.agents.kill_matrix", description="Kill at every point of every step.")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS, help="default: all")
    parser.add_argument("--store", metavar="URL", help="default: a temporary file")
    given = parser.parse_args()
    with scratch() as directory, stage(directory, given.store) as on:
        expected = unharmed(on)
        wrong = [line for victim in given.victims for line in _table(on, expected, victim)]
    for line in wrong:
        _say(f"{line}\n")
    return 1 if wrong else 0


def _table(on: Stage, expected: Outcome, victim: str) -> Iterable[str]:
    """Kill one at every point, and write a row for each step; what went wrong, a line for each case."""
    columns = [f"{point} {way}" for point in POINTS for way in WAYS]
    began = time.monotonic()
    _say(f"killed: {victim}\n{'step':32}{'  '.join(columns)}")
    wrong = []
    for case in matrix(next(each for each in VICTIMS if each == victim)):
        column = f"{case.point} {case.way}"
        if column == columns[0]:
            _say(f"\n{case.step:4}  {STEPS[case.step - 1].action[:24]:26}")
        problem = _problem(on, expected, case)
        if problem:
            wrong.append(f"{case}: {problem}")
        _say(f"{'no' if problem else 'ok':{len(column) + 2}}")
    _say(f"\n{len(matrix('agent'))} cases, {len(wrong)} wrong, {time.monotonic() - began:.0f} s\n\n")
    return wrong


def _problem(on: Stage, expected: Outcome, case: Case) -> str | None:
    """What is wrong with what came of a case, None where nothing is."""
    try:
        outcome = killed(on, case)
    except AssertionError as failure:
        return str(failure)
    kinds = [effect["kind"] for effect in outcome.effects]
    if outcome.effects != expected.effects:
        return f"the effects are {kinds}"
    return None if outcome.outputs == expected.outputs else f"the agent ended with {outcome.outputs}"


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
