"""A client middleware of aiohttp that makes the writes of a session the steps of a workflow.

    aiohttp.ClientSession(trip.proxy, middlewares=[middleware(trip)])

aiohttp asks its middlewares again for what a call is redirected to, and when it retries on a new connection: these are the same
call, and take the same number.
"""

from __future__ import annotations

import aiohttp
from aiohttp.payload import BytesPayload

from idemproxy.agent.calls import raises
from idemproxy.agent.workflow import Workflow


def middleware(workflow: Workflow, *, numbered: bool = True) -> aiohttp.ClientMiddlewareType:
    """What numbers the writes to the proxy, and raises an IdemproxyError for the proxy's problem documents.

    It raises OutcomeUnknownError also for an answer of the API after which nobody knows whether the operation happened. Without
    `numbered`, for routes with `key: derive`, a write is told its workflow only.
    Calls that run side by side need names of their own: `headers=trip.named_step("hotel")`. A request that is given
    `middlewares` of its own does without those of its session.
    """

    async def sent(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        body = await _body(request)
        call = workflow.calls.begin(request.method, str(request.url), request.headers, body, numbered=numbered)
        if call is None:
            return await handler(request)
        request.headers.update(call.headers)
        try:
            response = await handler(request)
            content = await response.read() if raises(response.headers) else None
        except BaseException as failure:
            call.lost(failure)
            raise
        call.answered(response.status, response.headers, content, response)
        return response

    return sent


async def _body(request: aiohttp.ClientRequest) -> bytes | None:
    match request.body:
        case b"":
            return b""
        case BytesPayload() as payload:
            return bytes(await payload.as_bytes())
        case _:
            return None
