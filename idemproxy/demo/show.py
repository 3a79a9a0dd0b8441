"""`idemproxy demo`: an agent is killed right after it has charged a card, and started again; without the proxy, and with it.

Everything runs on this machine, on free ports, and is gone afterwards; only `--store` names something that stays.
Exit status: 0 when with the proxy each effect came to pass exactly once, 1 when not, or when a program did not start.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import Any, Final

from idemproxy.demo.programs import ProgramError, effects, life, serving
from idemproxy.demo.timeline import GREEN, RED, Timeline
from idemproxy.demo.trip import EFFECTS, STEPS

ABOUT: Final = "Show an agent that is killed and started again, without the proxy and with it."

_KNOWS: Final = {"file": "its file has", "state-machine": "it asks idemproxy, which has"}
_CHARGE: Final = next(number for number, step in enumerate(STEPS, 1) if step.name == "charge")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--kill-at`, `--resume` and `--store` on `parser`."""
    about = "after which step the agent is killed (default: %(default)s, the charge)"
    parser.add_argument("--kill-at", type=_step, default=_CHARGE, metavar="STEP", help=about)
    about = "how the agent goes on: from its checkpoint, or from the beginning (default: %(default)s)"
    parser.add_argument("--resume", choices=("state-machine", "replay"), default="replay", help=about)
    parser.add_argument("--store", metavar="URL", help="redis://host:6379/0 or sqlite:///file.db (default: a temporary file)")


def main(arguments: argparse.Namespace) -> int:
    """Show it as the parsed `arguments` say; the exit status. Raises OutputLostError."""
    # Ended by these, the demo would leave its programs behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        return _show(arguments.kill_at, arguments.resume, arguments.store)
    except ProgramError as failure:
        sys.stderr.write(f"demo: {failure}\n")
        return 1


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _show(kill_at: int, resume: str, store: str | None) -> int:
    began, timeline = time.monotonic(), Timeline(sys.stdout, kill_at)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-demo-")))
        api = stack.enter_context(serving(directory / "api.log", "idemproxy.demo", "--listen", "127.0.0.1:0"))()
        places = ("--store", store or f"sqlite:///{directory}/records.db", "--spool", str(directory / "spool"))
        listening = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--access-log", "off")
        proxy = serving(directory / "proxy.log", "idemproxy", "run", "--upstream", api, *listening, *places)
        proxy_url = stack.enter_context(proxy)  # starts while the first half is shown
        if store is not None:
            proxy_url()  # what is wrong with it is told before anything is shown
        timeline.say(f"An agent rebooks a cancelled flight in {len(STEPS)} steps; {len(EFFECTS)} of them have an effect.")
        timeline.say(f"It is killed right after step {kill_at} ({STEPS[kill_at - 1].action}), and started again.")

        timeline.heading("Without idemproxy")
        _lives(timeline, kill_at, "file", "--api", api, "--file", str(directory / "agent.json"))
        without = effects(api)
        timeline.heading("With idemproxy between the agent and the API")
        # A name that nobody has used: a store that stays knows those of earlier demos.
        workflow = ("--workflow", f"trip-{secrets.token_hex(8)}", "--resume", resume)
        _lives(timeline, kill_at, resume, "--api", proxy_url(), *workflow)
        with_ = effects(api)

    timeline.ledgers(without, with_)
    return sum_up(timeline, without, with_, time.monotonic() - began)


def _lives(timeline: Timeline, kill_at: int, resume: str, *arguments: str) -> None:
    """An agent works until it is killed, and its next life to the end."""
    with closing(life(f"{kill_at}:after", *arguments)) as lines:
        for told in lines:
            timeline.step(told)
    timeline.event("killed", "kill -9, before the agent could save what it was answered", RED)
    known, is_new = 0, True
    with closing(life(None, *arguments)) as lines:
        for told in lines:
            if told.get("how") == "loaded":
                known = told["step"]
                continue
            if is_new:
                timeline.event("started again", _begins(resume, known))
                is_new = False
            if "step" in told:
                timeline.step(told)
    timeline.end_of_stretch()


def _begins(resume: str, known: int) -> str:
    """With what a new life begins: the steps up to `known`."""
    if resume == "replay":
        return "it knows nothing, and sends the same calls again"
    steps = "nothing" if known == 0 else "step 1" if known == 1 else f"steps 1 to {known}"
    return f"{_KNOWS[resume]} {steps}"


def sum_up(timeline: Timeline, without: list[dict[str, Any]], with_: list[dict[str, Any]], seconds: float) -> int:
    """Say what the two ledgers come to; the exit status."""
    paid = [sum(effect["resource"]["amount"] for effect in found if effect["kind"] == "charge") for found in (without, with_)]
    timeline.say("")
    timeline.say(f"The card was charged {paid[0] / 100:.2f} usd without idemproxy, and {paid[1] / 100:.2f} usd with it.")
    is_exact = Counter(effect["kind"] for effect in with_) == Counter(EFFECTS)
    words = f"exactly one effect for each of {len(EFFECTS)} steps" if is_exact else "NOT exactly one effect for each step"
    timeline.say(timeline.painted(f"With idemproxy: {words}.", GREEN if is_exact else RED))
    timeline.say(f"This took {seconds:.1f} s.")
    return 0 if is_exact else 1


def _step(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= len(STEPS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a step: 1 to {len(STEPS)}")
    return int(text)
