"""The proxy's own answers as tables, and the fields that do not cross it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from docs.generate.markdown import NOTHING, code, listed, table
from idemproxy.admin.refusal import CAUSES, Cause
from idemproxy.core.hop import HOP_BY_HOP, OURS
from idemproxy.core.policy import REPLAY_DENIED
from idemproxy.core.problem import KINDS, Kind, Slug

_ALSO: Final = MappingProxyType(
    {Slug.BAD_REQUEST: (405, 408, 414, 431), Slug.NOT_SENT: (503, 504), Slug.OUTCOME_UNKNOWN: (400, 408, 500, 502, 504)}
)
"""The statuses that a slug has in some cases, beside its usual one."""

_MEANINGS: Final[Mapping[Slug, str]] = MappingProxyType(
    {
        Slug.KEY_MISSING: "The route has `key: required`, and the request names no operation.",
        Slug.KEY_INVALID: "Several key fields, a list, an empty or too long key, or characters that are not visible ASCII.",
        Slug.BAD_REQUEST: (
            "Not valid HTTP, a target that is no path, another server's name, an upgrade with a key, a body that is broken off, "
            "or no place for the stamp. 405: CONNECT; 408: a head or a body that comes too slowly; 414, 431: over a "
            "[limit](wire.md#limits), which `detail` names."
        ),
        Slug.KEY_REUSED: "The key was first used for another request: a new operation needs a new key.",
        Slug.IN_PROGRESS: "The first request with this key is still under way: ask again after `Retry-After`.",
        Slug.OUTCOME_UNKNOWN: (
            "The request was sent and nobody here knows whether it happened. 409 on a retry; 502 or 504 on the first request, "
            "where no whole answer came, or none that is [valid and within limits](wire.md#answers); 400 or 408 where a request "
            "that passes through broke off, or came too slowly, when part of it had left; 500 where the proxy itself failed. "
            "See [resolve an unknown outcome](../how-to/resolve-an-unknown-outcome.md)."
        ),
        Slug.RESPONSE_UNAVAILABLE: "It happened, with the status that `detail` names, but the answer was too long to keep.",
        Slug.KEY_EXPIRED: "It happened, at the time that `detail` names, and the answer is no longer kept.",
        Slug.NOT_SENT: (
            "No byte of the request left. 502: refused, no route, no such name, no TLS; 504: no connection in time; "
            "503: the claim's lease was over. Where an egress proxy is in the way, `detail` names it, and the status with which "
            "it opened no tunnel."
        ),
        Slug.STORE_UNAVAILABLE: "The claim could not be made durable, so nothing was sent; or a page cannot be given now.",
        Slug.RECORDS_LOST: "The store has [lost records](../how-to/run-on-redis.md#when-records-are-lost), and has none of this "
        "key: nothing was sent now, and it may have been before.",
        Slug.BODY_TOO_LARGE: "A body is longer than `max_request_body`, a memory than `max_agent_memory`; nothing was stored.",
        Slug.NO_ROUTE: "No route takes this method, host and path; or there is no such page below `/_idemproxy/`.",
        Slug.DRAINING: "The proxy is stopping; nothing was sent.",
        Slug.WORKFLOW_UNKNOWN: "Nothing is kept, for this caller, of the workflow or of its [memory](agent-api.md#the-memory).",
        Slug.KEY_UNKNOWN: "There is no record, for this caller, of a key that it [asked for](agent-api.md#what-became-of-a-key).",
        Slug.MEMORY_CHANGED: "The memory is another than `If-Match` or `If-None-Match` expects; `ETag` tells the present one.",
        Slug.METHOD_NOT_ALLOWED: "`Allow` names the methods of the proxy's own page.",
    }
)

_CAUSES: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.ACT_UNCONFIRMED: "The store was asked and did not confirm: look at the record before you act again.",
        Cause.BODY_TOO_LARGE: "The act is longer than any answer that a route keeps.",
        Cause.FORBIDDEN: "There is no token, and the caller is not on this machine, or is a web page of another origin.",
        Cause.MEDIA_TYPE: "An act is sent as `application/json`.",
        Cause.METHOD_NOT_ALLOWED: "`Allow` names the methods of the page.",
        Cause.RECORD_ABSENT: "There is no record of this id, and no act on one.",
        Cause.RECORD_CHANGED: "The fence is not the record's any more; nothing changed.",
        Cause.REQUEST_INVALID: "`detail` names the parameter or the member that is wrong.",
        Cause.STORE_UNAVAILABLE: "The records cannot be read now.",
        Cause.UNAUTHORIZED: "`Authorization: Bearer` is missing, or is not the token of `admin.token_file`.",
        Cause.WRONG_PHASE: "Only an unknown record is resolved, and one in flight is not forgotten; nothing changed.",
    }
)


def problems() -> str:
    """The problem documents of the proxy's own port."""
    return table(
        ("type", "status", "executed", "retry", "Proxy-Status error", "when"),
        (
            [*_row(slug, kind, (kind.status, *_ALSO.get(slug, ()))), code(kind.error) if kind.error else NOTHING, _MEANINGS[slug]]
            for slug, kind in KINDS.items()
        ),
    )


def admin_problems() -> str:
    """The problem documents of the admin listener."""
    rows = ([*_row(cause, kind, (kind.status,)), _CAUSES[cause]] for cause, kind in CAUSES.items())
    return table(("type", "status", "executed", "retry", "when"), rows)


def _row(slug: str, kind: Kind, statuses: Iterable[int]) -> list[str]:
    return [code(slug), ", ".join(map(str, statuses)), code(kind.executed), code(kind.retry)]


def never_forwarded() -> str:
    """The fields that are dropped in both directions."""
    return table(("why", "fields"), [["they speak to the neighbour", _fields(HOP_BY_HOP)], ["they are ours", _fields(OURS)]])


def never_replayed() -> str:
    """The fields of an answer that are not kept."""
    return f"{_fields(REPLAY_DENIED)}.\n"


def _fields(names: Iterable[bytes]) -> str:
    return listed(sorted(name.decode("ascii") for name in names))
