"""A session of requests whose writes are the steps of a workflow: `session(trip)` in the place of `requests.Session()`.

`send` is overridden, which is asked once for each call; what it is redirected to comes there again with the fields of the call.
The retries of an adapter (urllib3) are behind it, so that any adapter may be mounted.
"""

from __future__ import annotations

from typing import Any

import requests

from idemproxy.agent.problems import is_problem
from idemproxy.agent.workflow import Workflow


def session(workflow: Workflow) -> requests.Session:
    """A session that numbers its writes to the proxy, and raises an IdemproxyError for the proxy's problem documents."""
    return _Session(workflow)


class _Session(requests.Session):
    def __init__(self, workflow: Workflow) -> None:
        super().__init__()
        self._calls = workflow.calls

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # noqa: ANN401  # the keywords are the session's
        call = self._calls.begin(request.method or "", request.url or "", _fields(request), _body(request))
        if call is None:
            return super().send(request, **kwargs)
        request.headers.update(call.headers)
        try:
            response = super().send(request, **kwargs)
            problem = response.content if is_problem(response.headers) else None
        except BaseException:
            call.lost()
            raise
        call.answered(response.status_code, response.headers, problem)
        return response

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        # Asked for each redirect, to take from it what is not for the one to whom it leads.
        super().rebuild_auth(prepared_request, response)
        if self._calls.is_ours(response.url) and not self._calls.is_ours(prepared_request.url or ""):
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
