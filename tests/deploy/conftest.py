"""Programs that may be missing: what needs one is skipped, and says where it comes from."""

from __future__ import annotations

import pytest

from tests.deploy.tools import NotHereError, tool


def _found(name: str) -> str:
    try:
        return tool(name)
    except NotHereError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def helm() -> str:
    """The path of helm."""
    return _found("helm")


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool."""
    return _found("promtool")


@pytest.fixture(scope="session")
def prometheus() -> str:
    """The path of a Prometheus server."""
    return _found("prometheus")
