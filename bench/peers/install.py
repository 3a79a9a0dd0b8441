"""How peers come here: Debian packages unpacked, Python environments, node_modules; each made once, under build/peers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.stage import MissingError, found_in_path

CACHE: Final = Path(__file__).parents[2] / "build" / "peers"
_PATIENCE: Final = 180.0
"""Seconds for one command."""


def debian(name: str, packages: Sequence[str]) -> Path:
    """The root of a tree with these packages and nothing that they depend on. Raises MissingError."""
    apt, dpkg = found_in_path("apt-get"), found_in_path("dpkg")

    def fill(place: Path) -> None:
        _run([apt, "download", "-qq", "-o", "APT::Sandbox::User=root", *packages], place)
        for package in sorted(place.glob("*.deb")):
            _run([dpkg, "-x", str(package), str(place)], place)
            package.unlink()

    return _once(name, packages, fill)


def python(name: str, packages: Sequence[str]) -> Path:
    """The interpreter of an environment with these packages. Raises MissingError."""

    def fill(place: Path) -> None:
        _run([sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, str(place / "environment")], place)
        interpreter = str(place / "environment" / "bin" / "python")
        _run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", interpreter, *packages], place)

    return _once(name, packages, fill) / "environment" / "bin" / "python"


def node(name: str, packages: Sequence[str], program: Path) -> tuple[str, Path]:
    """Where node is, and a copy of `program` that stands where it finds these packages. Raises MissingError."""
    runtime, npm = found_in_path("node"), found_in_path("npm")

    def fill(place: Path) -> None:
        words = ["install", "--prefix", str(place), "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0"]
        _run([npm, *words, "--no-package-lock", *packages], place)

    place = _once(name, packages, fill)
    return runtime, Path(shutil.copy(program, place))


def _once(name: str, packages: Sequence[str], fill: Callable[[Path], None]) -> Path:
    """A directory that `fill` has filled for exactly these packages; one that was left half-filled is filled anew."""
    place, wanted = CACHE / name, "\n".join(packages)
    stamp = place / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        fill(place)
        stamp.write_text(wanted)
    return place


def _run(words: Sequence[str], place: Path) -> None:
    try:
        done = subprocess.run(
            words, cwd=place, check=False, capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise MissingError(f"not installed: {exc}") from exc
    if done.returncode:
        raise MissingError(f"not installed: {(done.stderr or done.stdout).strip()[-500:]}")
