"""An upgrade: asked of the upstream, granted by it alone, and from then on a tunnel whose bytes are nobody's business."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.process.asking import counted
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.combination import current
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Play, Upstream, answers
from tests.wire.watched import Watched, watched

MIB = 1 << 20
UPGRADE = "Connection: Upgrade", "Upgrade: websocket"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNKNOWN = (502, "outcome-unknown", "unknown", "after_check")
ANY_BYTES = bytes(range(256)) * 4 + b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"
"""What a parser of HTTP would choke on, or take for a request."""


def switches(line: Line) -> Line:
    """Grant a client's upgrade."""
    line.request()
    line.send(SWITCHING)
    return line


def opened(port: int, *fields: str, path: str = "/chat") -> Client:
    """A client whose upgrade has been granted."""
    client = Client(port)
    client.send(request("GET", path, *(fields or UPGRADE)))
    assert 101 == status(client.head())
    return client


def test_an_upgrade_is_asked_for_and_granted_in_the_words_of_both_sides(upstream: Upstream, port: int) -> None:
    """The upstream is offered what the client offers; the client gets the upstream's 101, its protocol included."""

    def switches_in_its_own_words(line: Line) -> None:
        line.request()
        line.send(
            b"HTTP/1.1 101 Here we go\r\nSec-WebSocket-Accept: x=\r\nupgrade: WebSocket\r\nX-One: 1\r\nX-one: 2\r\n"
            b"CONNECTION: keep-alive, UPGRADE, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nSet-Cookie: a=b\r\n\r\n"
        )
        line.wait_for_end()

    upstream.plays(switches_in_its_own_words)
    fields = (
        "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==",
        "connection: keep-alive, upgrade",
        "upgrade: WebSocket",
        "Sec-WebSocket-Version: 13",
    )
    with Client(port) as client:
        client.send(request("GET", "/chat?room=1", *fields))
        granted = client.head()
    [asked] = upstream.wait_for_requests(1)

    assert b"GET /chat?room=1 HTTP/1.1" == asked.start
    assert [b"WebSocket"] == asked.values("upgrade")
    assert [b"Upgrade"] == asked.values("connection")
    assert [b"Sec-WebSocket-Key: dGhlIHNhbXBsZQ==", b"Sec-WebSocket-Version: 13"] == [
        line for line in asked.lines if line.startswith(b"Sec-")
    ]
    assert b"HTTP/1.1 101 Here we go" == granted.start
    assert (
        b"Sec-WebSocket-Accept: x=",
        b"X-One: 1",
        b"X-one: 2",
        b"Set-Cookie: a=b",
        b"Connection: Upgrade",
        b"Upgrade: WebSocket",
    ) == granted.lines


@pytest.mark.parametrize("protocol", ["websocket", "tcp", "example/1.0"])
@pytest.mark.parametrize("at_once", [True, False], ids=["in one packet", "later"])
def test_a_tunnel_carries_any_bytes_both_ways_in_their_order(
    upstream: Upstream, port: int, protocol: str, *, at_once: bool
) -> None:
    """Nothing is read, lost or put in another order: also not what came right behind the request, or right behind the 101."""
    from_client = [ANY_BYTES, b"second", ANY_BYTES[::-1]]
    from_upstream = [b"\0hello", ANY_BYTES, b"bye"]
    heard = []

    def speaks(line: Line) -> None:
        line.request()
        granted = SWITCHING.replace(b"websocket", protocol.encode())
        line.send(granted + from_upstream[0] if at_once else granted)
        for said, answered in zip(from_client, ([] if at_once else from_upstream[:1]) + from_upstream[1:], strict=False):
            heard.append(line.exactly(len(said)))
            line.send(answered)
        if at_once:
            heard.append(line.exactly(len(from_client[2])))
        line.wait_for_end()

    upstream.plays(speaks)
    asked = request("GET", "/chat", "Connection: Upgrade", f"Upgrade: {protocol}")
    with Client(port) as client:
        client.send(asked + from_client[0] if at_once else asked)
        granted = client.head()
        if not at_once:
            client.send(from_client[0])
        got = [client.exactly(len(from_upstream[0])), client.exactly(0)]
        client.send(from_client[1])
        got.append(client.exactly(len(from_upstream[1])))
        client.send(from_client[2])
        got.append(client.exactly(len(from_upstream[2])))
    upstream.wait_for_end_of(upstream.lines[0])

    assert 101 == status(granted)
    assert b"".join(from_upstream) == b"".join(got)
    assert from_client == heard


