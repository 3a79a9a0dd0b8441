"""What the tests of the configuration share: loading text as if it were a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from idemproxy.config.load import Configuration, load
from idemproxy.config.problem import ConfigurationError

Load = Callable[..., Configuration]
Complaints = Callable[..., list[str]]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """Load a file with this text, under these flags and this environment."""

    def load_text(text: str, environ: Mapping[str, str] | None = None, **flags: list[str]) -> Configuration:
        path = tmp_path / "idemproxy.yaml"
        path.write_text(text, "utf-8")
        given = {name.replace("_", "-"): values for name, values in flags.items()}
        return load({"config": [str(path)], **given}, environ or {})

    return load_text


@pytest.fixture
def complaints(tmp_path: Path, loaded: Load) -> Complaints:
    """The problems of a file with this text, with the file's directory left out."""

    def problems(text: str, environ: Mapping[str, str] | None = None, **flags: list[str]) -> list[str]:
        try:
            loaded(text, environ, **flags)
        except ConfigurationError as failure:
            return [str(problem).replace(f"{tmp_path}/", "") for problem in failure.problems]
        return []

    return problems
