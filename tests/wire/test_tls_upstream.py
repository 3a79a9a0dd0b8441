"""TLS to an upstream: who is not proved to be the one that is meant gets no byte, and what breaks off after one is unknown."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.process.asking import eventually
from tests.processes import Program, scratch
from tests.wire.bytestream import ByteStream
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.combination import Combination, wired
from tests.wire.conftest import Records
from tests.wire.peer import OK, Peer, answering, authority, connections_to, context_of, over_tls, peers, stranger, write_pair

A_WHILE = 5.0
"""Seconds; the peers themselves hang up after ten."""

LONG = bytes(range(256)) * 20_000


@dataclass(frozen=True)
class Secured:
    """A proxy whose upstreams speak TLS, each in a way of its own; a test asks for one by its name as Host."""

    program: Program
    records: Records
    upstreams: dict[str, Peer]

    def write(self, host: str, key: str) -> bytes:
        """A write for an upstream."""
        return request("POST", "/charges", f"Host: {host}", body=b"amount=1", key=key)


def _of_stranger() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger().issue_cert("localhost").configure_cert(context)
    return context


def _old() -> ssl.SSLContext:
    """A server that speaks TLS 1.1 at most."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("localhost").configure_cert(context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def _asking_for_a_certificate(newest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("localhost").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority().configure_trust(context)
    context.maximum_version = newest
    return context


_asked: dict[str, set[str | None]] = {}


def _noting_the_name(name: str) -> ssl.SSLContext:
    """A server with this name, which notes the one that it is asked for (SNI)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(name).configure_cert(context)
    asked = _asked.setdefault(name, set())
    context.sni_callback = lambda _connection, sent, _context: asked.add(sent)
    return context


def _speaking_plainly(sock: socket.socket) -> None:
    sock.recv(1 << 16)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def _leaving(sock: socket.socket) -> None:
    """Hang up in order, having read what the client said."""
    sock.recv(1 << 16)


def _hanging(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def _half(stream: ByteStream) -> None:
    """An answer that is whole when the connection is closed."""
    stream.message()
    stream.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")


def _cut(stream: ByteStream) -> None:
    """As `_half`, and the connection ends, but TLS does not."""
    _half(stream)
    stream.sock.close()


def _closed(stream: ByteStream) -> None:
    """As `_half`, and TLS ends, and then the connection."""
    _half(stream)
    assert isinstance(stream.sock, ssl.SSLSocket)
    stream.sock.unwrap()


def _long(stream: ByteStream) -> None:
    """An answer that fills every buffer on the way, ended by TLS; the connection ends when the proxy has said goodbye too."""
    stream.message()
    stream.send(b"HTTP/1.1 200 OK\r\n\r\n" + LONG)
    assert isinstance(stream.sock, ssl.SSLSocket)
    stream.sock.unwrap()


def _long_tunnel(stream: ByteStream) -> None:
    """As `_long`, of another protocol."""
    stream.message()
    stream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + LONG)
    assert isinstance(stream.sock, ssl.SSLSocket)
    stream.sock.unwrap()


def _reset(stream: ByteStream) -> None:
    """A part of an answer, and a reset."""
    stream.message()
    stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.sock.close()


def _one_answer(stream: ByteStream) -> None:
    """An answer after which another request might follow, and a goodbye in its place."""
    stream.message()
    stream.send(OK)
    assert isinstance(stream.sock, ssl.SSLSocket)
    stream.sock.unwrap()


PLAYS = {
    "good": over_tls(context_of("localhost"), answering),
    "address": over_tls(_noting_the_name("127.0.0.1"), answering),
    "named": over_tls(_noting_the_name("other.example"), answering),
    "expired": over_tls(context_of("localhost", expired=True), answering),
    "misnamed": over_tls(context_of("elsewhere.example"), answering),
    "stranger": over_tls(_of_stranger(), answering),
    "old": over_tls(_old(), answering),
    "plain": _speaking_plainly,
    "closing": lambda sock: sock.close(),
    "leaving": _leaving,
    "hanging": _hanging,
    "mutual": over_tls(_asking_for_a_certificate(ssl.TLSVersion.TLSv1_3), answering),
    "late": over_tls(_asking_for_a_certificate(ssl.TLSVersion.TLSv1_3), answering),
    "early": over_tls(_asking_for_a_certificate(ssl.TLSVersion.TLSv1_2), answering),
    "cut": over_tls(context_of("localhost"), _cut),
    "closed": over_tls(context_of("localhost"), _closed),
    "reset": over_tls(context_of("localhost"), _reset),
    "long": over_tls(context_of("localhost"), _long),
    "tunnel": over_tls(context_of("localhost"), _long_tunnel),
    "brief": over_tls(context_of("localhost"), _one_answer),
}


@pytest.fixture(scope="module")
def secured(combination: Combination) -> Iterator[Secured]:
    """A proxy of this module's own."""
    with scratch() as directory, peers(**PLAYS) as found:
        authority().cert_pem.write_to_path(directory / "trusted.pem")
        tls: dict[str, object] = {"ca_file": str(directory / "trusted.pem")}
        upstreams: dict[str, dict[str, object]] = {
            name: {"url": f"https://localhost:{peer.port}", "tls": tls} for name, peer in found.items()
        }
        upstreams["address"]["url"] = f"https://127.0.0.1:{found['address'].port}"
        upstreams["named"]["tls"] = {**tls, "server_name": "other.example"}
        upstreams["mutual"]["tls"] = {**tls, **write_pair(authority().issue_cert("me.example"), directory, "mine")}
        upstreams["hanging"]["timeouts"] = {"connect": "300ms"}
        settings = {
            "upstreams": upstreams,
            "store": {"url": f"sqlite:///{directory}/records.db"},
            "routes": [{"name": name, "match": {"host": name}, "upstream": name} for name in found],
        }
        with wired(settings) as program:
            yield Secured(program, Records(directory / "records.db"), found)
        assert "" == "".join(line for line in program.told if not line.startswith("INFO")), (
            "what others do is no fault to complain of"
        )


