"""The event loop of the servers here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of uvloop where it is installed, as in idemproxy; None stands for asyncio's own."""
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - an extra

    return uvloop.new_event_loop
