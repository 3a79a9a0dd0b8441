"""A sample upstream without idempotency: it keeps a ledger of its effects and can be told to be slow or to fail.

It is what the README, the demo and the tests put behind the proxy; the proxy itself never imports it.
"""

from __future__ import annotations

from idemproxy.demo.command import add_arguments, main

__all__ = ["add_arguments", "main"]
