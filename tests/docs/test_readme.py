"""What the README says beside its console blocks, which `test_pages` runs: the make targets, and the table of commands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, urlsplit

import pytest

from tests.docs.console import ADMIN, API, Console, console
from tests.docs.pages import DOCUMENTS, REPOSITORY, inline_code, read

README: Final = read("README.md")
EXAMPLE: Final = REPOSITORY / "config" / "every-key.yaml"
MENTIONED: Final = inline_code(README)

_TARGET = re.compile(r"(?:^(?:\$ )?|`)make ([a-z-]+)\b", re.MULTILINE)
TARGETS: Final = sorted({target for path in DOCUMENTS for target in _TARGET.findall(path.read_text("utf-8"))})


@pytest.fixture(scope="module", name="terminal")
def fixture_terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console in which the sample upstream and the proxy run, as the README starts them."""
    with console(tmp_path_factory.mktemp("readme")) as opened:
        opened.run("make run")
        yield opened


@pytest.mark.parametrize("target", TARGETS)
def test_make_targets_exist(target: str) -> None:
    """Every target that a document names is one of the Makefile, and its commands can be made out."""
    by_hand = {"PATH": os.environ["PATH"]}  # not as part of a make that runs the tests
    made = subprocess.run(["make", "--dry-run", target], cwd=REPOSITORY, env=by_hand, capture_output=True, text=True, check=False)

    assert (0, "") == (made.returncode, made.stderr)


def test_the_two_commands_are_there() -> None:
    """The README names what starts the main job, and what runs the tests."""
    assert {"run", "test"} <= set(_TARGET.findall(README))


@pytest.mark.parametrize("command", [text for text in MENTIONED if text.startswith(("idemproxy ", "curl "))])
def test_commands_in_the_text_work(command: str, terminal: Console) -> None:
    """Each command that stands in a sentence or in the table succeeds; of what `run` would serve, `check` says that it can."""
    printed = terminal.run(command.replace("idemproxy run", "idemproxy check").replace("FILE", str(EXAMPLE)))

    assert "exit status" not in printed


@pytest.mark.parametrize("flags", [text for text in MENTIONED if text.startswith("--")])
def test_flags_in_the_table_work(flags: str, terminal: Console) -> None:
    """Each flag of `run` that the table names makes a configuration that can be run."""
    printed = terminal.run(f"idemproxy check --upstream airline=http://{API} {flags.replace('FILE', str(EXAMPLE))}")

    assert printed.startswith("the configuration is fine")


@pytest.mark.parametrize("path", [urlsplit(text) for text in MENTIONED if re.match(rf"http://{ADMIN}|/[a-z]+z", text)])
def test_pages_of_the_admin_listener_answer(path: SplitResult, terminal: Console) -> None:
    """Each page that the table names answers with 200."""
    printed = terminal.run(f"curl -o /dev/null -w '%{{http_code}}' 'http://{ADMIN}{path.path}?{path.query}'")

    assert "200" == printed
