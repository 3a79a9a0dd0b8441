"""One shop for all tests of a worker: each buys as a customer of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.shop import Shop, open_shop


@pytest.fixture(scope="session")
def shop() -> Iterator[Shop]:
    """The sample upstream, and a proxy before it."""
    with open_shop() as opened:
        yield opened
