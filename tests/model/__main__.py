"""`python -m tests.model --depth N`: the model as the suite explores it, or deeper."""

from __future__ import annotations

import argparse
import sys

from tests.model.explore import explore
from tests.model.setting import DEPTH, OPEN_WINDOW, SHORT_WINDOW, UNGUARDED, guarded


def main() -> int:
    """Explore every setting, print what was seen, and return 1 when a promise is broken with all guards, or kept without one."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--depth", type=int, default=DEPTH, help="steps of a history with three requests (%(default)s)")
    parser.add_argument("--only", default="", help="only the settings whose name contains this")
    options = parser.parse_args()
    expected = {**dict.fromkeys((*guarded(options.depth), SHORT_WINDOW), False), **dict.fromkeys((OPEN_WINDOW, *UNGUARDED), True)}
    wrong = 0
    for setting, breaks in expected.items():
        if options.only in setting.name:
            explored = explore(setting)
            print(explored, flush=True)  # noqa: T201 - the command's result
            wrong += bool(explored.broken) is not breaks
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
