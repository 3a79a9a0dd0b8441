"""A container engine without a daemon, and images that stand in for a registry's, for machines that reach none.

Debian's packages make two of them, once, into build/deploy: one with Python, under the name of the image that the Dockerfile is
built on, and one with Redis and Prometheus too, under the names that the compose file and the manifests have for them. As in the
image of Python that they stand in for, modules are not compiled. What is in the real ones stays untested.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.deploy.files import REPOSITORY

CACHE: Final = REPOSITORY / "build/deploy"
TOOLS: Final = ("podman", "buildah", "runc", "catatonit", "debootstrap", "iptables")
PACKAGES: Final = "podman buildah runc catatonit debootstrap netavark aardvark-dns iptables"
PYTHON: Final = "docker.io/library/python:3.13-slim-trixie"
REDIS: Final = "docker.io/library/redis:8.2-bookworm"
PROMETHEUS: Final = "docker.io/prom/prometheus:v3.5.0"

_SYSTEM: Final = "ca-certificates,python3,python3-venv,python3-pip"
_AUTHORITIES: Final = Path("etc/ssl/certs/ca-certificates.crt")
_CONF: Final = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{directory}/networks"
"""
_STORAGE: Final = """
[storage]
driver = "vfs"
graphroot = "{directory}/storage"
runroot = "{directory}/run"
"""
_MAKING: Final = 900.0
_SECONDS: Final = 300.0


def missing() -> str | None:
    """Why no container can be run here; None where one can."""
    if os.geteuid() != 0:
        return "containers need root here"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"not installed: {', '.join(lacking)} (apt-get install --no-install-recommends {PACKAGES})" if lacking else None


@dataclass(frozen=True, slots=True)
class Engine:
    """Podman and buildah on a storage of their own, whose place `environment` names."""

    environment: Mapping[str, str]

    def __call__(
        self, *words: str, given: str = "", seconds: float = _SECONDS, directory: Path = REPOSITORY, expects: int | None = 0
    ) -> str:
        """What a command prints on standard output; AssertionError unless it ends with the status that it should."""
        done = subprocess.run(
            words, input=given, cwd=directory, env=self.environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert expects in {None, done.returncode}, f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """What podman knows of a container or an image."""
        [found] = json.loads(self("podman", "inspect", name))
        return dict(found)

    def logs(self, container: str) -> str:
        """What a container has said so far, on both streams."""
        done = subprocess.run(
            ["podman", "logs", container], env=self.environment, capture_output=True, text=True, check=True, timeout=_SECONDS
        )
        return done.stdout + done.stderr

    def load(self, archive: Path, name: str, *changes: str) -> None:
        """Make an image of a file system in an archive."""
        options = [word for change in changes for word in ("--change", change)]
        self("podman", "import", "--quiet", *options, str(archive), name)


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine that knows nothing of the machine's other containers; all that it made goes with it."""
    with tempfile.TemporaryDirectory(prefix="idemproxy-containers-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        (directory / "networks").mkdir()
        (directory / "containers.conf").write_text(_CONF.format(directory=directory))
        (directory / "storage.conf").write_text(_STORAGE.format(directory=directory))
        files = {
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "TMPDIR": name,
        }
        made = Engine({**os.environ, **files})
        try:
            yield made
        finally:
            for words in (
                ("pod", "rm", "--all", "--force"),
                ("rm", "--all", "--force", "--time", "0"),
                ("rmi", "--all", "--force"),
            ):
                made("podman", *words, expects=None)


def load_images(made: Engine) -> None:
    """Give the engine every image that the Dockerfile, the compose file and the manifests name, but the proxy's own."""
    python, servers = _archives()
    path = "ENV PATH=/usr/local/bin:/usr/bin:/bin"
    made.load(python, PYTHON, path, "ENV PIP_CERT=/" + str(_AUTHORITIES))
    made.load(servers, REDIS, path, "WORKDIR /data", "VOLUME /data")
    made.load(servers, PROMETHEUS, path, "USER 65534", "VOLUME /prometheus", 'ENTRYPOINT ["/usr/bin/prometheus"]')


def _archives() -> tuple[Path, Path]:
    """The file systems, made where they are not there yet."""
    python, servers = CACHE / "python.tar", CACHE / "servers.tar"
    if not servers.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="root-", dir=CACHE) as name:
            root = Path(name)
            _run("debootstrap", "--variant=minbase", f"--include={_SYSTEM}", "bookworm", str(root))
            for command in ("python", "pip"):
                (root / "usr/local/bin" / command).symlink_to(f"/usr/bin/{command}3")
            for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
                mark.unlink()
            if (ours := Path("/") / _AUTHORITIES).exists():
                shutil.copy(ours, root / _AUTHORITIES)
            _pack(root, python)
            shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
            (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # no service is started in there
            (root / "usr/sbin/policy-rc.d").chmod(0o755)
            _run("chroot", str(root), "apt-get", "install", "--yes", "--no-install-recommends", "redis-server", "prometheus")
            shutil.rmtree(root / "etc/redis")  # the real image has none, and a volume there would inherit its owner
            for volume in ("data", "prometheus"):  # for whoever runs in it: podman knows no fsGroup
                (root / volume).mkdir()
                (root / volume).chmod(0o777)
            _pack(root, servers)
    return python, servers


def _pack(root: Path, archive: Path) -> None:
    for compiled in root.glob("usr/lib/python3*/**/*.pyc"):
        compiled.unlink()
    partial = archive.with_suffix(".partial")
    _run(
        "tar",
        "--create",
        "--one-file-system",
        "--directory",
        str(root),
        "--file",
        str(partial),
        "--exclude=./var/cache/apt/*",
        ".",
    )
    partial.rename(archive)


def _run(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_MAKING, env=environment)
    assert done.returncode == 0, f"{' '.join(words)}:\n{(done.stdout + done.stderr)[-4000:]}"
