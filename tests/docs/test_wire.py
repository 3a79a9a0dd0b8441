"""What `reference/wire.md` says of targets, fields and methods, asked of a proxy; and the combinations of the wire tests."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from tests.docs.console import API, PROXY, Console, console
from tests.docs.pages import inline_code, read, rows, section
from tests.wire.combination import ALL

PAGE: Final = read("docs/reference/wire.md")
REFUSED: Final = section(PAGE, "## Requests that are refused")
TARGETS: Final = {row[0]: row[1] for row in rows(section(PAGE, "## Targets"))}
TWICE: Final = re.findall(r"`([\w-]+)`", next(line for line in REFUSED.splitlines() if line.startswith("- a second")))

HOST: Final = "payments.example:8080"
CASES: Final = {
    "a path with its query": [("GET", "/charges?limit=1", 200)],
    "absolute, as in `GET http://host/path`": [
        ("GET", f"http://{HOST}/charges", 200),
        ("GET", "http://payments.example/charges", 400),
        ("GET", "http://other.example:8080/charges", 400),
    ],
    "`//host/path`": [("GET", "//other.example/charges", 404)],  # the sample's own answer: it has no such page
    "with a fragment; absolute with `user@`; `*`": [
        ("GET", "/charges#one", 400),
        ("GET", f"http://ann@{HOST}/charges", 400),
        ("GET", "*", 400),
        ("OPTIONS", "*", 400),
    ],
    "any, of `CONNECT`": [("CONNECT", HOST, 405), ("CONNECT", "/charges", 405)],
}
"""Requests of each kind of target that the page has, and the status that they get."""


@pytest.fixture(scope="module", name="port")
def fixture_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a proxy in front of the sample upstream."""
    with console(tmp_path_factory.mktemp("wire")) as terminal:
        terminal.run("idemproxy demo-api")
        terminal.run(f"idemproxy run --upstream http://{API}")
        yield _port(terminal)


def _port(terminal: Console) -> int:
    return int(terminal.real(PROXY).rpartition(":")[2])


def _status(port: int, method: str, target: str, *fields: str) -> int:
    """The status of one request with these field lines, sent as they stand."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {HOST}", *fields, "Connection: close"]
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii"))
        return int(sock.makefile("rb").readline().split()[1])


def test_every_kind_of_target_is_tried() -> None:
    """The table has no row that is not tried here."""
    assert [*CASES] == [*TARGETS][1:]


@pytest.mark.parametrize(("method", "target", "status"), [case for cases in CASES.values() for case in cases])
def test_targets_do_what_the_table_says(port: int, method: str, target: str, status: int) -> None:
    """Forwarded, or refused with the status that the page names."""
    assert status == _status(port, method, target)


@pytest.mark.parametrize("name", TWICE)
def test_fields_that_may_not_come_twice(port: int, name: str) -> None:
    """Each that the page lists is refused the second time; once it is taken."""
    line = f"{name}: {HOST if name == 'Host' else '1'}"
    fields = [line] if name == "Host" else [line, line]

    assert (200, 400) == (_status(port, "GET", "/charges", *fields[1:]), _status(port, "GET", "/charges", *fields))


def test_other_fields_may_come_twice(port: int) -> None:
    """The list of the page is not of every field."""
    assert 200 == _status(port, "GET", "/charges", "Accept: 1", "Accept: 2", "X-Any: 1", "X-Any: 1")


@pytest.mark.parametrize(
    ("method", "status"), [("TRACE", 405), ("PROPFIND", 405), ("MKCOL", 405), ("LOCK", 405), ("BUY", 400), ("get", 400)]
)
def test_methods_that_are_known(port: int, method: str, status: int) -> None:
    """Those of RFC 9110 and of WebDAV go to the sample, whose 405 it is; a name of one's own does not."""
    assert status == _status(port, method, "/charges")


def test_combinations_exist() -> None:
    """Where a document names a combination of the wire tests, it is one of them."""
    named = re.findall(r"--wire (\S+)", "\n".join(inline_code(read("CONTRIBUTING.md"))))

    assert ([], True) == ([name for name in named if name not in ALL], bool(named))
