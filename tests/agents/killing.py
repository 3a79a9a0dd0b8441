"""The agent of the demo, killed (kill -9) at any point of any step, or its proxy, or both; and what came of its trip.

Trips share one upstream and one proxy: each has a workflow and a customer of its own, under one name.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from idemproxy.demo.airline import BOOKINGS
from idemproxy.demo.mail import MAIL
from idemproxy.demo.payments import PAYMENTS
from idemproxy.demo.trip import STEPS
from tests.process.asking import configuration
from tests.processes import DemoApi, Program, demo_api

Victim: TypeAlias = Literal["agent", "proxy", "both"]
Point: TypeAlias = Literal["before", "during", "after"]
Way: TypeAlias = Literal["state-machine", "replay"]

VICTIMS: Final[Sequence[Victim]] = ("agent", "proxy", "both")
POINTS: Final[Sequence[Point]] = ("before", "during", "after")
WAYS: Final[Sequence[Way]] = ("state-machine", "replay")
PATIENCE: Final = 45.0
"""Seconds until a program that says nothing is given up."""


@dataclass(frozen=True, slots=True)
class Case:
    """Who is killed, where, and how the agent goes on."""

    victim: Victim
    step: int
    point: Point
    way: Way

    def __str__(self) -> str:
        return f"{self.victim}-{self.step}-{self.point}-{self.way}"


def matrix(victim: Victim) -> list[Case]:
    """Every point of every step, for both ways."""
    return [Case(victim, step, point, way) for step, point, way in product(range(1, len(STEPS) + 1), POINTS, WAYS)]


def spread(victim: Victim, steps: Sequence[int]) -> list[Case]:
    """A case for each step, with the points and ways in turn: six steps in a row have all pairs of these."""
    return [Case(victim, step, POINTS[step % 3], WAYS[step % 2]) for step in steps]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trip: the effects in order, and the agent's outputs, with names that are the same in every trip."""

    effects: list[dict[str, Any]]
    outputs: dict[str, Any]


