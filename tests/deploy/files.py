"""The files under deploy/ as the tests read them, and what holds for every container in them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from idemproxy.config.load import load
from idemproxy.config.settings import Settings

REPOSITORY: Final = Path(__file__).parents[2]
COMPOSE: Final = REPOSITORY / "deploy/compose"
KUBERNETES: Final = REPOSITORY / "deploy/kubernetes"
SYSTEMD: Final = REPOSITORY / "deploy/systemd"
SECRETS: Final = "/run/secrets/idemproxy"
MAKING_SECRETS: Final = "secrets.sh"

_VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")


def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


@cache
def manifests() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Every object under deploy/kubernetes, by file, kind and name, with the Secrets that its script makes."""
    files = {path.name: documents(path) for path in sorted(KUBERNETES.glob("*.yaml")) if path.name != "kustomization.yaml"}
    files[MAKING_SECRETS] = list(yaml.safe_load_all(secrets()))
    return {(file, each["kind"], each["metadata"]["name"]): each for file, found in files.items() for each in found}


def secrets() -> str:
    """What the script that makes the Secrets prints; each time with other values."""
    command = ["sh", str(KUBERNETES / MAKING_SECRETS)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def manifest(file: str, kind: str, name: str) -> dict[str, Any]:
    """One of them."""
    return manifests()[file, kind, name]


def pods() -> dict[str, dict[str, Any]]:
    """The specification of every Pod that a manifest makes, by its file."""
    return {
        file: found["spec"]["template"]["spec"]
        for (file, _, _), found in manifests().items()
        if "template" in found.get("spec", {})
    }


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Those of a Pod, sidecars first."""
    yield from (*pod.get("initContainers", ()), *pod["containers"])


def variables(text: str) -> dict[str, str]:
    """The variables of a compose file, each with its default."""
    return dict(_VARIABLE.findall(text))


def settings_of_config_map(directory: Path) -> Settings:
    """What the real loader makes of the ConfigMap's configuration, with the Secret's values in files below `directory`."""
    for name, value in manifest(MAKING_SECRETS, "Secret", "idemproxy")["stringData"].items():
        (directory / name).write_text(value)
    text = manifest("idemproxy.yaml", "ConfigMap", "idemproxy-config")["data"]["idemproxy.yaml"]
    path = directory / "idemproxy.yaml"
    path.write_text(text.replace(SECRETS, str(directory)))
    return load({"config": [str(path)]}, {}).settings
