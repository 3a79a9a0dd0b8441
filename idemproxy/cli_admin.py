"""A proxy's admin listener, asked from the command line: JSON both ways, and every failure as a sentence that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote, urlencode

ANSWER_TIME: Final = 30.0
"""Seconds that an answer may take: a store that is out of order is given up by the proxy before."""


class FailedError(Exception):
    """It could not be done; the message, for a person, says why and what to do."""


class AdminClient:
    """The listener at an address, host and port; each request on a connection of its own. All methods raise FailedError."""

    def __init__(self, address: tuple[str, int], token: bytes | None) -> None:
        self._host, self._port = address
        self._token = token

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://[{self._host}]:{self._port}" if ":" in self._host else f"http://{self._host}:{self._port}"

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The object at `path`, which is quoted here."""
        return self._ask("GET", quote(path) + (f"?{urlencode(query)}" if query else ""), None)

    def post(self, path: str, document: Mapping[str, object]) -> dict[str, Any]:
        """Ask for an act."""
        return self._ask("POST", quote(path), json.dumps(document).encode())

    def _ask(self, method: str, target: str, body: bytes | None) -> dict[str, Any]:
        headers: dict[str, str | bytes] = {} if body is None else {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = b"Bearer " + self._token
        try:
            with closing(HTTPConnection(self._host, self._port, timeout=ANSWER_TIME)) as connection:
                connection.request(method, target, body, headers)
                response = connection.getresponse()
                status, content = response.status, response.read()
        except UnicodeError as failure:  # of the standard library's IDNA, which speaks of labels and codecs
            raise FailedError(f"{self.url}: {self._host!r} is not the name of a host; see --admin") from failure
        except (OSError, HTTPException) as failure:
            why = str(failure) or type(failure).__name__
            done = "" if body is None else "; whether the act was carried out is not known, so look with `idemproxy records show`"
            raise FailedError(f"{self.url} does not answer: {why}{done}; --admin names the proxy's admin listener") from failure
        document = _object(content)
        if document is None or (status != 200 and not isinstance(document.get("detail"), str)):
            raise FailedError(f"{self.url} is not the admin listener of a proxy (status {status}): see --admin")
        if status in {401, 403}:
            raise FailedError(f"{document['detail']} Here: --admin-token-file FILE.")
        if status != 200:
            raise FailedError(document["detail"])
        return document


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
