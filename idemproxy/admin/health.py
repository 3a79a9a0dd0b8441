"""Whether this proxy should get traffic: two flags, and named checks that are run at the probes' asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Check: TypeAlias = Callable[[], Coroutine[Any, Any, str | None]]
"""Returns when all is well, with a line where there is something to say of it; raises with the reason when it is not."""

DEADLINE_SECONDS: Final = 0.8
"""Less than the second that a Kubernetes probe waits by default, so that the reason still arrives."""

FRESH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: `reason`, one line, tells what is wrong, None that nothing is; `note`, what else there is to say."""

    name: str
    reason: str | None
    note: str | None = None

    def __str__(self) -> str:
        if self.reason is not None:
            return f"[-] {self.name}: {self.reason}"
        return f"[+] {self.name} ok" if self.note is None else f"[+] {self.name}: {self.note}"


class Health:
    """What the proxy knows of its fitness: whether it has `started`, whether it is `draining`, and what its checks find.

    Checks run concurrently, each for at most `deadline` seconds. What they found stands for `fresh` seconds, and probes that come
    together share one run, so that probing does not load the store.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        *,
        deadline: float = DEADLINE_SECONDS,
        fresh: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.started = False
        self.draining = False
        self._checks = checks
        self._deadline = deadline
        self._fresh = fresh
        self._clock = clock
        self._running = asyncio.Lock()
        self._findings: list[Finding] = []
        self._stale_at = float("-inf")

    async def findings(self) -> list[Finding]:
        """The flags, read now, and what the checks found; ready is when none has a reason."""
        checked = await self._checked()
        return [
            Finding("startup", None if self.started else "not started yet"),
            Finding("shutdown", "draining" if self.draining else None),
            *checked,
        ]

    async def _checked(self) -> list[Finding]:
        async with self._running:
            if self._clock() >= self._stale_at:
                running = [self._run(name, check) for name, check in self._checks.items()]
                self._findings = await asyncio.gather(*running)
                self._stale_at = self._clock() + self._fresh
            return self._findings

    async def _run(self, name: str, check: Check) -> Finding:
        deadline = asyncio.timeout(self._deadline)
        try:
            async with deadline:
                note = await check()
        except Exception as exc:  # noqa: BLE001 - whatever stops a check is its finding
            if deadline.expired():
                return Finding(name, f"no answer within {self._deadline:g} s")
            return Finding(name, " ".join(str(exc).split()) or type(exc).__name__)
        return Finding(name, None, note)
