"""How the agent of the demo calls an API: over one connection, and, where a proxy makes that safe, until there is an answer."""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from idemproxy.agent import IdemproxyError, MemoryChangedError, OutcomeUnknownError, raise_for_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from idemproxy.demo.trip import Call

T = TypeVar("T")

_ANSWER_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 40.0
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0


class CallError(Exception):
    """There is no answer that the agent could go on with; the message says why."""


def patiently(ask: Callable[[], T]) -> T:
    """What the proxy answers: asked again while it is not there, and while it says that this is the way.

    Raises CallError, and MemoryChangedError, which only the caller can do something about.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (OSError, HTTPException) as failure:
            may_repeat, reason, pause = True, f"no answer: {failure!r}", _PAUSE_SECONDS
        except IdemproxyError as problem:
            # Where a route probes, it is the next request that asks the upstream what became of the first.
            may_repeat = problem.retry == "same_key" or isinstance(problem, OutcomeUnknownError)
            reason, pause = str(problem), min(problem.retry_after or _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            if isinstance(problem, MemoryChangedError):
                raise
        if not may_repeat or time.monotonic() > deadline:
            raise CallError(reason)
        time.sleep(pause)


class Caller:
    """A connection to `url`. `is_safe`: a proxy is there, so that what is sent again does not happen again."""

    def __init__(self, url: str, *, is_safe: bool) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_SECONDS)
        self._is_safe = is_safe

    def call(self, call: Call, fields: Mapping[str, str], fault: str | None = None) -> tuple[Any, str]:
        """The answer's JSON, and what the proxy said of it, nothing where there was none. Raises CallError.

        `fault` is what the sample is to do to the first attempt (demo.faults).
        """
        faults = [] if fault is None else [fault]

        def attempt() -> tuple[Any, str]:
            once = {"Demo-Fault": faults.pop()} if faults else {}
            return self._attempt(call, {**fields, **once})

        if self._is_safe:
            return patiently(attempt)
        try:
            return attempt()
        except (OSError, HTTPException) as failure:
            raise CallError(f"no answer: {failure!r}") from failure

    def _attempt(self, call: Call, fields: dict[str, str]) -> tuple[Any, str]:
        method, content = "GET", None
        if call.body is not None:
            method, content = "POST", json.dumps(call.body)
            fields["Content-Type"] = "application/json"
        try:
            self._connection.request(method, call.path, content, fields)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException):
            self._connection.close()
            raise
        raise_for_problem(response.status, dict(response.headers), answer)
        if response.status >= 400:
            raise CallError(f"{method} {call.path}: {response.status} {answer.decode()}")
        return json.loads(answer), (response.headers["Idempotency-Status"] or "").partition(";")[0]
