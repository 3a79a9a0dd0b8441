"""When a write counts: once enough replicas, or the server's log file, hold it too.

`WAIT` and `WAITAOF` speak of everything that their connection has written before, so one of them behind each batch of commands
confirms all writes of that batch at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from idemproxy.store.redis_script import packed

if TYPE_CHECKING:
    from idemproxy.store.redis_lane import Reply

_LEAST_PATIENCE: Final = 0.02
"""Seconds that replicas have at least, when they have just let one confirmation pass."""
_GENEROUS: Final = 4
"""How many times as long as they used to need they have then."""
_PATIENT_AGAIN: Final = 2.0
"""Seconds after which they have all the time again: they may be there, and slower than they were."""
_FORGETTING: Final = 0.9
"""What remains, with each confirmation, of the longest time that one took."""


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
        milliseconds = max(1, round(seconds * 1000))
        if self.aof:
            return packed(b"WAITAOF", 1, self.replicas, milliseconds)
        return packed(b"WAIT", self.replicas, milliseconds)

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


class Patience:
    """For how long replicas are waited for: less when they have just let one confirmation pass, but for once in a while.

    `timeout` in seconds: what they have usually.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._usual = timeout
        self._has_passed = False
        self._whole_at = -math.inf

    def seconds(self, now: float) -> float:
        """What they have for the question that leaves at the time `now`."""
        if not self._has_passed or now - self._whole_at >= _PATIENT_AGAIN:
            self._whole_at = now
            return self._timeout
        return min(self._timeout, max(_LEAST_PATIENCE, _GENEROUS * self._usual))

    def confirmed(self, took: float) -> None:
        """They answered, after so many seconds."""
        self._usual = max(took, self._usual * _FORGETTING)
        self._has_passed = False

    def passed(self) -> None:
        """They let one pass."""
        self._has_passed = True


def is_among(reply: Reply, words: Sequence[bytes]) -> bool:
    """Whether a script's reply is one of `words`, or begins with one: what was written then, and is to be confirmed."""
    return (reply[0] if isinstance(reply, list) and reply else reply) in words
