"""Clients of httpx whose writes are the steps of a workflow: `client(trip)` in the place of `httpx.Client()`.

`send` is overridden, which is asked once for each call: redirects, flows of authentication and the retries of a transport are
all behind it. So nothing of what a client may be given (`auth`, `transport`, `mounts`, `event_hooks`) is in its way. Hooks may be
replaced later, too: ours is put behind them again before each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import httpx

from idemproxy.agent.calls import TIMEOUT, Call, Calls, raises, redirect_to_read
from idemproxy.agent.workflow import Workflow

_OURS: Final = "idemproxy"
"""The extension of a request that has got fields of ours; httpx hands it on to what it is redirected to."""


def client(workflow: Workflow, *, numbered: bool = True, **kwargs: Any) -> httpx.Client:  # noqa: ANN401  # the keywords are another's
    """A client that numbers its writes to the proxy, and raises an IdemproxyError for the proxy's problem documents.

    It raises OutcomeUnknownError also for an answer of the API after which nobody knows whether the operation happened. Without
    `numbered`, for routes with `key: derive`, a write is told its workflow only. The other keywords are those of httpx.Client.
    Unless given, `base_url` is the proxy, and `timeout` longer than the proxy takes. Raises ValueError for another's `base_url`.
    """
    return _Client(workflow, numbered=numbered, **kwargs)


def async_client(workflow: Workflow, *, numbered: bool = True, **kwargs: Any) -> httpx.AsyncClient:  # noqa: ANN401  # as above
    """As `client`. Calls that run side by side need names of their own: `headers=trip.named_step("hotel")`."""
    return _AsyncClient(workflow, numbered=numbered, **kwargs)


class _Client(httpx.Client):
    def __init__(self, workflow: Workflow, *, numbered: bool, **kwargs: Any) -> None:  # noqa: ANN401
        self._calls = workflow.calls
        self._numbered = numbered

        super().__init__(**{"timeout": TIMEOUT, **kwargs, "base_url": workflow.calls.base_url(kwargs.get("base_url"))})

    def _before(self, request: httpx.Request) -> None:
        _leave_behind(self._calls, request)

    def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:  # noqa: ANN401
        call = _begin(self._calls, request, numbered=self._numbered)
        if call is None:
            return super().send(request, **kwargs)
        _hook(self, self._before)
        try:
            response = super().send(request, **kwargs)
            content = response.read() if raises(response.headers) else None
        except BaseException as failure:
            call.lost(failure)
            raise
        redirect = redirect_to_read(response.history, response)
        call.answered(response.status_code, response.headers, content, response, redirect)
        return response


class _AsyncClient(httpx.AsyncClient):
    def __init__(self, workflow: Workflow, *, numbered: bool, **kwargs: Any) -> None:  # noqa: ANN401
        self._calls = workflow.calls
        self._numbered = numbered

        super().__init__(**{"timeout": TIMEOUT, **kwargs, "base_url": workflow.calls.base_url(kwargs.get("base_url"))})

    async def _before(self, request: httpx.Request) -> None:
        _leave_behind(self._calls, request)

    async def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:  # noqa: ANN401
        call = _begin(self._calls, request, numbered=self._numbered)
        if call is None:
            return await super().send(request, **kwargs)
        _hook(self, self._before)
        try:
            response = await super().send(request, **kwargs)
            content = await response.aread() if raises(response.headers) else None
        except BaseException as failure:
            call.lost(failure)
            raise
        redirect = redirect_to_read(response.history, response)
        call.answered(response.status_code, response.headers, content, response, redirect)
        return response


def _hook(client: httpx.Client | httpx.AsyncClient, before: Callable[..., Any]) -> None:
    """See that our hook is asked for each request, after the caller's own."""
    hooks = client.event_hooks
    if before not in hooks["request"]:
        client.event_hooks = {**hooks, "request": [*hooks["request"], before]}


def _begin(calls: Calls, request: httpx.Request, *, numbered: bool) -> Call | None:
    try:
        body = request.content
    except httpx.RequestNotRead:
        body = None
    call = calls.begin(request.method, str(request.url), request.headers, body, numbered=numbered)
    if call is not None:
        request.headers.update(call.headers)
        request.extensions = {**request.extensions, _OURS: True}
    return call


def _leave_behind(calls: Calls, request: httpx.Request) -> None:
    """What is redirected to somebody else goes there without our fields."""
    if _OURS in request.extensions and not calls.is_ours(str(request.url)):
        calls.warn_of_others(request.method, str(request.url))
        for name in calls.names:
            request.headers.pop(name, None)
