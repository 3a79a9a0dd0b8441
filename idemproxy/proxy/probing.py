"""Asking an upstream whether an operation of unknown outcome happened: one read, and what it proves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from idemproxy.core.forward import request_head
from idemproxy.core.policy import MIB
from idemproxy.core.probe import ProbeError, Unclear, Verdict, judge_probe, probe_request
from idemproxy.proxy.pool import NotSentError
from idemproxy.proxy.receiving import UnsureError
from idemproxy.proxy.upstream import start_on

if TYPE_CHECKING:
    from idemproxy.core.message import Request
    from idemproxy.core.policy import Route
    from idemproxy.core.probe import ProbeRule
    from idemproxy.proxy.pool import Pool

MAX_PROBE_BODY: Final = 1 * MIB


async def probe(pool: Pool, rule: ProbeRule, request: Request, key: str, route: Route) -> Verdict:
    """Ask, with the request of a retry. Never raises for what an upstream or a network can do: that is unclear."""
    try:
        question = probe_request(rule, request, key, route.policy.key.header)
    except ProbeError as exc:
        return Unclear(str(exc))
    head = request_head(
        question, replace(route, strip_prefix=b""), pool.upstream, None
    )  # its target is below the upstream's base
    try:
        connection = await start_on(pool, question, head)
    except NotSentError as exc:
        return Unclear(exc.outcome.reason)
    try:
        answer = await connection.head()
        body = await connection.read_whole(MAX_PROBE_BODY)
    except UnsureError as exc:
        return Unclear(exc.outcome.reason)
    finally:
        pool.give_back(connection)
    if body is None:
        return Unclear(f"the probe's answer has more than {MAX_PROBE_BODY} bytes")
    return judge_probe(rule, answer.status, body)
