"""What the helper is tested with: a real proxy whose scope is a tenant, before the sample upstream."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import DemoApi, Program, demo_api, proxy


@pytest.fixture(scope="package")
def api() -> Iterator[DemoApi]:
    """The sample upstream, which charges again on every call."""
    with demo_api() as running:
        yield running


@pytest.fixture(scope="package")
def program(api: DemoApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The proxy before it."""
    directory: Path = tmp_path_factory.mktemp("proxy")
    configuration = directory / "idemproxy.yaml"
    configuration.write_text(
        f"store: {{url: 'sqlite:///{directory}/records.db'}}\nscope: {{headers: [x-tenant]}}\n"
        f"upstreams: {{payments: {{url: '{api.url}'}}}}\n"
        f"routes:\n- {{name: derived, match: {{path: /derived/**}}, strip_prefix: /derived, upstream: payments, key: derive}}\n"
        f"- {{name: all, upstream: payments}}\n"
    )
    with proxy("--config", str(configuration)) as running:
        yield running


@pytest.fixture
def workflow_id() -> str:
    """A workflow that nobody has begun."""
    return f"trip-{uuid.uuid4()}"
