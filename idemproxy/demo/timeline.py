"""What the demo shows: a line for each stretch of steps that went the same way, and the two ledgers side by side.

On a terminal there is colour, unless NO_COLOR is set (https://no-color.org), and the step that is being done; elsewhere there is
plain text.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from idemproxy.demo.trip import STEPS

BOLD, GREEN, RED = "1", "32", "31"

_DONE: Final = {"executed": "made", "written": "made", "replayed": "replayed", "recovered": "recovered"}
"""What is said of a step's effect; reads go with those before them."""
_COLOURS: Final = {"replayed": GREEN, "recovered": GREEN}
_LABEL: Final = 16


class OutputLostError(Exception):
    """What is shown cannot be written; `failure` says why."""

    def __init__(self, failure: OSError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Timeline:
    """Writes to `out` what an agent tells; step number `kill_at` has a line of its own. Its methods raise OutputLostError."""

    def __init__(self, out: TextIO, kill_at: int) -> None:
        self._out = out
        self._kill_at = kill_at
        self._is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._has_colour = self._is_terminal and not os.environ.get("NO_COLOR")
        self._made: Counter[int] = Counter()
        self._stretch: list[dict[str, Any]] = []

    def heading(self, text: str) -> None:
        """Begin a part, with an agent that has done nothing yet."""
        self._made.clear()
        self.say("")
        self.say(self.painted(text, BOLD))

    def say(self, text: str) -> None:
        """Write a line."""
        self._write("\r\x1b[K" * self._is_terminal + f"{text}\n")

    def event(self, label: str, text: str, colour: str | None = None) -> None:
        """Write a line of the timeline."""
        self.end_of_stretch()
        self.say(f"  {label:{_LABEL}}{self.painted(text, colour)}")

    def step(self, told: dict[str, Any]) -> None:
        """A step has been done; it goes into the line of those before it, if it went the same way."""
        if self._is_terminal:
            self._write(f"\r\x1b[K  step {told['step']:2}: {STEPS[told['step'] - 1].action}")
        before = self._stretch[-1] if self._stretch else told
        is_other = "read" not in {before["how"], told["how"]} and before["how"] != told["how"]
        if is_other or self._kill_at in {before["step"], told["step"]}:
            self.end_of_stretch()
        self._stretch.append(told)

    def end_of_stretch(self) -> None:
        """Write the line of the steps that went the same way."""
        stretch, self._stretch = self._stretch, []
        if not stretch:
            return
        numbers = [told["step"] for told in stretch]
        label = f"step  {numbers[0]:2}" if len(numbers) == 1 else f"steps {numbers[0]:2} to {numbers[-1]:2}"
        written = [told for told in stretch if told["how"] in _DONE]
        ids = ", ".join(told["output"]["id"] for told in written)
        how = written[0]["how"] if written else "read"
        text, colour = f"{_DONE[how]} {ids}" if written else "only read", _COLOURS.get(how)
        if numbers == [self._kill_at]:
            text = f"{STEPS[self._kill_at - 1].action}: {text}"
            if self._made[self._kill_at] and how in {"executed", "written"}:
                text, colour = f"{text}, a second time", RED
        self._made.update(told["step"] for told in written)
        self.say(f"  {label:{_LABEL}}{self.painted(text, colour)}")

    def ledgers(self, without: Sequence[Mapping[str, Any]], with_: Sequence[Mapping[str, Any]]) -> None:
        """Write how often each effect came to pass, without and with the proxy."""
        self.heading("What has come to pass at the API       without   with idemproxy")
        counts = [Counter(effect["kind"] for effect in effects) for effects in (without, with_)]
        for number, step in enumerate(STEPS, 1):
            if step.effect is not None:
                texts = [self.painted(f"{count[step.effect]:5}", None if count[step.effect] == 1 else RED) for count in counts]
                self.say(f"  step {number:2}  {step.action:28}{texts[0]}{texts[1]:>12}".rstrip())

    def painted(self, text: str, colour: str | None) -> str:
        """The text in a colour, where there are colours."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self._has_colour and colour else text

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as failure:
            raise OutputLostError(failure) from failure
