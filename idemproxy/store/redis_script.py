"""The Lua scripts, ready to be sent: each transition is one, and what never changes of its command is encoded once."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

_LUA: Final = files("idemproxy.store") / "lua"


_BULK: Final = b"$%d\r\n%b\r\n"


def packed(*parts: bytes) -> bytes:
    """A command as the server reads it: an array of bulk strings (RESP)."""
    return b"*%d\r\n" % len(parts) + b"".join([_BULK % (len(part), part) for part in parts])


class Script:
    """One file of `lua/`, with the prelude in front of it; `keys` and `arguments` are how many the file says it takes.

    `repeatable`: a second run is answered as the first was, so that it may be asked again when the reply was lost.
    `writes`: the replies, or the first words of replies, that tell of a write without which an operation could happen twice.
    """

    __slots__ = ("_form", "keys", "load", "name", "repeatable", "writes")

    def __init__(self, name: str, keys: int, arguments: int, *, repeatable: bool = True, writes: tuple[bytes, ...] = ()) -> None:
        source = b"\n".join((_LUA / f"{part}.lua").read_bytes() for part in ("prelude", name))
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        self.name = name
        self.keys = keys
        self.repeatable = repeatable
        self.writes = writes
        self.load = packed(b"SCRIPT", b"LOAD", source)
        """The command that makes the server know this script."""
        constant = b"".join([_BULK % (len(part), part) for part in (b"EVALSHA", digest, b"%d" % keys)])
        self._form = b"*%d\r\n" % (3 + keys + arguments) + constant + _BULK * (keys + arguments)

    def call(self, *parts: bytes) -> bytes:
        """The command that runs this script with `parts`: its keys, then its arguments."""
        sized: list[int | bytes] = []
        for part in parts:
            sized += (len(part), part)
        return self._form % tuple(sized)


OPEN: Final = Script("open", keys=1, arguments=1, writes=(b"made",))
CHECK: Final = Script("check", keys=1, arguments=0, writes=(b"written",))
CLAIM: Final = Script("claim", keys=3, arguments=9, writes=(b"granted",))
RENEW: Final = Script("renew", keys=1, arguments=3, writes=(b"renewed",))
COMPLETE: Final = Script("complete", keys=2, arguments=12, writes=(b"written", b"rewritten"))
RELEASE: Final = Script("release", keys=2, arguments=3)
MARK_UNKNOWN: Final = Script("mark_unknown", keys=2, arguments=12)
READ: Final = Script("read", keys=2, arguments=1)
RESOLVE: Final = Script("resolve", keys=3, arguments=12, repeatable=False)
FORGET: Final = Script("forget", keys=3, arguments=5, repeatable=False)
NOTE: Final = Script("note", keys=1, arguments=3, writes=(b"noted",))
SAVE: Final = Script("save", keys=1, arguments=3, writes=(b"saved",))
JOURNAL: Final = Script("journal", keys=1, arguments=0)

ALL: Final = (OPEN, CHECK, CLAIM, RENEW, COMPLETE, RELEASE, MARK_UNKNOWN, READ, RESOLVE, FORGET, NOTE, SAVE, JOURNAL)
