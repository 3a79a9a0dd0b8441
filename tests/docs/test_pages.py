"""The documents as they are used: what is generated is current, commands and configurations work, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from docs.generate.command_line import NAMES, told_by
from docs.generate.pages import PARTS, filled_in, parts_of
from idemproxy.config.load import load
from tests.docs.console import as_shown, console, steps
from tests.docs.pages import DOCS, DOCUMENTS, REPOSITORY, anchors, blocks, inline_code, links, named, read

EVERY = [named(path) for path in DOCUMENTS]
WITH_COMMANDS = [name for name in EVERY if blocks(read(name), "console")]
CONFIGURATIONS = [(name, block.line) for name in EVERY for block in blocks(read(name), "yaml")]
TOKEN = "0123456789abcdef"

FILE_NAME = re.compile(r"# (\S+\.(?:yaml|conf|py))\n")
"""The first line of a configuration, of ours or of Redis, or of a program, that a command of its document names."""


@pytest.mark.parametrize("name", [named(path) for path in DOCS])
def test_generated_parts_are_current(name: str) -> None:
    """Each page is as `make docs` would write it from the program as it is now."""
    text = read(name)

    assert filled_in(text) == text


def test_every_generated_part_stands_on_one_page() -> None:
    """Nothing is generated for no page, and nothing stands in two places."""
    assert sorted(PARTS) == sorted(part for path in DOCS for part in parts_of(path.read_text("utf-8")))


def test_every_page_is_in_the_index() -> None:
    """Whoever begins at the index comes to every page."""
    linked = {(REPOSITORY / "docs" / target).resolve() for target in links(read("docs/README.md"))}

    assert [] == [named(path) for path in DOCS if path.name != "README.md" and path not in linked]


@pytest.mark.parametrize("name", EVERY)
def test_links_lead_somewhere(name: str) -> None:
    """Each relative link names a file of the repository, and a heading of it where it names one."""
    broken = []
    for link in links(read(name)):
        url = urlsplit(link)
        if url.scheme:
            continue
        target = (REPOSITORY / name).parent / url.path if url.path else REPOSITORY / name
        found = anchors(target.read_text("utf-8")) if url.fragment and target.is_file() else {url.fragment}
        if not target.exists() or url.fragment not in found:
            broken.append(link)

    assert [] == broken


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


@cache
def _certificate() -> trustme.LeafCert:
    return _authority().issue_cert("localhost")


def _write_certificates(directory: Path) -> None:
    """The files of TLS, under the names that the documents give them."""
    _authority().cert_pem.write_to_path(directory / "ca.crt")
    for name in ("tls", "client"):
        _certificate().cert_chain_pems[0].write_to_path(directory / f"{name}.crt")
        _certificate().private_key_pem.write_to_path(directory / f"{name}.key")


@pytest.mark.parametrize(("name", "line"), CONFIGURATIONS)
def test_configurations_load(name: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration is a whole one, which the real loader takes."""
    monkeypatch.chdir(tmp_path)
    for name_of_secret in ("admin-token", "store-password"):
        (tmp_path / name_of_secret).write_text(TOKEN)
    _write_certificates(tmp_path)
    [text] = [block.text for block in blocks(read(name), "yaml") if block.line == line]
    path = tmp_path / "idemproxy.yaml"
    path.write_text(text, "utf-8")

    assert load({"config": [str(path)]}, {}).settings.routes


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_do_what_the_document_shows(name: str, tmp_path: Path) -> None:
    """Every command is run, in order, in an empty directory, and prints what stands under it; a log is what the proxy says."""
    text = read(name)
    with console(tmp_path) as terminal:
        for block in blocks(text, "yaml", "conf", "python"):
            if (titled := FILE_NAME.match(block.text)) is not None:
                (tmp_path / titled[1]).write_text(terminal.real(block.text), "utf-8")
        for block in blocks(text, "console", "log"):
            if block.language == "log":
                assert terminal.told(block.text), f"{name}:{block.line}: the proxy does not say this"
                continue
            for step in steps(block):
                assert step.shown == as_shown(step.shown, terminal.run(step.command)), f"{name}:{block.line}: {step.command}"


@pytest.mark.parametrize("name", EVERY)
def test_commands_in_the_text_exist(name: str) -> None:
    """A command that the text mentions is one, and each flag that it has there is one of its own."""
    flags = {command: {flag for flag, _, _ in told_by(command).arguments} for command in NAMES}
    unknown = []
    for mentioned in inline_code(read(name)):
        match shlex.split(mentioned) if mentioned.startswith("idemproxy ") else []:
            case ["idemproxy", "COMMAND" | "records"] | ["idemproxy", "COMMAND", *_] | []:
                continue
            case ["idemproxy", command, *rest]:
                whole = f"records {rest[0]}" if command == "records" else command
                given = {word.partition("=")[0] for word in rest if word.startswith("--")}
                if whole not in flags or not given <= flags[whole]:
                    unknown.append(mentioned)

    assert [] == unknown
