"""A session of requests whose writes are the steps of a workflow: `session(trip)` in the place of `requests.Session()`.

`send` is overridden, which is asked once for each call; what that is redirected to comes there again, and passes: it is one call.
The retries of an adapter (urllib3) are behind it, so that any adapter may be mounted.
"""

from __future__ import annotations

from copy import copy
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import requests

from idemproxy.agent.calls import TIMEOUT, raises, redirect_to_read
from idemproxy.agent.workflow import Workflow


def session(
    workflow: Workflow, *, base_url: str | None = None, timeout: float | None = TIMEOUT, numbered: bool = True
) -> requests.Session:
    """A session that numbers its writes to the proxy, and raises an IdemproxyError for the proxy's problem documents.

    It raises OutcomeUnknownError also for an answer of the API after which nobody knows whether the operation happened. Relative
    URLs are put behind `base_url`, which is the proxy unless given; `timeout`, in seconds, is that of calls without one. Without
    `numbered`, for routes with `key: derive`, a write is told its workflow only. Raises ValueError for another's `base_url`.
    """
    return _Session(workflow, base_url, timeout, numbered=numbered)


class _Session(requests.Session):
    def __init__(self, workflow: Workflow, base_url: str | None, timeout: float | None, *, numbered: bool) -> None:
        super().__init__()
        self._calls = workflow.calls
        self._base_url = workflow.calls.base_url(base_url)
        self._timeout = timeout
        self._numbered = numbered
        self._followed: WeakSet[requests.PreparedRequest] = WeakSet()

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        match request.url:
            case str(url) if not urlsplit(url).scheme and not urlsplit(url).netloc:
                request = copy(request)
                request.url = f"{self._base_url.rstrip('/')}/{url.lstrip('/')}"
        return super().prepare_request(request)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # noqa: ANN401  # the keywords are the session's
        if request in self._followed:
            return super().send(request, **kwargs)
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._timeout
        url, body = request.url or "", _body(request)
        call = self._calls.begin(request.method or "", url, _fields(request), body, numbered=self._numbered)
        if call is None:
            return super().send(request, **kwargs)
        request.headers.update(call.headers)
        try:
            response = super().send(request, **kwargs)
            if response.next is not None:
                self._followed.discard(response.next)  # whoever follows by himself makes a call of it
            content = response.content if raises(response.headers) else None
        except BaseException as failure:
            call.lost(failure)
            raise
        redirect = redirect_to_read(response.history, response)
        call.answered(response.status_code, response.headers, content, response, redirect)
        return response

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        # Asked for each redirect, to take from it what is not for the one to whom it leads.
        super().rebuild_auth(prepared_request, response)
        if not self._calls.is_ours(response.url) and response.request not in self._followed:
            return  # it has nothing of ours
        self._followed.add(prepared_request)
        if not self._calls.is_ours(prepared_request.url or ""):
            self._calls.warn_of_others(prepared_request.method or "", prepared_request.url or "")
            for name in self._calls.names:
                prepared_request.headers.pop(name, None)


def _fields(request: requests.PreparedRequest) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value.decode("latin-1") for name, value in request.headers.items()}


def _body(request: requests.PreparedRequest) -> bytes | None:
    match request.body:
        case None:
            return b""
        case str(text):
            return text.encode()
        case bytes(content):
            return content
        case _:
            return None
