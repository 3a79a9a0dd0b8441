"""What the upstream of the fault suite writes down: a line for everything that happens there, in a file that outlives it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

EFFECT: Final = "effect"
ARRIVED: Final = "arrived"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened to a key: `at` in seconds on the monotonic clock, `attempt` as the client calls it."""

    at: float
    key: str
    attempt: str
    what: str

    def line(self) -> bytes:
        """As it stands in the file."""
        return json.dumps(asdict(self)).encode() + b"\n"


def read_entries(path: Path) -> Iterator[Entry]:
    """Everything that was written down, in order; what a kill has cut short was never told to anybody."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield Entry(**json.loads(line))


def by_key(path: Path) -> dict[str, list[Entry]]:
    """The entries of each key, in order."""
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in read_entries(path):
        found[entry.key].append(entry)
    return found


def resource(key: str, number: int) -> bytes:
    """What effect `number` of a key has made: JSON as short as it can be written, of a length that only the key tells."""
    digest = sha256(key.encode()).hexdigest()
    note = digest * (int(digest[:2], 16) ** 2 // 1024 if digest[2] == "0" else 1)
    return json.dumps({"id": f"{key}.{number}", "note": note}, separators=(",", ":")).encode()
