"""The way out through an HTTP proxy: a tunnel for one attempt, and no byte of a request where there is none."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.process.asking import eventually
from tests.processes import Program, scratch
from tests.servers import free_port
from tests.wire.bytestream import ByteStream
from tests.wire.client import ask, new_key, outcome, problem, request, status
from tests.wire.combination import Combination, wired
from tests.wire.conftest import Records
from tests.wire.peer import OK, Peer, Play, answering, authority, connections_to, context_of, over_tls, peers

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
A_WHILE = 5.0
"""Seconds; the peers themselves hang up after ten."""
PASSWORD = "pa$s word"
CREDENTIALS, WRONG = (b"Basic " + b64encode(f"ann:{word}".encode()) for word in (PASSWORD, "other word"))


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes, up to its end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _tunnel(client: ByteStream, target: str) -> None:
    """Connect to where a CONNECT says, and carry bytes both ways."""
    host, _, port = target.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), 10) as upstream:
        client.send(ESTABLISHED)
        back = threading.Thread(target=_carry, args=(upstream, client.sock), daemon=True)
        back.start()
        _carry(client.sock, upstream)
        back.join(10)


@dataclass(frozen=True)
class Gate:
    """A proxy between ours and the upstreams. `heads` are the requests that it got."""

    heads: list[bytes]

    def open(self, sock: socket.socket) -> None:
        """Let everybody through."""
        client = ByteStream(sock)
        head = client.head()
        self.heads.append(head.raw)
        _tunnel(client, head.start.split(b" ")[1].decode())

    def guarded(self, sock: socket.socket) -> None:
        """Let whoever knows the password through."""
        client = ByteStream(sock)
        head = client.head()
        self.heads.append(head.raw)
        if head.values("proxy-authorization") != [CREDENTIALS]:
            client.send(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n")
            return
        _tunnel(client, head.start.split(b" ")[1].decode())


def _answers(data: bytes) -> Play:
    """Answer a CONNECT with these bytes, and say nothing more."""

    def play(sock: socket.socket) -> None:
        stream = ByteStream(sock)
        stream.head()
        if data:
            stream.send(data)
            stream.wait_for_end()

    return play


def _leaving(sock: socket.socket) -> None:
    """Say that there is a tunnel, and hang up."""
    stream = ByteStream(sock)
    stream.head()
    stream.send(ESTABLISHED)


def _hanging(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def _plain(sock: socket.socket) -> None:
    answering(ByteStream(sock))


def _cut(stream: ByteStream) -> None:
    """Half an answer over TLS, and the end of the connection."""
    stream.message()
    stream.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    stream.sock.close()


FAILING = {
    "unauthorized": _answers(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 5\r\n\r\nsecret"),
    "forbidden": _answers(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
    "unreachable": _answers(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"),
    "redirecting": _answers(b"HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n"),
    "garbage": _answers(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "closing": _answers(b""),
    "hanging": _hanging,
    "endless": _answers(b"HTTP/1.1 200 OK\r\n" + b"X-Padding: %b\r\n" % (b"x" * 1000) * 17),
    "talkative": _answers(ESTABLISHED + OK),
    "noisy": _answers(ESTABLISHED + b"220 mail.example\r\n"),
    "leaving": _leaving,
    "silent": _answers(ESTABLISHED),
}


@dataclass(frozen=True)
class Egress:
    """A proxy of ours whose upstreams are reached through others; a test asks for one by its name as Host."""

    program: Program
    records: Records
    heads: list[bytes]
    upstreams: dict[str, Peer]
    ports: dict[str, int]


@pytest.fixture(scope="module")
def egress(combination: Combination) -> Iterator[Egress]:
    """A proxy of this module's own."""
    gate = Gate([])
    targets: dict[str, Play] = {
        "secure": over_tls(context_of("localhost"), answering),
        "plain": _plain,
        "cut": over_tls(context_of("localhost"), _cut),
        "misnamed": over_tls(context_of("elsewhere.example"), answering),
    }
    with scratch() as directory, peers(open=gate.open, guarded=gate.guarded, **FAILING) as ways, peers(**targets) as upstreams:
        authority().cert_pem.write_to_path(directory / "trusted.pem")
        tls = {"ca_file": str(directory / "trusted.pem")}
        secure, plain = (
            f"{scheme}://localhost:{upstreams[name].port}" for scheme, name in (("https", "secure"), ("http", "plain"))
        )
        ports = {name: peer.port for name, peer in ways.items()} | {"absent": free_port()}
        proxies = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        named = f"http://ann:pa$s%20word@localhost:{ports['guarded']}"
        patience = {"timeouts": {"connect": "500ms"}}
        settings: dict[str, dict[str, object]] = {
            "secure": {"url": secure, "tls": tls, "proxy": proxies["open"]},
            "plain": {"url": plain, "proxy": proxies["open"]},
            "guarded": {"url": secure, "tls": tls, "proxy": named},
            "wrong": {"url": secure, "tls": tls, "proxy": named.replace("pa$s", "other")},
            "cut": {"url": f"https://localhost:{upstreams['cut'].port}", "tls": tls, "proxy": proxies["open"]},
            "misnamed": {"url": f"https://localhost:{upstreams['misnamed'].port}", "tls": tls, "proxy": proxies["open"]},
            "nameless": {"url": secure, "tls": tls, "proxy": "http://no-such-host.invalid:3128"},
            "absent": {"url": secure, "tls": tls, "proxy": proxies["absent"]},
            **{f"{name}-secure": {"url": secure, "tls": tls, "proxy": proxies[name], **patience} for name in FAILING},
            **{f"{name}-plain": {"url": plain, "proxy": proxies[name], **patience} for name in FAILING},
        }
        text = {
            "upstreams": json.loads(json.dumps(settings).replace("pa$s", "pa$$s")),
            "store": {"url": f"sqlite:///{directory}/records.db"},
            "routes": [{"name": name, "match": {"host": name}, "upstream": name} for name in settings],
        }
        with wired(text, environment={"RES_OPTIONS": "timeout:1 attempts:1"}) as program:
            yield Egress(program, Records(directory / "records.db"), gate.heads, upstreams, ports)
        told = "".join(program.told)
        assert "" == "".join(line for line in program.told if not line.startswith("INFO")), "what others do is no fault of ours"
        assert not [secret for secret in ("pa$s", "word", CREDENTIALS.decode().split()[1]) if secret in told], told


