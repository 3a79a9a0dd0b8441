"""What operators see of the proxy: of one process, or of several that serve as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from idemproxy.admin.health import Finding, Health
from idemproxy.observe.metrics import Metrics


class Sight(Protocol):
    """What the pages of health and metrics show."""

    async def metrics_page(self) -> tuple[bytes, str]:
        """The page of metrics and its content type."""

    async def findings(self) -> list[Finding]:
        """Ready is when none has a reason."""

    async def silent(self) -> Sequence[str]:
        """What of it lives and does not answer, by name."""

    def has_started(self) -> bool:
        """Whether all of it has; draining changes nothing here."""


@dataclass(frozen=True, slots=True)
class Alone:
    """One process."""

    metrics: Metrics
    health: Health

    async def metrics_page(self) -> tuple[bytes, str]:
        """Rendered in a thread: with many routes it takes tens of milliseconds, for which the loop would serve no one."""
        return await asyncio.to_thread(self.metrics.render)

    async def findings(self) -> list[Finding]:
        """Its own."""
        return await self.health.findings()

    async def silent(self) -> Sequence[str]:
        """That this is asked proves that the loop runs; restarting would not mend a store."""
        return ()

    def has_started(self) -> bool:
        """As its flag says."""
        return self.health.started
