"""A proxy of a module's own whose access log and metrics are read: what it tells of a request, and not only what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.process.asking import eventually
from tests.processes import Program, scratch
from tests.wire.combination import wired
from tests.wire.conftest import Records


@dataclass(frozen=True)
class Watched:
    """A running proxy. `log` is where its access log goes, `records` what is in its store."""

    program: Program
    log: Path
    records: Records

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.program.port

    def lines(self) -> list[dict[str, Any]]:
        """The access log as far as it is written."""
        return [json.loads(line) for line in self.log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def told(self, path: str, count: int = 1) -> list[dict[str, Any]]:
        """The lines of the requests for a path, when there are `count`."""
        eventually(lambda: len(self._of(path)) >= count)
        return self._of(path)

    def _of(self, path: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["path"] == path]


@contextmanager
def watched(settings: Mapping[str, object]) -> Iterator[Watched]:
    """A proxy with these settings and a SQLite file of its own, ended with the context."""
    with scratch() as directory:
        file, log = directory / "records.db", directory / "log"
        with wired({**settings, "store": {"url": f"sqlite:///{file}"}}, log=log) as program:
            yield Watched(program, log, Records(file))
