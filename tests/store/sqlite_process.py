"""A process with a SQLite store: takes commands on standard input, one a line, and answers each with one line.

Run as `python -m tests.store.sqlite_process FILE STEP`. The process believes that its wall clock was set forward by STEP seconds.
A command is a word and a key; the answer is a word, or the error's text.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from dataclasses import replace

from idemproxy.core.record import MICROSECONDS, Identity
from idemproxy.core.transition import Granted, Hold
from idemproxy.store.base import StoreError
from idemproxy.store.base_host import host_clock
from idemproxy.store.sqlite import SqliteStore
from tests.store.steps import ask, completion, identity


class Commands:
    """What the process can be told to do, and the holds that it was granted."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._holds: dict[Identity, Hold] = {}

    async def carry_out(self, command: str, word: str) -> str:
        """One command; its answer."""
        of = identity(word)
        match command:
            case "claim":
                result = await self._store.claim(of, ask())
                if isinstance(result, Granted):
                    self._holds[of] = result.hold
                    return "granted"
                return result.record.phase
            case "await":
                with self._store.watch(of) as wake:
                    result = await self._store.claim(of, ask(), watched=True)
                    say("watching")
                    await wake.wait(3600)
                return await self.carry_out("claim", word)
            case "fence":
                return str(self._holds[of].fence)
            case "release":
                return await self._store.release(of, self._holds[of])
            case "complete":
                return await self._store.complete(of, self._holds[of], completion(b"x" * 20_000))
            case "limit":
                resource.setrlimit(resource.RLIMIT_FSIZE, (int(word), resource.RLIM_INFINITY))
                return "limited"
        raise AssertionError(command)


def say(line: str) -> None:
    """Answer."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main() -> None:
    """Serve until standard input ends."""
    host, step = host_clock(), int(sys.argv[2]) * MICROSECONDS
    store = SqliteStore(sys.argv[1], clock=replace(host, wall=lambda: host.wall() + step))
    await store.start()
    commands = Commands(store)
    say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, word = line.split()
        try:
            say(await commands.carry_out(command, word))
        except StoreError as error:
            say(str(error))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
