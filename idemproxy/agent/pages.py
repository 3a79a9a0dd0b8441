"""The proxy's own pages, asked over HTTP/1.1 by the standard library, each time on a connection of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from idemproxy.agent.problems import ProxyUnreachableError, is_ours, raise_for_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PAUSES = (0.1, 0.4)
"""Seconds between the times that a page is asked. Every page may be asked again, also the one that saves."""

_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Page:
    """An answer. `etag` as it came, with its quotation marks; `value` is the JSON of the body, None where there is none."""

    etag: str | None
    value: Any


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server is (RFC 6454); the names of this machine's loopback are one, since they lead to one proxy."""

    scheme: str
    host: str
    port: int


def origin_of(url: str) -> Origin | None:
    """The origin of a URL of HTTP; None for any other text."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in _PORTS or not host:
        return None
    return Origin(scheme, _LOOPBACK[0] if host in _LOOPBACK else host, port or _PORTS[scheme])


def checked_proxy(url: str) -> str:
    """The base URL of a proxy, without a slash at its end. Raises ValueError where it is none."""
    parts, origin = urlsplit(url), origin_of(url)
    if origin is None or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"the proxy is given as http://HOST:PORT or https://HOST:PORT: {url!r}")
    return f"{origin.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of the proxy at the base URL `proxy`, asked with these fields; `timeout` in seconds."""

    proxy: str
    headers: Mapping[str, str]
    timeout: float

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Page:
        """Ask for a page, and again where no answer comes. Raises IdemproxyError and ProxyUnreachableError."""
        fields = {**self.headers, "Accept": "application/json", **(headers or {})}
        answer, content = self._answer(method, path, body, fields)
        raise_for_problem(answer.status, answer.headers, content)
        try:
            match answer.status if is_ours(answer.headers) else None:
                case 200:
                    return Page(answer.headers["ETag"], json.loads(content))
                case 204:
                    return Page(answer.headers["ETag"], None)
        except (ValueError, RecursionError):
            pass
        raise ProxyUnreachableError(f"{self.proxy} is not an idemproxy with this page: {method} {path} got {answer.status}")

    def _answer(self, method: str, path: str, body: bytes | None, fields: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        connect = HTTPSConnection if self.proxy.startswith("https:") else HTTPConnection
        for pause in (*_PAUSES, None):
            connection = connect(self.proxy.partition("//")[2], timeout=self.timeout)
            try:
                connection.request(method, path, body, fields)
                answer = connection.getresponse()
                return answer, answer.read()
            except (OSError, HTTPException) as exc:
                if pause is None:
                    raise ProxyUnreachableError(f"no idemproxy answers at {self.proxy}: {exc}") from exc
                time.sleep(pause)
            finally:
                connection.close()
        raise AssertionError("the last pause ends it")
