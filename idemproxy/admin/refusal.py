"""What the admin listener refuses, and how it says so: problem documents (RFC 9457) of the shape that the proxy's own have.

`executed` tells of the act that was asked for, and `retry` whether to ask again: `after_check` once one has looked, `never`
as it stands.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import orjson
from aiohttp import web

from idemproxy.core.problem import Executed, Kind, Retry


class Cause(StrEnum):
    """The `type` of a problem document of the admin listener."""

    ACT_UNCONFIRMED = "act-unconfirmed"
    BODY_TOO_LARGE = "body-too-large"
    FORBIDDEN = "forbidden"
    MEDIA_TYPE = "media-type"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    RECORD_ABSENT = "record-absent"
    RECORD_CHANGED = "record-changed"
    REQUEST_INVALID = "request-invalid"
    STORE_UNAVAILABLE = "store-unavailable"
    UNAUTHORIZED = "unauthorized"
    WRONG_PHASE = "wrong-phase"


CAUSES: Final = MappingProxyType(
    {
        Cause.ACT_UNCONFIRMED: Kind(503, "The store did not confirm the act", Executed.UNKNOWN, Retry.AFTER_CHECK),
        Cause.BODY_TOO_LARGE: Kind(413, "The request body is too large", Executed.NO, Retry.NEVER),
        Cause.FORBIDDEN: Kind(403, "Records are not shown to this caller", Executed.NO, Retry.NEVER),
        Cause.MEDIA_TYPE: Kind(415, "The request body is not JSON", Executed.NO, Retry.NEVER),
        Cause.METHOD_NOT_ALLOWED: Kind(405, "The page does not take this method", Executed.NO, Retry.NEVER),
        Cause.RECORD_ABSENT: Kind(404, "There is no such record", Executed.NO, Retry.NEVER),
        Cause.RECORD_CHANGED: Kind(409, "The record has changed", Executed.NO, Retry.AFTER_CHECK),
        Cause.REQUEST_INVALID: Kind(400, "The request is not valid", Executed.NO, Retry.NEVER),
        Cause.STORE_UNAVAILABLE: Kind(503, "The store is unavailable", Executed.NO, Retry.AFTER_CHECK),
        Cause.UNAUTHORIZED: Kind(401, "A token is needed", Executed.NO, Retry.NEVER),
        Cause.WRONG_PHASE: Kind(409, "The record is in another phase", Executed.NO, Retry.AFTER_CHECK),
    }
)


class RefusedError(Exception):
    """A request that gets a problem document instead of what it asked for; `fields` are header fields of that answer."""

    def __init__(self, cause: Cause, detail: str, fields: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        self.fields = fields

    def response(self) -> web.Response:
        """The problem document."""
        kind = CAUSES[self.cause]
        members = {"type": self.cause.value, "title": kind.title, "status": kind.status, "detail": self.detail}
        advice = {"instance": uuid.uuid4().urn, "executed": kind.executed.value, "retry": kind.retry.value}
        return problem_response(members | advice, kind.status, f'idemproxy; details="{self.cause}"', self.fields)


def problem_response(
    document: Mapping[str, str | int], status: int, proxy_status: str, fields: Mapping[str, str] = MappingProxyType({})
) -> web.Response:
    """A problem document on its way."""
    headers = {"Content-Type": "application/problem+json", "Proxy-Status": proxy_status, **fields}
    return web.Response(body=orjson.dumps(document), status=status, headers=headers)