@pytest.mark.parametrize("host", ["good", "address", "named", "mutual"])
def test_an_upstream_that_proves_itself_is_asked_once(secured: Secured, host: str) -> None:
    """By the name of the URL, its address, the name that is set, or with a certificate of ours: executed, and then replayed."""
    write = secured.write(host, new_key())

    found = [ask(secured.program.port, write) for _ in range(2)]

    assert [(200, "executed", b"ok"), (200, "replayed", b"ok")] == [(status(one), outcome(one), one.body) for one in found]


def test_a_name_is_asked_for_and_an_address_is_not(secured: Secured) -> None:
    """SNI is the name that is set; a host that is an address is never sent as one (RFC 6066, section 3)."""
    for host in ("named", "address"):
        ask(secured.program.port, request("GET", "/", f"Host: {host}"))

    assert {"other.example": {"other.example"}, "127.0.0.1": {None}} == _asked


@pytest.mark.parametrize(
    ("host", "told", "error", "why"),
    [
        ("expired", 502, "tls_certificate_error", "the certificate of {} is not trusted: certificate has expired"),
        (
            "misnamed",
            502,
            "tls_certificate_error",
            "the certificate of {} is not trusted: Hostname mismatch, certificate is not valid for 'localhost'.",
        ),
        (
            "stranger",
            502,
            "tls_certificate_error",
            "the certificate of {} is not trusted: unable to get local issuer certificate",
        ),
        ("old", 502, "tls_protocol_error", "no TLS with {}: "),
        ("plain", 502, "tls_protocol_error", "no TLS with {}: WRONG_VERSION_NUMBER"),
        ("closing", 502, "destination_unavailable", ""),  # FIN or RST, as it comes
        ("leaving", 502, "destination_unavailable", "{} closed the connection during the TLS handshake: retry"),
        ("hanging", 504, "connection_timeout", "no connection to {} within 0.3 s"),
        ("early", 502, "tls_protocol_error", "no TLS with {}: "),
    ],
)
def test_a_handshake_that_fails_sends_nothing_and_frees_the_key(
    secured: Secured, host: str, told: int, error: str, why: str
) -> None:
    """Each failure has its name, says why, and leaves no record: the same key is tried anew."""
    key = new_key()

    found = [ask(secured.program.port, secured.write(host, key)) for _ in range(2)]

    place = f"localhost:{secured.upstreams[host].port}"
    assert [(told, "not-sent", "no", "same_key")] * 2 == [problem(one) for one in found]
    assert ["refused"] * 2 == [outcome(one) for one in found]
    fields = [f'idemproxy; error={error}; details="not-sent"'.encode()]
    assert [fields] * 2 == [one.values("proxy-status") for one in found]
    details = [json.loads(one.body)["detail"] for one in found]
    begin = f"The request was not sent, since {why.format(place)}"
    assert [begin] * 2 == [detail[: len(begin)] for detail in details]
    assert secured.records.phase(key) is None


