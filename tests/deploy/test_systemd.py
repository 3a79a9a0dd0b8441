"""The unit as systemd itself reads it. Whether it runs is tried where systemd is the init process, which is not here."""

from __future__ import annotations

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Final

import pytest

from idemproxy.config.load import load
from idemproxy.workers import PATIENCE
from tests.deploy.files import SYSTEMD

UNIT: Final = SYSTEMD / "idemproxy.service"
TEXT: Final = UNIT.read_text("utf-8")

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def analysed(*words: str) -> tuple[int, str]:
    """The exit status of systemd-analyze, and what it says."""
    done = subprocess.run(["systemd-analyze", "--no-pager", *words], capture_output=True, text=True, check=False, timeout=30)
    return done.returncode, done.stdout + done.stderr


@needs_systemd
def test_unit_is_understood(tmp_path: Path) -> None:
    """Systemd knows every line of the unit; the program need not be installed here."""
    unit = tmp_path / UNIT.name
    unit.write_text(TEXT.replace("/opt/idemproxy/bin/idemproxy", "/bin/true"))

    assert (0, "") == analysed("verify", "--recursive-errors=no", str(unit))


@needs_systemd
def test_unit_is_confined() -> None:
    """Systemd's own measure of what a broken-in service could do, from 0 to 10, is below 1.5."""
    status, said = analysed("security", "--offline=true", "--threshold=15", str(UNIT))

    assert 0 == status, said


def test_drain_ends_before_the_kill(tmp_path: Path) -> None:
    """The example configuration is a whole one, and the unit gives the proxy longer than its `drain`, also with workers."""
    (tmp_path / "admin-token").write_text("0123456789abcdef")
    drain = load({"config": [str(SYSTEMD / "idemproxy.yaml")]}, {"CREDENTIALS_DIRECTORY": str(tmp_path)}).settings.drain
    unit = ConfigParser(strict=False, interpolation=None, comment_prefixes="#")
    unit.read_string(TEXT)

    assert unit.getint("Service", "TimeoutStopSec") > drain + PATIENCE
