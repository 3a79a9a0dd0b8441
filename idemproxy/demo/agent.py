"""The agent of the demo, a process that may die at any moment: `python -m idemproxy.demo.agent`.

It goes through the steps of `trip`, and tells each on standard output, a JSON object in a line:

    {"step": 12, "how": "executed", "output": {...}}    how: executed, replayed, recovered; loaded: from what was saved;
                                                         read, or written, where there is no proxy that would say more
    {"halts": "12:during"}                               it stands at the point that it was told, waiting to be killed
    {"done": {...}}                                      the outputs of all steps, by their names

It can work in three ways. Alone, as agents do today, it keeps what it has in a file, written after every step. With the proxy
in front of the API it either loads its checkpoint from there and goes on, or it starts from the beginning with the same calls.
Exit status: 0 when all is done, 1 when it cannot go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from idemproxy.agent import MemoryChangedError, Workflow
from idemproxy.demo.calling import Caller, CallError, patiently
from idemproxy.demo.trip import STEPS

if TYPE_CHECKING:
    from idemproxy.demo.trip import Outputs


class Memory(Protocol):
    """Where the agent keeps what it has."""

    def load(self) -> Outputs:
        """What the steps gave that are known to be done."""

    def save(self, outputs: Outputs) -> None:
        """Keep what the steps have given so far."""


class File:
    """A file of the agent's own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Outputs:
        """What was saved last."""
        outputs: Outputs = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        return outputs

    def save(self, outputs: Outputs) -> None:
        """Put a new file in the place of the old one, so that there is always a whole one."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(outputs), "utf-8")
        new.replace(self._path)


class Checkpoint:
    """The proxy's: the steps that it has seen completed, and a memory for what it has not seen."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow

    def load(self) -> Outputs:
        """What was saved, and what was answered to the steps since then."""
        checkpoint = patiently(self._workflow.checkpoint)
        if checkpoint is None:
            return {}
        outputs: Outputs = dict(checkpoint.memory or {})
        for number, step in enumerate(STEPS, 1):
            completed = checkpoint.completed(str(number))
            if completed is not None and completed.output is not None:
                outputs[step.name] = completed.output
        return outputs

    def save(self, outputs: Outputs) -> None:
        """Keep the outputs, the reads' among them; where another agent was faster, what it has is kept, too."""
        while True:
            try:
                patiently(partial(self._workflow.save_memory, outputs))
            except MemoryChangedError:
                outputs = {**self.load(), **outputs}
            else:
                return


class Nothing:
    """No memory: everything is asked again, and what was done is answered again."""

    def load(self) -> Outputs:
        """Nothing."""
        return {}

    def save(self, outputs: Outputs) -> None:
        """Do nothing."""


def main() -> int:
    """Go through the steps as the process's arguments say; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m idemproxy.demo.agent", description="Rebook a cancelled flight in twenty steps."
    )
    parser.add_argument("--api", required=True, metavar="URL", help="the sample API, or the proxy in front of it")
    parser.add_argument("--customer", default="ann", metavar="NAME")
    alone = parser.add_mutually_exclusive_group(required=True)
    alone.add_argument("--file", type=Path, help="work without the proxy, and keep what was done there")
    alone.add_argument("--workflow", metavar="ID", help="work with the proxy, under this name")
    parser.add_argument("--resume", choices=("state-machine", "replay"), default="replay", help="how to go on, with the proxy")
    about = (
        "stop there, to be killed: before its call, during it, or after it but before anything is saved; a line on stdin: go on"
    )
    parser.add_argument("--halt", metavar="STEP:before|during|after", help=about)
    given = parser.parse_args()
    workflow = None if given.workflow is None else Workflow(given.workflow, proxy=given.api)
    memory: Memory = Nothing()
    if workflow is None:
        memory = File(given.file)
    elif given.resume == "state-machine":
        memory = Checkpoint(workflow)
    try:
        _work(Caller(given.api, is_safe=workflow is not None), given.customer, workflow, memory, given.halt)
    except CallError as failure:
        sys.stderr.write(f"agent: {failure}\n")
        return 1
    return 0


def _work(caller: Caller, customer: str, workflow: Workflow | None, memory: Memory, halt: str | None) -> None:
    outputs = memory.load()
    for number, step in enumerate(STEPS, 1):
        if step.name in outputs:
            _tell(step=number, how="loaded", output=outputs[step.name])
            continue
        _halt(halt, f"{number}:before")
        call = step.call(customer, outputs)
        fields = workflow.named_step(str(number), action=step.action) if workflow and step.effect else {}
        is_held = halt == f"{number}:during"
        if is_held:
            _tell(halts=halt)
        output, told = caller.call(call, fields, f"hold_after={customer}" if is_held else None)
        outputs[step.name] = output
        _tell(step=number, how=told or ("read" if step.effect is None else "written"), output=output)
        _halt(halt, f"{number}:after")
        memory.save(outputs)
    _tell(done=outputs)


def _halt(halt: str | None, here: str) -> None:
    """Wait at the point that was asked for; end when whoever started this is gone."""
    if halt == here:
        _tell(halts=here)
        if not sys.stdin.readline():
            sys.exit(1)


def _tell(**members: Any) -> None:  # noqa: ANN401 - JSON
    sys.stdout.write(json.dumps(members) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
