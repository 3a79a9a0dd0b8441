"""Nothing is left out of the reference: every setting, command, flag, metric, slug, outcome and result has its row there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import pytest

from idemproxy.admin.refusal import CAUSES
from idemproxy.cli import COMMANDS, main
from idemproxy.cli_records import VERBS
from idemproxy.core.problem import KINDS, Kind
from idemproxy.core.transition import Settled
from idemproxy.observe.access_log import log_line
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.observation import Observation, Outcome, Result
from tests.docs.pages import DOCUMENTS, inline_code, read, rows, section

SCHEMA: Final[Mapping[str, Any]] = json.loads(read("config/schema.json"))
METRICS: Final = re.findall(r"^# TYPE (idemproxy_\w+)", Metrics(["charges"], "sqlite").render()[0].decode(), re.MULTILINE)
COMMAND_NAMES: Final = [*(name for name in COMMANDS), *(f"records {verb}" for verb in VERBS), "demo", "demo-api"]


def settings(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The path of every key that the committed JSON Schema knows."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", ()):
        yield from settings(choice, path)
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}".removeprefix(".")
        yield here
        yield from settings(inner, here)
    if "items" in schema:
        yield from settings(schema["items"], f"{path}[]")
    if isinstance(inner := schema.get("additionalProperties"), dict):
        yield from settings(inner, f"{path}.NAME")


def told(text: str) -> dict[str, list[str]]:
    """The rows of a document by their first cell, code in it or not; only those of which no cell is empty."""
    return {row[0].strip("`"): row[1:] for row in rows(text) if all(row)}


def test_every_setting_has_a_row() -> None:
    """Each key of the JSON Schema stands in the reference with its value, its default and its meaning, and no other does."""
    keys = [row[0].strip("`") for row in rows(read("docs/reference/settings.md")) if row[0] != "key" and all(row)]

    assert sorted(settings(SCHEMA)) == sorted(keys)


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_every_flag_has_a_row(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each flag in the usage of a command stands in its section."""
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    documented = {argument.split()[0] for argument in told(section(read("docs/reference/command-line.md"), f"### `{command}`"))}

    assert set(re.findall(r"--[a-z-]+", usage)) == {argument for argument in documented if argument.startswith("--")}


def test_every_command_has_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command that `idemproxy --help` lists has a heading, those of `records` each their own."""
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = set(re.findall(r"^    ([a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    headings = re.findall(r"^### `(.+)`$", read("docs/reference/command-line.md"), re.MULTILINE)

    assert sorted(headings) == sorted({*(listed - {"records"}), *(f"records {verb}" for verb in VERBS)})


def test_every_metric_has_a_row() -> None:
    """Each metric of /metrics stands in the reference, and no other does."""
    documented = [name for name in told(read("docs/reference/metrics.md")) if name.startswith("idemproxy_")]

    assert sorted(METRICS) == sorted(documented)


def test_metrics_in_the_text_exist() -> None:
    """What a document calls a metric, as in an expression for an alert, is one."""
    mentioned = {
        name
        for path in DOCUMENTS
        for code in inline_code(path.read_text("utf-8"))
        for name in re.findall(r"\bidemproxy_\w+", code)
    }

    assert set() == mentioned - set(METRICS)


@pytest.mark.parametrize("heading", ["## Of the proxy", "## Of the admin listener"])
def test_every_problem_has_a_row(heading: str) -> None:
    """Each slug stands in the reference with its status, and with what it says of `executed` and `retry`."""
    kinds: Mapping[str, Mapping[Any, Kind]] = {"## Of the proxy": KINDS, "## Of the admin listener": CAUSES}
    documented = told(section(read("docs/reference/problems.md"), heading))
    documented.pop("type")

    assert {slug: (str(kind.status), f"`{kind.executed}`", f"`{kind.retry}`") for slug, kind in kinds[heading].items()} == {
        slug: (cells[0].partition(",")[0], *cells[1:3]) for slug, cells in documented.items()
    }


@pytest.mark.parametrize(
    ("name", "heading"), [("docs/reference/headers.md", "### `Idempotency-Status`"), ("README.md", "## What a client sees")]
)
def test_every_outcome_has_a_row(name: str, heading: str) -> None:
    """Each value of Idempotency-Status has a meaning in the reference and in the README; `read` and `own` are none."""
    documented = told(section(read(name), heading))

    assert set() == {*Outcome} - {Outcome.READ, Outcome.OWN} - documented.keys()


def test_every_result_has_a_row() -> None:
    """Each result of an attempt and of a settlement has a meaning, and so has each outcome that is no header's."""
    documented = told(read("docs/reference/metrics.md"))

    assert set() == {*Result, *Settled, Outcome.READ, Outcome.OWN} - documented.keys()


def test_every_member_of_the_access_log_has_a_row() -> None:
    """A line with everything in it holds no member that is not documented, and none is documented that is not there."""
    whole = Observation(
        "charges", "POST", "/charges", 201, Outcome.EXECUTED, 0.1, 1, 1,
        result=Result.ANSWERED, attempt_seconds=0.1, waited=0.1, slug=next(iter(KINDS)), scope="shared", upstream="payments",
        key_hash="00", fence=1, request_id="r-1", unrecorded=True,
    )  # fmt: skip
    documented = [re.findall(r"`(\w+)`", row[0]) for row in rows(section(read("docs/how-to/watch-it.md"), "## Access log"))]

    assert sorted(json.loads(log_line(whole, 0.0))) == sorted(chain.from_iterable(documented))
