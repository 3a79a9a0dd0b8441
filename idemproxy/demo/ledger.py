"""What the sample upstream did, in order: one effect for every write that it carried out.

With a file, each effect is one JSON line that has left the process before the write is answered, so that an upstream
killed at any moment still knows what it did. One process at a time may use a file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson


class DamagedLedgerError(Exception):
    """A complete line of the file is not an effect: somebody else wrote to it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that happened at `at` (UTC, ISO 8601); `seq` counts from 1 over all kinds."""

    seq: int
    at: str
    kind: str
    id: str
    idempotency_key: str | None
    """The header's value as received: noted, never acted upon."""
    request_digest: str
    """SHA-256 of the request's body, in hexadecimal."""
    resource: dict[str, Any]
    """What the write made, as it was answered."""


class Ledger:
    """The effects in order, in memory and, with a `path`, in a file that outlives the process."""

    def __init__(self, path: Path | None = None) -> None:
        """Load the file, made when absent; OSError, DamagedLedgerError."""
        self.effects: list[Effect] = []
        self._resources: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._file = None
        if path is not None:
            content = path.read_bytes() if path.exists() else b""
            # Only a kill in the middle of a write leaves a last line without its end; that effect was never answered.
            whole = content[: content.rfind(b"\n") + 1]
            try:
                for line in whole.splitlines():
                    self._remember(Effect(**orjson.loads(line)))
            except (orjson.JSONDecodeError, TypeError) as problem:
                raise DamagedLedgerError(f"{path} holds a line that is not an effect: {problem}") from problem
            self._file = path.open("ab", buffering=0)
            self._file.truncate(len(whole))

    def append(self, kind: str, prefix: str, key: str | None, digest: str, fields: dict[str, Any]) -> Effect:
        """Make an effect of `kind` happen; its resource is `fields` and an id: `prefix`, then a number per kind."""
        at, resource_id = datetime.now(UTC).isoformat(), f"{prefix}_{len(self._resources[kind]) + 1}"
        effect = Effect(len(self.effects) + 1, at, kind, resource_id, key, digest, {"id": resource_id, **fields})
        if self._file is not None:
            # Unbuffered, to the kernel: this outlives the process. Power loss is not what this sample is for.
            self._file.write(orjson.dumps(effect, option=orjson.OPT_APPEND_NEWLINE))
        self._remember(effect)
        return effect

    def _remember(self, effect: Effect) -> None:
        self.effects.append(effect)
        self._resources[effect.kind].append(effect.resource)

    def resources(self, kind: str) -> list[dict[str, Any]]:
        """Every resource of `kind`, oldest first."""
        return list(self._resources[kind])

    def summary(self, wanted: Mapping[str, str]) -> dict[str, Any]:
        """Every effect that `fits`, and how many there are by kind, and by idempotency key for those that came with one."""
        effects = [effect for effect in self.effects if fits(effect.resource, wanted)]
        return {
            "effects": effects,
            "by_kind": Counter(effect.kind for effect in effects),
            "by_key": Counter(effect.idempotency_key for effect in effects if effect.idempotency_key is not None),
        }

    def clear(self) -> None:
        """Forget every effect, in the file too; ids and `seq` start again at 1."""
        self.effects.clear()
        self._resources.clear()
        if self._file is not None:
            self._file.truncate(0)


def fits(resource: Mapping[str, object], wanted: Mapping[str, str]) -> bool:
    """Whether the fields of a resource, written as text, are as wanted."""
    return all(str(resource.get(name)) == value for name, value in wanted.items())