@pytest.mark.parametrize("code", [200, 401, 426, 503])
@pytest.mark.parametrize("protocol", ["websocket", "example/1.0"])
@pytest.mark.parametrize("at_once", [True, False], ids=["pipelined", "one by one"])
def test_any_other_answer_is_an_ordinary_one(upstream: Upstream, port: int, code: int, protocol: str, *, at_once: bool) -> None:
    """The upstream does not switch: its answer is passed on, and HTTP goes on with what is behind the request."""
    declined = (
        b"HTTP/1.1 %d No\r\nUpgrade: other/2\r\nConnection: upgrade\r\nX-Why: because\r\nContent-Length: 2\r\n\r\nno" % code
    )
    upstream.plays(answers(declined, OK))
    asked = request("GET", "/chat", "Connection: Upgrade", f"Upgrade: {protocol}")
    following = request("POST", "/next", body=b"12345")
    with Client(port) as client:
        client.send(asked + following if at_once else asked)
        first = client.message()
        if not at_once:
            client.send(following)
        second = client.message()

    assert (code, b"no", [b"because"], []) == (status(first), first.body, first.values("x-why"), first.values("upgrade"))
    assert (200, b"ok") == (status(second), second.body)
    assert [b"", b"12345"] == [arrived.body for arrived in upstream.requests]
    assert 1 == len(upstream.lines), "a connection that did not switch is kept"


UNASKED = {
    "no upgrade": ((), b"websocket"),
    "another protocol": (UPGRADE, b"example/1.0"),
    "one more protocol": (UPGRADE, b"websocket, example/1.0"),
    "no protocol": (UPGRADE, b""),
    "an upgrade that is not for this hop": (("Upgrade: websocket",), b"websocket"),
}


@pytest.mark.parametrize("case", UNASKED)
def test_a_switch_that_was_not_asked_for_is_no_answer(upstream: Upstream, port: int, case: str) -> None:
    """The client is not told 101, nothing of what follows reaches it, and the connection is not used again."""
    fields, protocol = UNASKED[case]
    unasked = SWITCHING.replace(b"websocket", protocol) + b"surprise"
    upstream.plays(answers(unasked))

    answer = ask(port, request("GET", "/chat", *fields))

    assert UNKNOWN == problem(answer)
    assert b"surprise" not in answer.raw
    upstream.wait_for_end_of(upstream.lines[0])


def test_a_switch_after_a_covered_request_is_unknown(upstream: Upstream, port: int, records: Records) -> None:
    """A request with a key never asks for one, so that nobody knows what became of it; and it is not sent again."""
    upstream.plays(answers(SWITCHING))
    key = new_key()
    asked = request("POST", "/charges", body=b"1", key=key)

    first, retry = ask(port, asked), ask(port, asked)

    assert [UNKNOWN, (409, *UNKNOWN[1:])] == [problem(first), problem(retry)]
    assert "unknown" == records.phase(key)
    assert 1 == len(upstream.requests)


def _half_closed_by_client(client: Client, line: Line) -> tuple[bytes, bytes]:
    """The client says all and goes on listening; what each side heard."""
    client.send(b"all that I have")
    client.finish()
    heard = line.rest()
    line.send(b"late " * 1000)
    line.close()
    return heard, client.rest()


def _half_closed_by_upstream(client: Client, line: Line) -> tuple[bytes, bytes]:
    """The upstream says all and goes on listening; what each side heard."""
    line.send(b"late " * 1000)
    line.finish()
    answered = client.rest()
    client.send(b"all that I have")
    client.finish()
    return line.rest(), answered


