"""The first process of a container, to which the kernel gives no signal that it has no handler for."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.servers import free_port
from tests.topologies import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace of its own takes root")


def test_a_sigterm_while_it_starts_ends_it(tmp_path: Path) -> None:
    """As process 1 it ends with 0 as soon as its program has begun, and does not first start to serve."""
    run = [sys.executable, "-m", "idemproxy", "run", "--upstream", f"http://127.0.0.1:{free_port()}"]
    run += ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *run], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
    ) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")

        def ended() -> bool:
            with suppress(OSError):  # its end comes between the two
                for child in map(int, children.read_text().split()):
                    os.kill(child, SIGTERM)
            return parent.poll() is not None

        until(ended, "it does not end")
        assert parent.stderr is not None
        said = parent.stderr.read()

    assert (0, b"") == (parent.returncode, said)
