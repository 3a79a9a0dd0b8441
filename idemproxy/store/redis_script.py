"""The Lua scripts, ready to be sent: each transition is one."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, TypeAlias

from hiredis import pack_command

_LUA: Final = files("idemproxy.store") / "lua"

Part: TypeAlias = bytes | str | int
"""Of a command: bytes, or what becomes text."""


def packed(*parts: Part) -> bytes:
    """A command as the server reads it: an array of bulk strings (RESP)."""
    command: bytes = pack_command(parts)  # type: ignore[arg-type]  # its stub takes a tuple of one only
    return command


class Script:
    """One file of `lua/`, with the prelude in front of it; `keys` is how many the file says it takes.

    `repeatable`: a second run is answered as the first was, so that it may be asked again when the reply was lost.
    `writes`: the replies, or the first words of replies, that tell of a write without which an operation could happen twice.
    """

    __slots__ = ("_begins", "keys", "load", "name", "repeatable", "writes")

    def __init__(self, name: str, keys: int, *, repeatable: bool = True, writes: tuple[bytes, ...] = ()) -> None:
        source = b"\n".join((_LUA / f"{part}.lua").read_bytes() for part in ("prelude", name))
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        self.name = name
        self.keys = keys
        self.repeatable = repeatable
        self.writes = writes
        self.load = packed(b"SCRIPT", b"LOAD", source)
        """The command that makes the server know this script."""
        self._begins = (b"EVALSHA", digest, b"%d" % keys)

    def call(self, *parts: Part) -> bytes:
        """The command that runs this script with `parts`: its keys, then its arguments."""
        command: bytes = pack_command(self._begins + parts)  # type: ignore[arg-type]  # as above
        return command


OPEN: Final = Script("open", keys=1, writes=(b"made",))
CHECK: Final = Script("check", keys=1, writes=(b"written",))
CLAIM: Final = Script("claim", keys=3, writes=(b"granted",))
RENEW: Final = Script("renew", keys=1, writes=(b"renewed",))
COMPLETE: Final = Script("complete", keys=2, writes=(b"written", b"rewritten"))
RELEASE: Final = Script("release", keys=2)
MARK_UNKNOWN: Final = Script("mark_unknown", keys=2)
READ: Final = Script("read", keys=2)
RESOLVE: Final = Script("resolve", keys=3, repeatable=False)
FORGET: Final = Script("forget", keys=3, repeatable=False)
NOTE: Final = Script("note", keys=1, writes=(b"noted",))
SAVE: Final = Script("save", keys=1, writes=(b"saved",))
JOURNAL: Final = Script("journal", keys=1)

ALL: Final = (OPEN, CHECK, CLAIM, RENEW, COMPLETE, RELEASE, MARK_UNKNOWN, READ, RESOLVE, FORGET, NOTE, SAVE, JOURNAL)
