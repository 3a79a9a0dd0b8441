"""The replies of the pages: never cached, and told apart from an upstream's by `Proxy-Status` (RFC 9209)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson

from idemproxy.observe.observation import Outcome
from idemproxy.proxy.reply import Reply, refusal

if TYPE_CHECKING:
    from idemproxy.core.problem import Problem

Shown: TypeAlias = dict[str, object]
"""A JSON object of a page."""

NO_STORE: Final = b"Cache-Control: no-store\r\n"
_OWN: Final = NO_STORE + b"Proxy-Status: idemproxy\r\n"
_JSON: Final = b"OK\r\nContent-Type: application/json\r\n" + _OWN


def shown(document: Shown) -> Reply:
    """A page."""
    return text(orjson.dumps(document))


def text(body: bytes, lines: bytes = b"") -> Reply:
    """A page whose JSON is there already."""
    return Reply(200, _JSON + lines, Outcome.OWN, body, len(body))


def done(lines: bytes) -> Reply:
    """What was asked is done, and there is nothing to show."""
    return Reply(204, b"No Content\r\n" + _OWN + lines, Outcome.OWN, b"", 0)


def turned_away(found: Problem, lines: bytes = b"") -> Reply:
    """A problem document."""
    reply = refusal(found, Outcome.OWN)
    return replace(reply, head=reply.head + lines)
