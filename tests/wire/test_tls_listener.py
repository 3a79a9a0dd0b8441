"""TLS towards clients: real ones are served as over plain sockets; what is no TLS ends without an answer and without a fault."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from idemproxy import listening
from idemproxy.config.settings import Address, ListenerTls
from tests.process.asking import counted, eventually
from tests.processes import Program, scratch
from tests.wire.bytestream import PATIENCE, ByteStream
from tests.wire.client import new_key, outcome, request, status
from tests.wire.combination import ALL, Combination, using, wired
from tests.wire.peer import answering, authority, peers, write_pair


@dataclass(frozen=True)
class Served:
    """A proxy that speaks TLS to clients, and the file of the authority that they trust."""

    program: Program
    trusted: Path

    def context(self) -> ssl.SSLContext:
        """For a client."""
        return ssl.create_default_context(cafile=str(self.trusted))

    def connect(self) -> socket.socket:
        """A connection on which nothing has been said."""
        return socket.create_connection(("127.0.0.1", self.program.port), PATIENCE)

    def serves(self) -> bool:
        """Whether a client that does everything right is answered."""
        with self.context().wrap_socket(self.connect(), server_hostname="localhost") as sock:
            stream = ByteStream(sock)
            stream.send(request("POST", "/charges", body=b"amount=1", key=new_key()))
            answer = stream.message()
            return (200, "executed", b"ok") == (status(answer), outcome(answer), answer.body)


@pytest.fixture(scope="module")
def served(combination: Combination) -> Iterator[Served]:
    """A proxy of this module's own, on the event loop of the combination."""
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        api = stack.enter_context(peers(api=lambda sock: answering(ByteStream(sock))))["api"]
        authority().cert_pem.write_to_path(directory / "trusted.pem")
        settings = {
            "tls": write_pair(authority().issue_cert("localhost"), directory, "mine"),
            "upstreams": {"api": {"url": f"http://127.0.0.1:{api.port}"}},
            "store": {"url": f"sqlite:///{directory}/records.db"},
        }
        with using(ALL[f"plain-plain-{combination.loop}"]):  # whose certificate is not this one's
            program = stack.enter_context(wired(settings))
        yield Served(program, directory / "trusted.pem")
        assert "" == "".join(line for line in program.told if not line.startswith("INFO")), "what others do is no fault of ours"


def test_it_says_that_it_speaks_tls(served: Served) -> None:
    """The start-up line of the listener has https, that of the admin listener has not."""
    assert [f"https://127.0.0.1:{served.program.port}", "http"] == [served.program.url, served.program.admin.partition(":")[0]]


def test_curl(served: Served) -> None:
    """`curl --cacert`, twice with one key: executed, and replayed."""
    url = f"https://localhost:{served.program.port}/charges"
    fields = ("-H", f"Idempotency-Key: {new_key()}", "-d", "amount=1")
    command = [
        "curl",
        "-s",
        "--max-time",
        "20",
        "--cacert",
        str(served.trusted),
        "-w",
        "%header{idempotency-status}",
        *fields,
        url,
    ]

    found = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition(";")[0] for _ in range(2)]

    assert ["okexecuted", "okreplayed"] == found


def test_httpx(served: Served) -> None:
    """A client of Python's, on one connection: executed, and replayed."""
    with httpx.Client(verify=served.context(), trust_env=False) as client:
        url, fields = f"https://localhost:{served.program.port}/charges", {"Idempotency-Key": new_key()}
        found = [client.post(url, headers=fields, content=b"amount=1") for _ in range(2)]

    told = [(one.status_code, one.headers["idempotency-status"].partition(";")[0], one.content) for one in found]
    assert [(200, "executed", b"ok"), (200, "replayed", b"ok")] == told


def test_http_1_1_is_what_is_agreed_on(served: Served) -> None:
    """A client that would rather speak HTTP/2 is told HTTP/1.1 (ALPN), over TLS 1.2 as over 1.3."""
    found = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = served.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.minimum_version = context.maximum_version = version
        with context.wrap_socket(served.connect(), server_hostname="localhost") as sock:
            found.append((sock.version(), sock.selected_alpn_protocol()))

    assert [("TLSv1.2", "http/1.1"), ("TLSv1.3", "http/1.1")] == found


def test_an_older_tls_is_refused(served: Served) -> None:
    """TLS 1.1 is at an end (RFC 8996)."""
    context = served.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1

    with closing(served.connect()) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname="localhost")
    assert served.serves()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00" * 100,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\xff\xff" + b"\x01" * 400,
    ],
    ids=["http", "nothing", "ssh", "hello"],
)
def test_what_is_no_tls_is_hung_up_on(served: Served, said: bytes) -> None:
    """No HTTP comes back, at most an alert of TLS; the next client is served."""
    with closing(served.connect()) as sock:
        sock.sendall(said)
        try:
            sock.shutdown(socket.SHUT_WR)
            heard = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        except OSError:
            heard = b""

    assert (False, True) == (b"HTTP/" in heard, served.serves())


