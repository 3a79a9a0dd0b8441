"""idemproxy with one SQLite transaction for each store operation: `python -m bench.naive_sqlite run ...`, as `idemproxy run`.

The same code in all else, so that the difference is what the group commit is worth.
"""

from __future__ import annotations

import sys

from idemproxy import cli
from idemproxy.store import sqlite
from idemproxy.store.sqlite_writer import Work, Writer


class LonelyWriter(Writer):
    """A writer that never takes a second step into a transaction."""

    def _carry_out(self, batch: list[Work], *, alone: bool = False) -> None:  # noqa: ARG002 -- each is
        for work in batch:
            super()._carry_out([work], alone=True)


if __name__ == "__main__":
    sqlite.Writer = LonelyWriter  # type: ignore[attr-defined]  # the store has no reason to let others choose its writer
    sys.exit(cli.main())
