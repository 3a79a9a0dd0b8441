"""Every command with its flags, as `--help` tells of them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Final

from docs.generate.markdown import code, listed, table
from idemproxy.cli import COMMANDS, main
from idemproxy.cli_records import VERBS
from idemproxy.config.load import FLAGS

NAMES: Final = (*COMMANDS, *(f"records {verb}" for verb in VERBS), "demo", "demo-api")

_READ_BY_LOAD: Final = frozenset({"config", "upstream", *FLAGS})
_CONFIGURED: Final = frozenset({"run", "check", "doctor", "print-config"})

_FLAG: Final = re.compile(r"  (?P<flag>--[a-z-]+)(?: (?P<value>\S.*?))?(?:  +|\n +)(?P<about>\S.*)")
_POSITIONAL: Final = re.compile(r"  (?P<flag>[A-Z]+)(?P<value>)(?:  +|\n +)(?P<about>\S.*)")
_VARIABLE: Final = re.compile(r"IDEMPROXY_[A-Z_]+")


@dataclass(frozen=True, slots=True)
class Told:
    """What `--help` says of one command: its usage and its sentence, and (flag, value, meaning) of each argument."""

    usage: str
    about: str
    arguments: list[tuple[str, str, str]]


def commands() -> str:
    """A section for each command."""
    return "\n".join(map(_section, NAMES))


def _section(name: str) -> str:
    told = told_by(name)
    rows = [[code(f"{flag} {value}".strip()), _variables(name, flag, about), about] for flag, value, about in told.arguments]
    arguments = f"\n{table(('argument', 'variable', 'meaning'), rows)}" if rows else ""
    return f"### {code(name)}\n\n{told.about}\n{arguments}"


def told_by(name: str) -> Told:
    """What `idemproxy NAME --help` prints, read back, in an environment without settings of ours."""
    printed = io.StringIO()
    with _environment(COLUMNS="1000", NO_COLOR="1"), redirect_stdout(printed), suppress(SystemExit):
        main([*name.split(), "--help"])
    usage, about, *groups = printed.getvalue().split("\n\n")
    arguments = [
        (found["flag"], found["value"] or "", found["about"])
        for group in groups
        for pattern in (_POSITIONAL, _FLAG)
        for found in pattern.finditer(group)
    ]
    return Told(usage, about, arguments)


def _variables(name: str, flag: str, about: str) -> str:
    """The variables of the environment that are read where the flag is not given."""
    bare = flag.removeprefix("--")
    if name in _CONFIGURED and bare in _READ_BY_LOAD:
        return code(f"IDEMPROXY_{bare.replace('-', '_').upper()}")
    return listed(_VARIABLE.findall(about))


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """These variables, and no others, for as long as the context lasts."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
