"""idemproxy, which can be asked for what only it knows: `python -m bench.soak.proxy TOLD HEAD_SECONDS run ...`.

On SIGUSR1 it adds a line to the file TOLD: the number of its event loop's tasks and of objects that Python's collector tracks.
On SIGUSR2 it first collects, and gives free memory back to the system: what is resident then is what is held. HEAD_SECONDS, for
which there is no setting, is how long a client may take for a head.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from idemproxy import cli
from idemproxy.proxy import listener
from idemproxy.server.connection import Server
from idemproxy.server.framing import ClientLimits


def _tell(told: Path, number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGUSR2:
        gc.collect()
    tasks, objects = len(asyncio.all_tasks()), len(gc.get_objects())
    if number == signal.SIGUSR2 and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # of the C library, unless that is musl
    with told.open("a") as file:
        file.write(f"{tasks} {objects}\n")


def main(told: str, head_seconds: str, *arguments: str) -> int:
    """Run idemproxy with these arguments."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, partial(_tell, Path(told)))
    limits = ClientLimits(head_seconds=float(head_seconds))
    listener.Server = partial(Server, limits=limits)  # type: ignore[attr-defined, assignment]  # the only place where it is made
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
