"""The signals that a run is told by, whether they reach the process or its supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from functools import partial

from idemproxy.listening import ShownCertificate
from idemproxy.observe.metrics import Metrics

_log = logging.getLogger("idemproxy")


class Signals:
    """SIGTERM and SIGINT: the first asks for an end, the second does not wait for it. SIGHUP, the terminal's end, is none.

    A worker gets them from its supervisor, by the descriptor `orders`: one that reaches all processes, such as that of Ctrl-C, is
    then only one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, certificate: ShownCertificate | None, metrics: Metrics, orders: int | None
    ) -> None:
        self._arrived = asyncio.Queue[int]()
        self._hang_up = partial(_hang_up, certificate, metrics)
        if orders is not None:
            loop.add_reader(orders, self._ordered, loop, orders)
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._arrived.put_nowait, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _ordered(self, loop: asyncio.AbstractEventLoop, orders: int) -> None:
        ordered = os.read(orders, 64)
        if not ordered:
            _log.warning("the supervisor has died, and so this worker ends")
            loop.remove_reader(orders)
            ordered = bytes((signal.SIGTERM,))
        for number in ordered:
            if number == signal.SIGHUP:
                self._hang_up()
            else:
                self._arrived.put_nowait(number)

    async def first(self) -> None:
        """Return when the run is to end."""
        await self._arrived.get()

    async def second(self) -> None:
        """Return when it is to end at once."""
        await self._arrived.get()


def _hang_up(certificate: ShownCertificate | None, metrics: Metrics) -> None:
    """Do what can be done without a restart, and say what cannot."""
    if certificate is None:
        _log.warning("SIGHUP: a changed configuration needs a restart")
    else:
        metrics.reloaded(taken=certificate.read_again())