@pytest.mark.parametrize("half_closed", [_half_closed_by_client, _half_closed_by_upstream])
def test_a_half_close_is_passed_on(
    upstream: Upstream, port: int, half_closed: Callable[[Client, Line], tuple[bytes, bytes]]
) -> None:
    """FIN one way leaves the other way open, and the tunnel is over when both ways are. TLS has no such halves."""
    if current().client_tls or current().upstream_tls:
        pytest.skip("only TCP has a half that can be closed")
    over = threading.Event()

    def switches_and_waits(line: Line) -> None:
        switches(line)
        over.wait(20)

    upstream.plays(switches_and_waits)
    client = opened(port)
    heard, answered = half_closed(client, upstream.lines[0])
    over.set()
    client.close()

    assert b"all that I have" == heard
    assert b"late " * 1000 == answered


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("size", [0, 3 * MIB])
def test_a_side_that_ends_ends_the_other(upstream: Upstream, port: int, end: str, size: int) -> None:
    """Whoever closes has said all: it arrives, and then the other side's connection is ended. A reset may outrun the bytes."""
    heard: list[bytes] = []
    half = threading.Event()

    def listens(line: Line) -> None:
        switches(line)
        heard.append(line.exactly(size // 2))
        half.set()
        heard.append(line.rest())

    upstream.plays(listens)
    client = opened(port)
    client.send(bytes(size))
    assert half.wait(10)
    getattr(client, end)()
    upstream.wait_for_end_of(upstream.lines[0])

    if end == "close":
        assert size == sum(map(len, heard))


@pytest.mark.parametrize("end", ["close", "reset", "drop"])
@pytest.mark.parametrize("size", [0, 3 * MIB])
def test_an_upstream_that_ends_ends_the_client(upstream: Upstream, port: int, end: str, size: int) -> None:
    """Also within TLS, with or without its goodbye; what was said before an end in order arrives."""
    client_has_half = threading.Event()

    def says_and_ends(line: Line) -> None:
        switches(line)
        line.send(bytes(size))
        client_has_half.wait(10)
        getattr(line, end)()

    upstream.plays(says_and_ends)
    with opened(port) as client:
        heard = client.exactly(size // 2)
        client_has_half.set()
        try:
            heard += client.rest()
        except ConnectionResetError:
            assert end != "close"

    if end == "close":
        assert size == len(heard)


def test_a_tunnel_may_be_silent(upstream: Upstream, port: int) -> None:
    """None of the limits of an exchange is one of a tunnel: longer than any of them without a byte, and then bytes both ways."""

    def echoes(line: Line) -> None:
        switches(line)
        while data := line.some():
            line.send(data)

    upstream.plays(echoes)
    with opened(port, "Host: impatient", *UPGRADE) as client:
        was_silent = client.silent(1.0)
        client.send(b"still there?")
        heard = client.exactly(12)

    assert was_silent
    assert b"still there?" == heard


def test_an_upgrade_that_is_never_answered_is_given_up(upstream: Upstream, port: int) -> None:
    """Until the 101 it is an exchange like any other: the time for the first byte counts."""

    def says_nothing(line: Line) -> None:
        line.request()
        line.wait_for_end()

    upstream.plays(says_nothing)

    answer = ask(port, request("GET", "/chat", "Host: impatient", *UPGRADE))

    assert (504, *UNKNOWN[1:]) == problem(answer)
    upstream.wait_for_end_of(upstream.lines[0])


@pytest.mark.parametrize("fields", [("Upgrade: websocket",), ("Connection: upgrade",), ("Connection: Upgrade", "Upgrade: h2c")])
def test_what_is_no_upgrade_for_a_tunnel_is_not_asked_for(upstream: Upstream, port: int, fields: tuple[str, ...]) -> None:
    """Half an offer, and an offer of another HTTP in which requests would pass unseen, stay here."""
    upstream.plays(answers(OK))

    answer = ask(port, request("GET", "/chat", *fields))

    assert 200 == status(answer)
    assert [([], [])] == [(arrived.values("upgrade"), arrived.values("connection")) for arrived in upstream.requests]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_upgrade_with_a_key_is_refused(upstream: Upstream, port: int, records: Records, method: str) -> None:
    """A tunnel is no operation that could be replayed: 400, nothing sent, nothing stored."""
    upstream.plays(switches)  # type: ignore[arg-type] # what it returns is of no use to a play
    key = new_key()

    answer = ask(port, request(method, "/chat", *UPGRADE, key=key))

    assert (400, "bad-request", "no", "new_key") == problem(answer)
    assert [] == upstream.requests
    assert records.phase(key) is None


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("framing", "body"), [("Content-Length: 2", b"ok"), ("Transfer-Encoding: chunked", b"2\r\nok\r\n0\r\n\r\n")]
)
def test_an_upgrade_with_a_key_and_a_body_is_refused(
    upstream: Upstream, port: int, records: Records, method: str, framing: str, body: bytes
) -> None:
    """It is no less an upgrade for its body, although one without a key is forwarded as an ordinary request then."""
    upstream.plays(answers(OK))
    key = new_key()

    unnamed = ask(port, request(method, "/chat", *UPGRADE, framing) + body)
    forwarded = list(upstream.requests)
    named = ask(port, request(method, "/chat", *UPGRADE, framing, key=key) + body)

    assert (200, [(b"ok", [])]) == (status(unnamed), [(arrived.body, arrived.values("upgrade")) for arrived in forwarded])
    assert (400, "bad-request", "no", "new_key") == problem(named)
    assert forwarded == upstream.requests
    assert records.phase(key) is None


def test_an_offer_of_another_http_with_a_key_is_an_ordinary_request(upstream: Upstream, port: int, records: Records) -> None:
    """h2c, which some clients offer with every request, is dropped, and the request with its key is covered."""
    upstream.plays(answers(OK))
    key = new_key()

    answer = ask(port, request("POST", "/x", "Connection: Upgrade", "Upgrade: h2c", body=b"1", key=key))

    assert (200, "executed", "completed") == (status(answer), outcome(answer), records.phase(key))
    assert [[]] == [arrived.values("upgrade") for arrived in upstream.requests]


@pytest.fixture
def watched_proxy(upstream: Upstream) -> Iterator[Watched]:
    """A proxy of the test's own with one connection to its upstream, and an access log."""
    one = {"url": upstream.url, "max_connections": 1, "timeouts": {"connect": "300ms"}}
    with watched({"upstreams": {"api": one}, "drain": "15s"}) as running:
        yield running


def _counts(upstream: Upstream) -> Play:
    """A play that says nine bytes and hears four."""

    def play(line: Line) -> None:
        if line.request().values("upgrade"):
            line.send(SWITCHING + b"nine bytes"[:9])
            line.exactly(4)
            line.send(b"!")
        else:
            line.send(OK)
        line.wait_for_end()

    return play


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_tunnel_is_told_of_when_it_ends(upstream: Upstream, watched_proxy: Watched, end: str, method: str) -> None:
    """Once: 101, the bytes that went each way behind the heads, and for a write that names no operation what it is."""
    upstream.plays(_counts(upstream))
    client = Client(watched_proxy.port)
    client.send(request(method, "/chat", *UPGRADE))
    granted = client.head()
    client.send(b"four")
    heard = client.exactly(10)
    before = watched_proxy.lines()
    getattr(client, end)()
    [line] = watched_proxy.told("/chat")

    expected = "read" if method == "GET" else "bypassed"
    assert ("" if method == "GET" else "bypassed") == outcome(granted)
    assert b"nine byte!" == heard
    assert [] == before
    assert (101, 10, expected) == (line["status"], line["bytes"], line["outcome"])
    assert [4, 10] == [
        counted(watched_proxy.program.admin, f"idemproxy_{which}_bytes_total") for which in ("request", "response")
    ]


def test_a_tunnel_takes_one_of_the_connections_and_gives_none_back(upstream: Upstream, watched_proxy: Watched) -> None:
    """While it lasts a request finds no place; when it has ended, the next request gets a connection of its own."""
    upstream.plays(_counts(upstream))
    with opened(watched_proxy.port) as client:
        client.send(b"four")
        client.exactly(10)
        crowded = ask(watched_proxy.port, request("GET", "/other"))
    upstream.wait_for_end_of(upstream.lines[0])
    later = ask(watched_proxy.port, request("GET", "/other"))

    assert (504, "not-sent", "no", "same_key") == problem(crowded)
    assert (200, b"ok") == (status(later), later.body)
    assert 2 == len(upstream.lines)


def test_tunnels_do_not_hold_up_the_end(upstream: Upstream, watched_proxy: Watched) -> None:
    """Told to stop, the proxy ends them at once, both sides hear it, and it has drained long before its deadline."""
    upstream.plays(_counts(upstream))
    with opened(watched_proxy.port) as client:
        client.send(b"four")
        client.exactly(10)
        code = watched_proxy.program.stop()
        ended = client.ended()
    upstream.wait_for_end_of(upstream.lines[0])

    assert (0, True) == (code, ended)
    assert [101] == [line["status"] for line in watched_proxy.lines()]