def _write(host: str, key: str) -> bytes:
    return request("POST", "/charges", f"Host: {host}", body=b"amount=1", key=key)


@pytest.mark.parametrize("host", ["secure", "plain", "guarded"])
def test_a_write_goes_through_the_tunnel_once(egress: Egress, host: str) -> None:
    """Over TLS or plain, with credentials or without: executed, and then replayed."""
    write = _write(host, new_key())

    found = [ask(egress.program.port, write) for _ in range(2)]

    assert [(200, "executed", b"ok"), (200, "replayed", b"ok")] == [(status(one), outcome(one), one.body) for one in found]


def test_the_proxy_is_told_where_to_and_nothing_else(egress: Egress) -> None:
    """CONNECT with host and port, Host, and the credentials where there are some: no field of the client's."""
    for host in ("secure", "plain", "guarded"):
        ask(egress.program.port, request("GET", "/", f"Host: {host}", "User-Agent: me", "Cookie: a=b"))

    secure, plain = (f"localhost:{egress.upstreams[name].port}".encode() for name in ("secure", "plain"))
    bare = {b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (place, place) for place in (secure, plain)}
    named = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nProxy-Authorization: %b\r\n\r\n" % (secure, secure, CREDENTIALS)
    found = {head for head in egress.heads if head.split(b" ")[1] in {secure, plain} and WRONG not in head}
    assert bare | {named} == found


def test_a_tunnel_is_kept_for_the_next_request(egress: Egress) -> None:
    """Two requests in a row are one CONNECT."""
    before = len(egress.heads)

    found = [ask(egress.program.port, _write("secure", new_key())) for _ in range(5)]

    assert ["executed"] * 5 == [outcome(one) for one in found]
    assert len(egress.heads) - before <= 1


REFUSED = "{} opened no tunnel to {}: its status is "
SURPLUS = "{} sent something that nobody had asked for"


