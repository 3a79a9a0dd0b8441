"""The wire tests in every combination of sockets and event loops, one after the other, and a table of what came of it.

    python -m tests.wire.matrix [arguments of pytest]

Exit code 1 when a test failed in any of them, or none was run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.processes import scratch
from tests.wire.combination import ALL

ROW = "{:<20} {:>7} {:>7} {:>8} {:>8}"


def main(arguments: Sequence[str]) -> int:
    """Run them all; the exit code."""
    with scratch() as directory:
        rows = [(name, *_run(name, directory / f"{name}.xml", arguments)) for name in ALL]
    table = [("combination", "passed", "failed", "skipped", "seconds"), *((*row, f"{seconds:.1f}") for *row, seconds in rows)]
    print("\n".join(ROW.format(*row) for row in table))  # noqa: T201 - the command's result
    return 0 if all(passed and not failed for _, passed, failed, *_ in rows) else 1


def _run(name: str, report: Path, arguments: Sequence[str]) -> tuple[int, int, int, float]:
    """One combination: how many tests passed, failed, and were skipped, and for how many seconds it ran."""
    print(f"== {name}", flush=True)  # noqa: T201 - so that it is known what the lines that follow are about
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "tests/wire", "--wire", name, "--quiet", f"--junit-xml={report}", *arguments]
    # Its end is waited for in any case, since it ends the programs that it has started. Ctrl-C it hears itself.
    with subprocess.Popen(command) as process:
        try:
            process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise
        except SystemExit:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    seconds = time.monotonic() - started
    if not report.exists():
        return 0, 1, 0, seconds
    suite = ET.parse(report).getroot()[0]  # noqa: S314 - written by ourselves
    tests, skipped, *bad = (int(suite.get(kind, 0)) for kind in ("tests", "skipped", "failures", "errors"))
    return tests - skipped - sum(bad), sum(bad), skipped, seconds


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
