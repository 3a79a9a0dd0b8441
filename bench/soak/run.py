"""A soak from its start to its end: programs, traffic, pauses and samples."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

from bench.machine import Cores
from bench.soak.client import Address
from bench.soak.samples import Sample, Watched
from bench.soak.traffic import LIMITS, Traffic
from bench.soak.verdict import Growth, growths, held
from bench.stage import Stage, answers_ok, free_port, listens

_PAUSE: Final = 40.0
"""Seconds in which all that was under way must have ended: attempts take some seconds at most, and connections are kept for 2."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Times in seconds; `rate` is pieces of traffic a second, `growth` how many MiB more of memory there may be."""

    seconds: float = 600.0
    first: float = 60.0
    """Until the first pause."""
    every: float = 10.0
    rate: float = 60.0
    growth: float = 5.0
    share: float = 0.05
    """Of its memory, by which a process may grow, if that is less."""
    store: str = "sqlite"
    tls: bool = False
    seed: int = 17


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it; `faults` is empty when all is well."""

    samples: list[Sample]
    growths: list[Growth]
    kinds: Counter[str]
    faults: list[str]


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a run stands on."""

    watched: Watched
    address: Address


async def soak(plan: Plan, directory: Path, tell: Callable[[Sample], None]) -> Report:
    """Carry out a plan; `tell` hears of each sample as it comes. Raises MissingError and NotStartedError."""
    with closing(Stage(directory, Cores.of_this_machine())) as stage:
        ground = _start(plan, stage)
        traffic = Traffic(ground.address, plan.rate, plan.seed)
        series = _Series(ground.watched, traffic, tell)
        await series.look(quiet=True)
        for seconds in (plan.first, plan.seconds - plan.first):
            await _flow(series, traffic, seconds, plan.every)
            await _pause(series)
        complaints = [line for line in stage.last_words("idemproxy").splitlines() if line.startswith("ERROR")]
    samples = series.samples[1:]  # the first one is from before anything was loaded
    found = growths(samples)
    faults = [f"memory: {each}" for each in found if each.exceeds(plan.growth, plan.share)]
    return Report(series.samples, found, traffic.done.kinds, [*faults, *held(samples), *complaints, *traffic.done.faults])


class _Series:
    """Samples, on a clock that began with the run."""

    def __init__(self, watched: Watched, traffic: Traffic, tell: Callable[[Sample], None]) -> None:
        self.watched = watched
        self.samples: list[Sample] = []
        self._traffic = traffic
        self._tell = tell
        self._began = time.monotonic()

    async def look(self, *, quiet: bool = False, keep: bool = True) -> Sample:
        """Take a sample."""
        done = self._traffic.done.kinds.total()
        sample = await self.watched.sample(time.monotonic() - self._began, done, quiet=quiet)
        if keep:
            self.samples.append(sample)
            self._tell(sample)
        return sample


async def _flow(series: _Series, traffic: Traffic, seconds: float, every: float) -> None:
    """Let traffic flow, and look at regular times."""
    flowing = asyncio.create_task(traffic.run(seconds))
    while not (await asyncio.wait({flowing}, timeout=every))[0]:
        await series.look()
    await flowing


async def _pause(series: _Series) -> None:
    """Wait until nothing is under way, as long as that may take, and look."""
    deadline = time.monotonic() + _PAUSE
    before: Sample | None = None
    while time.monotonic() < deadline:
        now = await series.look(quiet=True, keep=False)
        is_idle = not (now.clients or now.upstreams or now.attempts)
        if is_idle and before is not None and (now.tasks, now.fds) == (before.tasks, before.fds):
            break
        before = now
        await asyncio.sleep(1.0)
    await series.look(quiet=True)


def _start(plan: Plan, stage: Stage) -> _Ground:
    everywhere = stage.cores.server | stage.cores.load | stage.cores.support
    port, admin, upstream, nowhere = free_port(), free_port(), free_port(), free_port()
    stage.start_python(
        "upstream", "bench.soak.upstream", str(upstream), cores=everywhere, is_ready=lambda: listens(upstream)
    )  # fmt: skip
    settings = _settings(upstream, nowhere) | {
        "listen": f"127.0.0.1:{port}",
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "store": {
            "url": f"redis://127.0.0.1:{stage.redis[0]}/0"
            if plan.store == "redis"
            else f"sqlite:///{stage.directory / 'records.db'}"
        },
        "spool": {"directory": str(stage.directory / "spool")},
    }
    context = None
    if plan.tls:
        context, settings["tls"] = _certified(stage.directory)
    configuration, told = stage.directory / "idemproxy.yaml", stage.directory / "told"
    configuration.write_text(json.dumps(settings))  # which YAML takes as it is
    pid = stage.start_python(
        "idemproxy", "bench.soak.proxy", str(told), "30", "run", "--config", str(configuration),
        cores=everywhere, is_ready=lambda: answers_ok(f"http://127.0.0.1:{admin}/readyz"),
    )  # fmt: skip
    return _Ground(Watched(pid, port, admin, frozenset({upstream, nowhere}), told), Address(port, context))


def _settings(upstream: int, nowhere: int) -> dict[str, object]:
    """Records that live shortly, and by Host an upstream that answers, one that is given little time, and one that is not."""
    url = f"http://127.0.0.1:{upstream}"
    hasty = {"connect": "1s", "first_byte": "1s", "idle": "1s", "total": "15s"}
    return {
        "upstreams": {
            "api": {"url": url, "pool_idle": "2s"},
            "hasty": {"url": url, "pool_idle": "2s", "timeouts": hasty},
            "nowhere": {"url": f"http://127.0.0.1:{nowhere}"},
        },
        "defaults": {"retention": "20s", "expired_mark": "30s", **{name: f"{limit}B" for name, limit in LIMITS.items()}},
        "routes": [
            {"name": "hasty", "match": {"host": "hasty.test"}, "upstream": "hasty"},
            {"name": "nowhere", "match": {"host": "nowhere.test"}, "upstream": "nowhere"},
            {"name": "required", "match": {"path": "/required/**"}, "upstream": "api", "key": "required"},
            {"name": "api", "match": {"path": "/api/**"}, "upstream": "api"},
        ],
    }


def _certified(directory: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """What clients trust, and the listener's setting `tls`."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(directory / "certificate.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context, {"certificate_file": "certificate.pem", "key_file": "key.pem"}
