"""A client middleware of aiohttp that makes the writes of a session the steps of a workflow.

    aiohttp.ClientSession(trip.proxy, middlewares=[middleware(trip)])

aiohttp asks its middlewares again for what a call is redirected to, and when it retries on a new connection: these are the same
call, and take the same number.
"""

from __future__ import annotations

import aiohttp
from aiohttp.payload import BytesPayload

from idemproxy.agent.problems import is_problem
from idemproxy.agent.workflow import Workflow


def middleware(workflow: Workflow) -> aiohttp.ClientMiddlewareType:
    """What numbers the writes to the proxy, and raises an IdemproxyError for the proxy's problem documents.

    Calls that run side by side need names of their own: `headers=trip.named_step("hotel")`. A request that is given
    `middlewares` of its own does without those of its session.
    """

    async def sent(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        call = workflow.calls.begin(request.method, str(request.url), request.headers, await _body(request))
        if call is None:
            return await handler(request)
        request.headers.update(call.headers)
        try:
            response = await handler(request)
            problem = await response.read() if is_problem(response.headers) else None
        except BaseException:
            call.lost()
            raise
        call.answered(response.status, response.headers, problem)
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