def test_a_handshake_that_breaks_off_is_nobodys_business(served: Served) -> None:
    """Port scans: connections that end at once, by FIN or RST, within the greeting, or since the client trusts nobody.

    Nothing is logged of them; those who refused our certificate are counted, since they may be clients who need another.
    """
    before = counted(served.program.admin, "idemproxy_tls_handshakes_failed_total")
    outgoing = ssl.MemoryBIO()
    greeting = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        greeting.do_handshake()
    hello = outgoing.read()
    for said in (b"", hello[:20], hello):
        for linger in (0, 1):
            with closing(served.connect()) as sock:
                sock.sendall(said)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
    for _ in range(3):
        with closing(served.connect()) as sock, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")

    assert served.serves()
    eventually(lambda: counted(served.program.admin, "idemproxy_tls_handshakes_failed_total") == before + 3)


def test_a_client_that_ends_beneath_tls_in_the_middle_of_a_body_has_asked_for_nothing(served: Served) -> None:
    """A body that is cut is never forwarded; the same key is free for the whole one."""
    write = request("POST", "/charges", body=b"amount=1", key=new_key())
    with served.context().wrap_socket(served.connect(), server_hostname="localhost") as sock:
        sock.sendall(write[:-1])

    with served.context().wrap_socket(served.connect(), server_hostname="localhost") as sock:
        stream = ByteStream(sock)
        stream.send(write)
        answer = stream.message()

    assert (200, "executed") == (status(answer), outcome(answer))


def test_a_handshake_that_hangs_is_ended(combination: Combination, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects and says nothing, or half a greeting, is hung up on when the time for handshakes is over."""
    assert 10.0 == listening.HANDSHAKE_SECONDS
    monkeypatch.setattr(listening, "HANDSHAKE_SECONDS", 0.2)
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if combination.loop == "uvloop":
        import uvloop  # noqa: PLC0415 - one of two event loops

        factory = uvloop.new_event_loop

    async def hear(said: bytes, port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        heard = await reader.read()
        writer.close()
        return heard

    async def main(tls: ListenerTls) -> list[bytes]:
        shown = listening.ShownCertificate(tls, lambda: None)
        server = await listening.listen(asyncio.Protocol, Address("127.0.0.1", 0), "listening", "listen", shown)
        port = server.sockets[0].getsockname()[1]
        heard = await asyncio.wait_for(
            asyncio.gather(*(hear(said, port) for said in (b"", b"\x16\x03\x01\x02\x00\x01"))), PATIENCE
        )
        server.close()
        return heard

    with scratch() as directory, asyncio.Runner(loop_factory=factory) as runner:
        pair = write_pair(authority().issue_cert("localhost"), directory, "mine")
        assert [b"", b""] == runner.run(main(ListenerTls(**pair)))


def _hello(name: bytes) -> bytes:
    """The first words of a client that asks for a server by this name, whatever it is."""
    stand_in, outgoing = "x" * len(name), ssl.MemoryBIO()
    greeting = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=stand_in)
    with pytest.raises(ssl.SSLWantReadError):
        greeting.do_handshake()
    return outgoing.read().replace(stand_in.encode(), name)


@pytest.mark.parametrize("name", [b"\xe9" * 40, b"\xff.example", b"a\x00b.example", b"under_score.example", b"192.0.2.1"])
def test_a_name_that_no_server_has_is_nobodys_business(served: Served, name: bytes) -> None:
    """Whatever a client asks for (SNI), it is answered within TLS, the log has no line of it, and the next client is served."""
    with closing(served.connect()) as sock:
        sock.sendall(_hello(name))
        heard = sock.recv(1)

    expected = {b"\x16", b"\x15", b""}  # the server's part of the handshake, an alert, or an end
    assert (True, True) == (heard in expected, served.serves())


def test_a_goodbye_is_heard_behind_what_waited(combination: Combination) -> None:
    """What a client says in a tunnel, faster than the upstream reads, and its goodbye behind that, arrive whole."""
    said, arrived = bytes(range(256)) * 20_000, []

    def play(sock: socket.socket) -> None:
        stream = ByteStream(sock)
        stream.message()
        stream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        arrived.append(b"".join(iter(lambda: sock.recv(256), b"")))  # more slowly than it is said

    with ExitStack() as stack:
        directory, api = stack.enter_context(scratch()), stack.enter_context(peers(api=play))["api"]
        settings = {
            "tls": write_pair(authority().issue_cert("localhost"), directory, "mine"),
            "upstreams": {"api": {"url": f"http://127.0.0.1:{api.port}"}},
            "store": {"url": f"sqlite:///{directory}/records.db"},
        }
        with using(ALL[f"plain-plain-{combination.loop}"]):
            program = stack.enter_context(wired(settings))
        authority().cert_pem.write_to_path(directory / "trusted.pem")
        served = Served(program, directory / "trusted.pem")
        for _ in range(5):
            with served.context().wrap_socket(served.connect(), server_hostname="localhost") as sock:
                client = ByteStream(sock)
                client.send(request("GET", "/", "Connection: Upgrade", "Upgrade: websocket"))
                assert 101 == status(client.head())
                client.send(said)
                sock.unwrap()
        eventually(lambda: len(arrived) == 5)

    assert [True] * 5 == [said == whole for whole in arrived]