class Agent:
    """A life of the agent."""

    def __init__(self, url: str, name: str, way: Way, halt: str | None = None) -> None:
        halted = () if halt is None else ("--halt", halt)
        command = [sys.executable, "-m", "idemproxy.demo.agent", "--api", url, "--customer", name, "--workflow", name]
        self._halt = halt
        self._process = subprocess.Popen(
            [*command, "--resume", way, *halted],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told: list[dict[str, Any]] = []

    def until_halted(self) -> None:
        """Return when it stands at its point."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told.append(json.loads(line))
            if self.told[-1] == {"halts": self._halt}:
                return
        raise AssertionError(f"the agent ended before {self._halt}: {self._told_last()}")

    def go_on(self) -> None:
        """Let it go on from its point, and do not wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()
        self._process.communicate()

    def finish(self) -> tuple[int, str]:
        """Let it go on to its end; its exit status, and what it said of a failure."""
        out, errors = self._process.communicate("go on\n", PATIENCE)
        self.told += [json.loads(line) for line in out.splitlines()]
        return self._process.returncode, errors

    def outputs(self) -> dict[str, Any]:
        """Let it go on to its end, which is a good one; what its steps gave."""
        status, errors = self.finish()
        assert (0, "") == (status, errors)
        outputs: dict[str, Any] = self.told[-1]["done"]
        return outputs

    def how(self, step: int) -> str:
        """What the proxy said of a step."""
        (how,) = [told["how"] for told in self.told if told.get("step") == step]
        assert isinstance(how, str)
        return how

    def _told_last(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()


class Stage:
    """An upstream with its ledger, and a proxy in front of it that can be killed and started again in its place."""

    def __init__(self, api: DemoApi, directory: Path, store: str) -> None:
        self.api = api
        self._directory = directory
        self._arguments = configuration(directory, probing(api.url, store))
        self.proxy = self._started("127.0.0.1:0")
        self._control = HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)

    def _started(self, listen: str, *program: str) -> Program:
        places = ("--listen", listen, "--admin-listen", "127.0.0.1:0", "--spool", str(self._directory / "spool"))
        return Program(*(program or ("idemproxy",)), "run", *self._arguments, *places, "--access-log", "off", awaits=2)

    def restart(self) -> None:
        """Start a proxy at the address, on the store and on the spool of the one that was killed."""
        self.proxy = self._started(f"127.0.0.1:{self.proxy.port}")

    def wait_days(self, days: int) -> None:
        """Stop the proxy, and start it again after so many days; for a store that is a file."""
        self.proxy.stop()
        self.proxy = self._started("127.0.0.1:0", "tests.agents.days_later", str(days))

    def close(self) -> None:
        """End what was started."""
        self._control.close()
        self.proxy.stop()

    def agent(self, name: str, way: Way, halt: str | None = None) -> Agent:
        """Start an agent on its trip, or on with it."""
        return Agent(self.proxy.url, name, way, halt)

    def until_held(self, name: str) -> None:
        """Return when the upstream has done what it was asked, and holds its answer back."""
        self._ask("GET", f"/holds/{name}")

    def let_go(self, name: str) -> None:
        """Let the upstream hold no answer back."""
        self._ask("DELETE", f"/holds/{name}")

    def effects(self, name: str) -> list[dict[str, Any]]:
        """What has come to pass for a customer."""
        found: list[dict[str, Any]] = json.loads(self._ask("GET", f"/ledger?customer={name}"))["effects"]
        return found

    def outcome(self, name: str, outputs: dict[str, Any]) -> Outcome:
        """What came of a trip."""
        effects = self.effects(name)
        text = json.dumps([[{"kind": each["kind"], **each["resource"]} for each in effects], outputs]).replace(name, "ann")
        counts: Counter[str] = Counter()
        for effect in effects:
            counts[effect["kind"]] += 1
            text = re.sub(rf"\b{effect['id']}\b", f"{effect['kind']} {counts[effect['kind']]}", text)
        return Outcome(*json.loads(text))

    def _ask(self, method: str, path: str) -> bytes:
        self._control.request(method, path)
        return self._control.getresponse().read()


def probing(api: str, store: str) -> dict[str, object]:
    """Settings with which an outcome that is unknown is found out, without a person: what is made keeps the key that made it."""
    return {
        "upstreams": {"api": {"url": api}},
        "store": {"url": store},
        "routes": [
            *(
                {
                    "name": write.path,
                    "match": {"path": f"/{write.path}", "methods": ["POST"]},
                    "upstream": "api",
                    "stamp": {"json": "/reference"},
                    "on_unknown": "probe",
                    "probe": {
                        "get": f"/{write.path}?reference={{key}}",
                        "found": f'"{write.path}"[0]',
                        "absent": f'length("{write.path}") == `0`',
                        "settle": "5s",
                        "answer": {"status": 201},
                    },
                }
                for write in (*PAYMENTS, *BOOKINGS, *MAIL)
            ),
            {"name": "rest", "upstream": "api"},
        ],
    }


@contextmanager
def stage(directory: Path, store: str | None = None) -> Iterator[Stage]:
    """A stage that goes with the context."""
    with demo_api() as api, closing(Stage(api, directory, store or f"sqlite:///{directory}/records.db")) as opened:
        yield opened


def unharmed(on: Stage) -> Outcome:
    """What comes of a trip that nothing happens to."""
    name = new_name()
    return on.outcome(name, on.agent(name, "replay").outputs())


def killed(on: Stage, case: Case) -> Outcome:
    """What comes of a trip on which somebody is killed, and started again."""
    name = new_name()
    agent = on.agent(name, case.way, f"{case.step}:{case.point}")
    agent.until_halted()
    if case.point == "during":
        on.until_held(name)
    if case.victim != "proxy":
        agent.kill()
    if case.victim != "agent":
        on.proxy.kill()
        on.restart()
    if case.victim != "proxy":
        agent = on.agent(name, case.way)
    if case.victim == "agent":
        on.let_go(name)  # the proxy that still lives waits for this answer
    outputs = agent.outputs()
    on.let_go(name)
    if case.victim != "agent" and case.point == "during" and STEPS[case.step - 1].effect:
        assert agent.how(case.step) == "recovered"  # nobody had the answer: the upstream was asked
    return on.outcome(name, outputs)


def new_name() -> str:
    """A workflow and a customer of a trip's own."""
    return f"trip-{uuid.uuid4().hex}"
