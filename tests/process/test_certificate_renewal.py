"""SIGHUP at a listener that speaks TLS: new connections get the new certificate, old ones go on, and half a pair never serves."""

from __future__ import annotations

import datetime as dt
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGHUP

import pytest
import trustme

from tests.process.asking import configuration, eventually, samples
from tests.process.upstream import upstream
from tests.processes import Program, proxy

HOUR = dt.timedelta(hours=1)
LONG_AGO = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
UNTIL = dt.datetime(2998, 7, 6, 5, 4, tzinfo=dt.UTC)
MANY = 24
"""Connections of which the system gives each of two workers some, but once in eight million times."""
REQUEST = b"GET /charges HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Renewable:
    """A running proxy, and the directory with its certificate and key."""

    program: Program
    directory: Path
    authority: trustme.CA

    def write(self, leaf: trustme.LeafCert, *, certificate: bool = True, key: bool = True) -> None:
        """Put a pair, or half of one, in the place of what is there."""
        _write(self.directory, leaf, certificate=certificate, key=key)

    def hang_up(self) -> str:
        """Send SIGHUP, and return the line that answers it."""
        before = len(_answers(self.program))
        self.program.send(SIGHUP)
        eventually(lambda: len(_answers(self.program)) > before)
        return _answers(self.program)[-1]

    def connect(self) -> ssl.SSLSocket:
        """A client that trusts the authority."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        sock = socket.create_connection(("127.0.0.1", self.program.port), 20)
        return context.wrap_socket(sock, server_hostname="localhost")

    def serial(self) -> object:
        """The number of the certificate that a new client is shown."""
        with self.connect() as sock:
            return (sock.getpeercert() or {})["serialNumber"]

    def failed(self) -> float:
        """What the metrics say of the last reload."""
        return samples(self.program.admin)["idemproxy_reload_failed", ()]


def _answers(program: Program) -> list[str]:
    """The lines that answer SIGHUP."""
    return [line for line in program.told if "SIGHUP" in line]


def _has_answered(program: Program, times: int) -> bool:
    return len(_answers(program)) == times


def _write(directory: Path, leaf: trustme.LeafCert, *, certificate: bool = True, key: bool = True) -> None:
    if certificate:
        (directory / "certificate.pem").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    if key:
        (directory / "key.pem").write_bytes(leaf.private_key_pem.bytes())


def _asked(sock: ssl.SSLSocket) -> bytes:
    """The status line of one answer, and the rest of it taken too."""
    sock.sendall(REQUEST)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(1 << 16)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(body) < length:
        body += sock.recv(1 << 16)
    return head.split(b"\r\n")[0]


@pytest.fixture(params=["uvloop", "asyncio"])
def renewable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Renewable]:
    """A proxy that speaks TLS to clients, on either event loop."""
    authority = trustme.CA()
    _write(tmp_path, authority.issue_cert("localhost"))
    environment = {}
    if request.param == "asyncio":
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "uvloop.py").write_text('raise ImportError("hidden")\n')
        environment = {"PYTHONPATH": str(tmp_path / "hidden")}
    with upstream() as api:
        settings = {
            "tls": {"certificate_file": "certificate.pem", "key_file": "key.pem"},
            "upstreams": {"api": {"url": api.url}},
            "store": {"url": f"sqlite:///{tmp_path}/records.db"},
        }
        with proxy(*configuration(tmp_path, settings), environment=environment) as program:
            yield Renewable(program, tmp_path, authority)


def test_a_new_certificate_is_shown_to_new_clients_only(renewable: Renewable) -> None:
    """After SIGHUP, not before: also with TLS 1.2 and without SNI. An old connection goes on; the log tells until when."""
    old = renewable.serial()
    leaf = renewable.authority.issue_cert("localhost", not_before=LONG_AGO, not_after=UNTIL)
    with renewable.connect() as before:
        first = _asked(before)
        renewable.write(leaf)
        unasked = renewable.serial()
        told = renewable.hang_up()
        second = _asked(before)
    new = renewable.serial()

    context = ssl.create_default_context()
    renewable.authority.configure_trust(context)
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with context.wrap_socket(socket.create_connection(("127.0.0.1", renewable.program.port), 20)) as nameless:
        old_style = (nameless.getpeercert() or {})["serialNumber"]

    assert "INFO SIGHUP: only the certificate was read again; it is valid until 2998-07-06 05:04 UTC\n" == told
    assert (b"HTTP/1.1 201 Created", b"HTTP/1.1 201 Created") == (first, second)
    assert (old, new) == (unasked, old_style)
    assert old != new


def _foreign_key(renewable: Renewable) -> None:
    renewable.write(renewable.authority.issue_cert("localhost"), certificate=False)


def _foreign_certificate(renewable: Renewable) -> None:
    renewable.write(renewable.authority.issue_cert("localhost"), key=False)


def _half_a_file(renewable: Renewable) -> None:
    file = renewable.directory / "certificate.pem"
    os.truncate(file, file.stat().st_size // 2)


def _no_file(renewable: Renewable) -> None:
    (renewable.directory / "key.pem").unlink()


@pytest.mark.parametrize(
    ("spoil", "setting", "why"),
    [
        (_foreign_key, "key_file", "does not belong to the certificate"),
        (_foreign_certificate, "key_file", "does not belong to the certificate"),
        (_half_a_file, "certificate_file", "cannot be read"),
        (_no_file, "key_file", "there is no file"),
    ],
)
def test_what_cannot_be_used_changes_nothing(
    renewable: Renewable, spoil: Callable[[Renewable], None], setting: str, why: str
) -> None:
    """Half a pair, half a file, or none: one line of error says which and why, and the certificate from before stays."""
    old = renewable.serial()

    spoil(renewable)
    told = renewable.hang_up()

    assert told.startswith(f"ERROR SIGHUP: the certificate from before stays: tls.{setting}: "), told
    assert why in told
    assert [old] * 3 == [renewable.serial() for _ in range(3)]
    assert [] == [line for line in renewable.program.told if "Traceback" in line]


def test_a_mended_pair_is_taken_the_next_time(renewable: Renewable) -> None:
    """An error is not for ever, in the log and in the metrics."""
    leaf = renewable.authority.issue_cert("localhost")
    old = renewable.serial()
    renewable.write(leaf, key=False)
    first = renewable.hang_up(), renewable.failed()
    renewable.write(leaf)
    second = renewable.hang_up(), renewable.failed()

    assert [(True, 1), (True, 0)] == [(first[0].startswith("ERROR"), first[1]), (second[0].startswith("INFO"), second[1])]
    assert old != renewable.serial()


@pytest.mark.parametrize(
    ("begin", "end", "why"),
    [(LONG_AGO, LONG_AGO + HOUR, "certificate has expired"), (UNTIL - HOUR, UNTIL, "certificate is not yet valid")],
)
def test_a_certificate_that_clients_refuse_does_not_take_the_place_of_one_that_they_take(
    renewable: Renewable, begin: dt.datetime, end: dt.datetime, why: str
) -> None:
    """One line of error says so, and new clients are served as before."""
    old = renewable.serial()

    renewable.write(renewable.authority.issue_cert("localhost", not_before=begin, not_after=end))
    told = renewable.hang_up()

    assert f"ERROR SIGHUP: the certificate from before stays, since clients would refuse the new one: {why}\n" == told
    assert old == renewable.serial()


def test_of_two_certificates_that_clients_refuse_the_new_one_is_taken(tmp_path: Path) -> None:
    """The clock may be what is wrong: the operator is told, and decides."""
    authority = trustme.CA()
    _write(tmp_path, authority.issue_cert("localhost", not_before=LONG_AGO, not_after=LONG_AGO + HOUR))
    settings = {
        "tls": {"certificate_file": "certificate.pem", "key_file": "key.pem"},
        "upstreams": {"api": {"url": "http://localhost:1"}},
        "store": {"url": f"sqlite:///{tmp_path}/records.db"},
    }
    with proxy(*configuration(tmp_path, settings)) as program:
        renewable = Renewable(program, tmp_path, authority)
        renewable.write(authority.issue_cert("localhost", not_before=UNTIL - HOUR, not_after=UNTIL))
        told = renewable.hang_up()

        text = "only the certificate was read again, and clients refuse it: certificate is not yet valid"
        assert f"WARNING SIGHUP: {text}\n" == told
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate is not yet valid"):
            renewable.connect()


def test_a_new_certificate_of_another_kind_of_key_leaves_nothing_of_the_old_one(renewable: Renewable) -> None:
    """From ECDSA to RSA: also a client that prefers the old kind gets the new pair."""
    old = renewable.serial()
    renewable.write(renewable.authority.issue_cert("localhost", key_type=trustme.KeyType.RSA))
    renewable.hang_up()

    assert (old in {renewable.serial() for _ in range(3)}) is False


def test_every_worker_shows_the_new_certificate(tmp_path: Path) -> None:
    """Of two workers none shows the old one after SIGHUP, and both keep what they have where the files cannot be used."""
    authority = trustme.CA()
    _write(tmp_path, authority.issue_cert("localhost"))
    settings = {
        "tls": {"certificate_file": "certificate.pem", "key_file": "key.pem"},
        "upstreams": {"api": {"url": "http://localhost:1"}},
        "store": {"url": f"sqlite:///{tmp_path}/records.db"},
        "workers": 2,
    }
    with proxy(*configuration(tmp_path, settings)) as program:
        renewable = Renewable(program, tmp_path, authority)
        shown = [{renewable.serial() for _ in range(MANY)}]
        for answers, has_key in ((2, True), (4, False)):
            renewable.write(authority.issue_cert("localhost"), key=has_key)
            program.send(SIGHUP)
            eventually(partial(_has_answered, program, answers))
            shown.append({renewable.serial() for _ in range(MANY)})
        failed = renewable.failed()
    old, new, kept = shown

    assert (1, 1, new, 1) == (len(old), len(new), kept, failed)
    assert old != new


def test_files_that_are_being_rewritten_while_they_are_read(renewable: Renewable) -> None:
    """Thirty signals while another program writes: each is answered by the new pair or by one line of error, and no fault."""
    leaf = renewable.authority.issue_cert("localhost")
    whole = b"".join(part.bytes() for part in leaf.cert_chain_pems)
    renewable.write(leaf)
    over = threading.Event()

    def rewrite() -> None:
        while not over.is_set():
            for content in (whole[: len(whole) // 2], whole):
                (renewable.directory / "certificate.pem").write_bytes(content)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(30):
            renewable.program.send(SIGHUP)
            renewable.serial()
    finally:
        over.set()
        writer.join()
    renewable.write(leaf)
    told = renewable.hang_up()

    assert told.startswith("INFO"), told
    faults = ("Traceback", "a fault", "Exception")
    assert [] == [line for line in renewable.program.told if any(word in line for word in faults)]


def test_a_run_does_not_start_without_its_certificate(tmp_path: Path) -> None:
    """`run` says the same as `check`: file, line and setting, and status 2."""
    settings = "tls: {certificate_file: certificate.pem, key_file: key.pem}\nupstreams: {api: {url: 'http://localhost:1'}}\n"
    (tmp_path / "idemproxy.yaml").write_text(settings)

    found = [
        subprocess.run(
            [sys.executable, "-m", "idemproxy", command, "--config", str(tmp_path / "idemproxy.yaml")],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        for command in ("check", "run")
    ]

    text = f"{tmp_path}/idemproxy.yaml:1: tls.certificate_file: there is no file {tmp_path}/certificate.pem: check the path\n"
    assert [(2, text)] * 2 == [(one.returncode, one.stderr) for one in found]
