"""What examples with agent frameworks are held against: the sample upstream, reached directly and through the proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.processes import DemoApi, demo_api, proxy, scratch

BOTH_WAYS: Final = pytest.mark.parametrize(("way", "effects"), [("directly", 2), ("through the proxy", 1)])
"""An address of the shop, and how often an operation that is tried twice happens there."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The sample upstream, which heeds no key."""

    api: DemoApi
    urls: Mapping[str, str]
    """Where an agent reaches it, by the ways of BOTH_WAYS."""

    def made(self, customer: str) -> list[dict[str, Any]]:
        """The charges of a customer and their refunds, in order, as the upstream keeps them, each with its kind."""
        resources = [effect["resource"] | {"kind": effect["kind"]} for effect in self.api.ledger()["effects"]]
        charges = {each["id"] for each in resources if each.get("customer") == customer}
        return [each for each in resources if each["id"] in charges or each.get("charge") in charges]

    def kinds(self, customer: str) -> list[tuple[str, int]]:
        """The kinds and the amounts of these."""
        return [(each["kind"], each["amount"]) for each in self.made(customer)]


@contextmanager
def open_shop() -> Iterator[Shop]:
    """The sample upstream, and a proxy before it with what it does by default, both ended with the context."""
    with (
        scratch() as directory,
        demo_api() as api,
        proxy("--upstream", api.url, "--store", f"sqlite:///{directory}/r.db") as running,
    ):
        yield Shop(api, {"directly": api.url, "through the proxy": running.url})