def test_a_certificate_that_is_asked_for_and_missing_leaves_the_outcome_unknown(secured: Secured) -> None:
    """In TLS 1.3 the refusal comes after the handshake, when the request may have been written: unknown, and never sent again."""
    key = new_key()

    first, second = (ask(secured.program.port, secured.write("late", key)) for _ in range(2))

    assert (502, "outcome-unknown", "unknown", "after_check") == problem(first)
    assert (409, "outcome-unknown", "unknown", "after_check") == problem(second)
    assert "unknown" == secured.records.phase(key)


def test_an_answer_that_ends_with_tls_is_whole(secured: Secured) -> None:
    """Delimited by the end of the connection, it is complete when the upstream has said so (close_notify)."""
    write = secured.write("closed", new_key())

    found = [ask(secured.program.port, write) for _ in range(2)]

    assert [(200, "executed", b"half"), (200, "replayed", b"half")] == [(status(one), outcome(one), one.body) for one in found]


def test_a_goodbye_is_heard_behind_what_waited(secured: Secured) -> None:
    """Ten long answers and tunnels, whose reading is paused on the way: all whole, and the goodbye is returned."""
    for _ in range(5):
        answer = ask(secured.program.port, secured.write("long", new_key()))
        assert (200, "executed", True) == (status(answer), outcome(answer), LONG == answer.body)
        with Client(secured.program.port) as client:
            client.send(request("GET", "/", "Host: tunnel", "Connection: Upgrade", "Upgrade: websocket"))
            assert (101, True) == (status(client.head()), LONG == client.rest())


@pytest.mark.parametrize("host", ["cut", "reset"])
def test_an_answer_that_is_cut_beneath_tls_is_unknown(secured: Secured, host: str) -> None:
    """Whoever sits on the way can end a connection, but not TLS: such an end delimits nothing (a truncation attack)."""
    key = new_key()

    first, second = (ask(secured.program.port, secured.write(host, key)) for _ in range(2))

    assert (502, "outcome-unknown", "unknown", "after_check") == problem(first)
    assert (409, "outcome-unknown", "unknown", "after_check") == problem(second)
    assert "unknown" == secured.records.phase(key)


def test_a_download_that_is_cut_beneath_tls_is_cut_for_the_client_too(secured: Secured) -> None:
    """A read that passes through does not look whole either."""
    with Client(secured.program.port) as client:
        client.send(request("GET", "/", "Host: cut"))
        head = client.head()
        with pytest.raises((EOFError, ConnectionResetError)):
            client.until(b"\r\n0\r\n\r\n")

    assert (200, [b"chunked"]) == (status(head), head.values("transfer-encoding"))


def test_a_kept_connection_that_the_upstream_has_ended_is_not_used(secured: Secured) -> None:
    """Ten writes, each followed by the upstream's goodbye: each goes out on a connection that lives, and none is unknown."""
    found = [ask(secured.program.port, secured.write("brief", new_key())) for _ in range(10)]

    assert ["executed"] * 10 == [outcome(one) for one in found]


def test_no_handshake_that_fails_leaves_a_socket_behind(secured: Secured) -> None:
    """What was opened is closed, also when the time is over."""
    failing = ("expired", "misnamed", "stranger", "old", "plain", "closing", "leaving", "hanging", "early", "late")

    for host in failing:
        ask(secured.program.port, secured.write(host, new_key()))

    eventually(lambda: connections_to({secured.upstreams[host].port for host in failing}) == 0, A_WHILE)
