"""What the wire tests run over: clients and upstreams that are plain or speak TLS, and the proxy on one of two event loops.

The tests say the same in each combination. Which one is in use is known while a test of this directory runs, fixtures included
(see conftest): `Client` and `Upstream` speak TLS accordingly, and `wired` starts a proxy that does. What TLS cannot do as TCP
does is in `bytestream.py`, and where a promise is another one over TLS, its test says so by `current()`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import trustme
import uvloop

from tests.process.asking import configuration
from tests.processes import Program, proxy, scratch


@dataclass(frozen=True, slots=True)
class Combination:
    """Whether clients and upstreams speak TLS, and the event loop of the proxy's process."""

    client_tls: bool
    upstream_tls: bool
    loop: str

    def __str__(self) -> str:
        return "-".join(["tls" if self.client_tls else "plain", "tls" if self.upstream_tls else "plain", self.loop])

    @property
    def scheme(self) -> str:
        """Of an upstream's URL."""
        return "https" if self.upstream_tls else "http"


ALL: Final = {str(one): one for one in (Combination(*of) for of in product((False, True), (False, True), ("uvloop", "asyncio")))}
USUAL: Final = ("plain-plain-uvloop", "tls-tls-asyncio")
"""Those of a run of the whole suite: every value occurs. `make wire` takes them all."""
ABOUT_MESSAGES: Final = frozenset(
    {
        "test_answer_bytes",
        "test_answer_heads",
        "test_corpus",
        "test_forwarding_fields",
        "test_key_at_the_upstream",
        "test_own_paths",
        "test_replay_bytes",
        "test_request_bytes",
        "test_stopped_holder",
        "test_targets",
        "test_unreadable_requests",
        "test_write_ahead",
    }
)
"""Modules that say what a message means or when one is sent, and not how it travels: TLS carries the same bytes, and either loop
calls the same code. A run of the whole suite takes them in the first combination only."""

_in_use = [ALL["plain-plain-uvloop"]]


def current() -> Combination:
    """The one in use; outside of tests/wire both sides are plain."""
    return _in_use[-1]


@contextmanager
def using(combination: Combination) -> Iterator[None]:
    """Use one within the context."""
    _in_use.append(combination)
    try:
        yield
    finally:
        _in_use.pop()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """For tests that drive a part of the proxy in their own process."""
    return uvloop.new_event_loop() if current().loop == "uvloop" else asyncio.new_event_loop()


@cache
def _authority() -> trustme.CA:
    """Whom both sides trust."""
    return trustme.CA()


@cache
def _certificate() -> trustme.LeafCert:
    """Of all upstreams and listeners."""
    return _authority().issue_cert("127.0.0.1", "localhost")


@cache
def client_context() -> ssl.SSLContext:
    """For who connects: the other side's certificate is verified."""
    context = ssl.create_default_context()
    _authority().configure_trust(context)
    return context


@cache
def server_context() -> ssl.SSLContext:
    """For who is connected to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _certificate().configure_cert(context)
    return context


@contextmanager
def wired(
    settings: Mapping[str, Any], *, log: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """A proxy of the combination in use with these settings, ended with the context."""
    combination = current()
    with scratch() as directory:
        arguments = configuration(directory, _secured(settings, combination, directory))
        # An event loop that cannot be imported is not used; there is no setting for it, since nobody wants the slower one.
        hidden = {} if combination.loop == "uvloop" else _without_uvloop(directory)
        with proxy(*arguments, log=log, environment={**(environment or {}), **hidden}) as program:
            assert (combination.loop == "uvloop") == _uses_uvloop(program), "the event loop is the one that was asked for"
            yield program


def _secured(settings: Mapping[str, Any], combination: Combination, directory: Path) -> dict[str, Any]:
    """The settings, with a certificate for clients, and for upstreams with https:// the authority that they are trusted by."""
    _authority().cert_pem.write_to_path(directory / "authority.pem")
    secured = dict(settings)
    if combination.client_tls:
        _certificate().private_key_pem.write_to_path(directory / "key.pem")
        _certificate().cert_chain_pems[0].write_to_path(directory / "certificate.pem")
        secured["tls"] = {"certificate_file": "certificate.pem", "key_file": "key.pem"}
    secured["upstreams"] = {
        name: {"tls": {"ca_file": "authority.pem"}, **upstream} if upstream["url"].startswith("https:") else upstream
        for name, upstream in settings["upstreams"].items()
    }
    return secured


def _without_uvloop(directory: Path) -> dict[str, str]:
    """An environment in which uvloop is not found."""
    (directory / "uvloop.py").write_text('raise ImportError("hidden")\n')
    return {"PYTHONPATH": str(directory)}


def _uses_uvloop(program: Program) -> bool:
    """Whether its library is in the process."""
    return "uvloop" in Path(f"/proc/{program.process.pid}/maps").read_text()
