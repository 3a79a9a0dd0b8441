"""`python -m tests.model --depth N`: the model as the suite explores it, or deeper."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from tests.model.explore import explore
from tests.model.setting import ALL_GUARDED, UNGUARDED


def main() -> int:
    """Explore every setting, print what was seen, and return 1 when a promise is broken with all guards, or kept without one."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--depth", type=int, help="how many steps a history may have")
    parser.add_argument("--only", default="", help="only the settings whose name contains this")
    options = parser.parse_args()
    wrong = 0
    for setting in (*ALL_GUARDED, *UNGUARDED):
        if options.only in setting.name:
            explored = explore(setting if options.depth is None else replace(setting, depth=options.depth))
            print(explored, flush=True)  # noqa: T201 - the command's result
            wrong += bool(explored.broken) is (setting.without is None)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
