"""A client that sends the bytes that it is given, once, and reads one answer; and a look at a proxy from outside."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

CUSTOMER: Final = "ann-of-nowhere"
CHARGE: Final = b'{"amount": 4200, "customer": "%s"}' % CUSTOMER.encode()
LONGEST: Final = 45.0
"""Seconds that a client waits for an answer."""

Fields: TypeAlias = Iterable[tuple[str, str]]
Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name, and its labels in order of their names."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    def field(self, name: str) -> str | None:
        """The value of a field, its lines joined; None when there is none."""
        values = [value for given, value in self.fields if given.lower() == name.lower()]
        return ", ".join(values) if values else None

    @property
    def told(self) -> str:
        """What the proxy says became of the operation: the first word of Idempotency-Status."""
        return (self.field("Idempotency-Status") or "nothing").partition(";")[0]

    @property
    def document(self) -> dict[str, Any]:
        """The body, a JSON object."""
        members: dict[str, Any] = json.loads(self.body)
        return members

    @property
    def problem(self) -> tuple[int, str | None, str, str, str]:
        """A problem document in short: status, media type, slug, executed, retry."""
        members = self.document
        return self.status, self.field("Content-Type"), members["type"], members["executed"], members["retry"]


def problem(status: int, slug: str, executed: str, retry: str) -> tuple[int, str, str, str, str]:
    """What `Answer.problem` ought to be."""
    return status, "application/problem+json", slug, executed, retry


class Caller:
    """One connection to the server at `url`, on which requests go out one after the other."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), LONGEST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exchange(self, request: bytes, method: str = "POST") -> Answer:
        """Send a request as it stands; raises what http.client does when no whole answer comes."""
        self._socket.sendall(request)
        response = http.client.HTTPResponse(self._socket, method=method)
        with response:
            response.begin()
            return Answer(response.status, response.getheaders(), response.read())


def request_bytes(
    key: str | None = None, *, method: str = "POST", target: str = "/charges", body: bytes = CHARGE, fields: Fields = ()
) -> bytes:
    """A request on the wire; JSON with its length, unless there is no body."""
    lines = [f"{method} {target} HTTP/1.1", "Host: proxy.test", *(f"{name}: {value}" for name, value in fields)]
    if key is not None:
        lines.append(f"Idempotency-Key: {key}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def ask(
    url: str,
    key: str | None = None,
    *,
    method: str = "POST",
    target: str = "/charges",
    body: bytes = CHARGE,
    fields: Fields = (),
    wait: int | None = None,
) -> Answer:
    """Send one request on a connection of its own, and read its answer; `wait` as `Prefer: wait=n`."""
    if wait is not None:
        fields = [*fields, ("Prefer", f"wait={wait}")]
    return exchange(url, request_bytes(key, method=method, target=target, body=body, fields=fields), method)


def exchange(url: str, request: bytes, method: str = "POST") -> Answer:
    """Send a request as it stands, on a connection of its own, and read its answer."""
    with Caller(url) as caller:
        return caller.exchange(request, method)


def page(url: str) -> tuple[int, str]:
    """Status and text of a page of the admin listener, whatever the status."""
    address = urlsplit(url)
    with closing(http.client.HTTPConnection(address.netloc, timeout=LONGEST)) as connection:
        connection.request("GET", address._replace(scheme="", netloc="").geturl())
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def samples(admin: str) -> dict[Series, float]:
    """Every sample of /metrics, as Prometheus' own parser reads the page."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page(f"{admin}/metrics")[1])
        for sample in family.samples
    }


def counted(admin: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    return sum(value for (given, has), value in samples(admin).items() if given == name and labels.items() <= dict(has).items())


def claims(admin: str) -> float:
    """How many claims the proxy has asked its store for."""
    return counted(admin, "idemproxy_store_operations_total", operation="claim")


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return when the condition holds; AssertionError when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(0.01)


def configuration(directory: Path, settings: Mapping[str, object]) -> tuple[str, ...]:
    """Arguments of `run` for a file with these settings."""
    path = directory / "idemproxy.yaml"
    path.write_text(json.dumps(settings), "utf-8")  # which YAML takes as it is
    return "--config", str(path)
