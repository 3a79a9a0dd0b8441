"""The proxy on a machine whose clocks are ahead: `python -m tests.agents.days_later DAYS run ...`, for stores that are files."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

from idemproxy import cli
from idemproxy.core.record import MICROSECONDS
from idemproxy.store import choice
from idemproxy.store.base_host import HostClock, host_clock

_DAY: Final = 24 * 60 * 60 * MICROSECONDS


def later(days: int) -> HostClock:
    """The clocks of this machine in so many days, in which it was not started anew."""
    host = host_clock()
    return replace(host, wall=lambda: host.wall() + days * _DAY, elapsed=lambda: host.elapsed() + days * _DAY)


if __name__ == "__main__":
    days, *arguments = sys.argv[1:]
    vars(choice)["host_clock"] = lambda: later(int(days))
    sys.exit(cli.main(arguments))