@pytest.mark.parametrize("kind", ["secure", "plain"])
@pytest.mark.parametrize(
    ("way", "told", "error", "why"),
    [
        (
            "unauthorized",
            502,
            "proxy_configuration_error",
            REFUSED + "407, so it wants other credentials in the upstream's `proxy`",
        ),
        ("forbidden", 502, "destination_unavailable", REFUSED + "403, and whoever runs it can tell why"),
        ("unreachable", 502, "destination_unavailable", REFUSED + "502, and whoever runs it can tell why"),
        ("redirecting", 502, "destination_unavailable", REFUSED + "302, and whoever runs it can tell why"),
        ("garbage", 502, "destination_unavailable", "{} answered something else than HTTP"),
        ("closing", 502, "destination_unavailable", "{} closed the connection without an answer"),
        ("hanging", 504, "connection_timeout", "no connection to {1} through {0} within 0.5 s"),
        ("endless", 502, "destination_unavailable", "{} answered with a head of more than 16 KiB"),
        ("talkative", 502, "destination_unavailable", SURPLUS),
        ("noisy", 502, "destination_unavailable", SURPLUS),
    ],
)
def test_a_proxy_that_opens_no_tunnel_has_sent_nothing(
    egress: Egress, way: str, kind: str, told: int, error: str, why: str
) -> None:
    """Whatever it does instead, the key is free, and the detail says which proxy it was, its status, and nothing more of it."""
    key = new_key()

    found = [ask(egress.program.port, _write(f"{way}-{kind}", key)) for _ in range(2)]

    assert [(told, "not-sent", "no", "same_key")] * 2 == [problem(one) for one in found]
    assert [[f'idemproxy; error={error}; details="not-sent"'.encode()]] * 2 == [one.values("proxy-status") for one in found]
    reason = why.format(f"the proxy 127.0.0.1:{egress.ports[way]}", f"localhost:{egress.upstreams[kind].port}")
    detail = f"The request was not sent, since {reason}: retry with the same key."
    assert [detail] * 2 == [json.loads(one.body)["detail"] for one in found]
    assert egress.records.phase(key) is None


@pytest.mark.parametrize(
    ("host", "told", "error", "why"),
    [
        ("nameless", 502, "dns_error", "the name no-such-host.invalid does not resolve"),
        ("absent", 502, "connection_refused", "the proxy 127.0.0.1:{absent} refused the connection"),
        ("wrong", 502, "proxy_configuration_error", "the proxy localhost:{guarded} opened no tunnel"),
        ("misnamed", 502, "tls_certificate_error", "the certificate of localhost:{misnamed} is not trusted"),
        ("silent-secure", 504, "connection_timeout", "no connection to localhost:{secure} through the proxy 127.0.0.1"),
    ],
)
def test_what_fails_on_the_way_to_a_tunnel_or_within_it_has_sent_nothing(
    egress: Egress, host: str, told: int, error: str, why: str
) -> None:
    """Each failure says at which of the two places it was."""
    key = new_key()

    answer = ask(egress.program.port, _write(host, key))

    ports = egress.ports | {name: peer.port for name, peer in egress.upstreams.items()}
    assert (told, "not-sent", "no", "same_key") == problem(answer)
    assert [f'idemproxy; error={error}; details="not-sent"'.encode()] == answer.values("proxy-status")
    assert f"The request was not sent, since {why.format(**ports)}" in json.loads(answer.body)["detail"]
    assert egress.records.phase(key) is None


def test_a_tunnel_that_ends_as_soon_as_it_stands_has_carried_nothing(egress: Egress) -> None:
    """Whether the end comes with the proxy's consent or within the handshake that follows: not sent, and at once."""
    key = new_key()

    found = [ask(egress.program.port, _write("leaving-secure", key)) for _ in range(5)]

    assert [(502, "not-sent", "no", "same_key")] * 5 == [problem(one) for one in found]
    fields = [b'idemproxy; error=destination_unavailable; details="not-sent"']
    assert [fields] * 5 == [one.values("proxy-status") for one in found]
    assert egress.records.phase(key) is None


def test_an_answer_that_is_cut_within_a_tunnel_is_unknown(egress: Egress) -> None:
    """The proxy, too, can end a connection, but not TLS."""
    key = new_key()

    answer = ask(egress.program.port, _write("cut", key))

    assert (502, "outcome-unknown", "unknown", "after_check") == problem(answer)
    assert "unknown" == egress.records.phase(key)


def test_no_failure_leaves_a_socket_behind(egress: Egress) -> None:
    """What was opened on the way to a tunnel that did not come to stand is closed, also when the time is over."""
    for way in FAILING.keys() - {"silent"}:
        for kind in ("secure", "plain"):
            ask(egress.program.port, _write(f"{way}-{kind}", new_key()))
    ask(egress.program.port, _write("silent-secure", new_key()))

    eventually(lambda: connections_to({egress.ports[name] for name in FAILING}) == 0, A_WHILE)
