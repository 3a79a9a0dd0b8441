"""When a write counts: once enough replicas, or the server's log file, hold it too.

`WAIT` and `WAITAOF` speak of everything that their connection has written before, so one of them behind each batch of commands
confirms all writes of that batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from idemproxy.store.redis_script import packed

if TYPE_CHECKING:
    from idemproxy.store.redis_lane import Reply


@dataclass(frozen=True, slots=True)
class Durability:
    """What is asked of a write: `replicas` that have it, with `aof` on disk there and on the server itself (Redis 7.2, Valkey).

    `timeout` in seconds: how long that may take.
    """

    replicas: int = 0
    aof: bool = False
    timeout: float = 0.5

    @property
    def is_asked(self) -> bool:
        """Whether anything is: without, a write counts as soon as the server has it."""
        return self.aof or self.replicas > 0

    def command(self, seconds: float) -> bytes:
        """Asks how many hold what was written so far, as soon as enough do, or when so much time is over."""
        milliseconds = b"%d" % max(1, round(seconds * 1000))
        if self.aof:
            return packed(b"WAITAOF", b"1", b"%d" % self.replicas, milliseconds)
        return packed(b"WAIT", b"%d" % self.replicas, milliseconds)

    def lacks(self, reply: Reply) -> str | None:
        """What is missing by the reply to `command`; None when the writes count."""
        match reply:
            case int(replicas):
                local = 1
            case [int(local), int(replicas)]:
                pass
            case _:
                return f"the server's reply makes no sense: {reply!r}"
        lacking = []
        if self.aof and local < 1:
            lacking.append("the server has not written it to its log file")
        if replicas < self.replicas:
            lacking.append(f"{replicas} of {self.replicas} replicas have it")
        return f"{' and '.join(lacking)}" if lacking else None


AS_CONFIGURED: Final = Durability()
"""Nothing is asked: what the server has acknowledged is as durable as it is configured to be."""


def is_among(reply: Reply, words: Sequence[bytes]) -> bool:
    """Whether a script's reply is one of `words`, or begins with one: what was written then, and is to be confirmed."""
    return (reply[0] if isinstance(reply, list) and reply else reply) in words
