"""A replay is the first answer byte for byte, less what speaks of one exchange only.

Refusals (409 and the like) have no replay, since they are not kept: see test_answer_bytes.
"""

from __future__ import annotations

import gzip
import re
import threading
import zlib
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

import brotli
import pytest
from zstandard import ZstdCompressor

from idemproxy.core.policy import REPLAY_DENIED
from tests.wire.bytestream import Message
from tests.wire.client import Client, ask, new_key, outcome, problem, request, status
from tests.wire.combination import wired
from tests.wire.upstream import Line, Upstream, answers

EVERY_BYTE: Final = bytes(range(256)) * 5
TEXT: Final = b'{"id": "ch_1", "amount": 1}' * 20
BROTLI: Final = brotli.compress(TEXT)
ZSTD: Final = ZstdCompressor().compress(TEXT)

# Status and reason, field lines, body; each with a Content-Length, where the status has a body.
STORED: Final = MappingProxyType(
    {
        "200": (b"200 OK", (b"Content-Type: text/plain",), b"ok"),
        "201": (b"201 Created", (b"Location: /x/%2f?a=b#c", b'ETag: "1"', b"Date: then"), b"{}"),
        "202": (b"202 Accepted", (b"Preference-Applied: respond-async",), b""),
        "203": (b"203 Non-Authoritative Information", (b"Via: 1.1 other",), b"1"),
        "204": (b"204 No Content", (b'ETag: W/"2"',), b""),
        "205": (b"205 Reset Content", (), b""),
        "206": (b"206 Partial Content", (b"Content-Range: bytes 0-1/9",), b"ab"),
        "299": (b"299 Own", (), b"1"),
        "300": (b"300 Multiple Choices", (b"Link: <a>; rel=alternate",), b"1"),
        "301": (b"301 Moved Permanently", (b"Location: http://elsewhere.example/",), b"moved"),
        "302": (b"302 Found", (b"Location: /again",), b""),
        "303": (b"303 See Other", (b"Location: //elsewhere.example",), b""),
        "304": (b"304 Not Modified", (b'ETag: "3"',), b""),
        "307": (b"307 Temporary Redirect", (b"Location: ?",), b"again"),
        "308": (b"308 Permanent Redirect", (b"Location: http://[::1]/",), b""),
        "400": (b"400 Bad Request", (b"Content-Type: application/problem+json",), b'{"type":"theirs"}'),
        "402": (b"402 Payment Required", (), b"declined"),
        "404": (b"404 Not Found", (), b"no"),
        "410": (b"410 Gone", (b"Cache-Control: max-age=60",), b""),
        "418": (b"418 I'm a teapot", (), b"short and stout"),
        "422": (b"422 Unprocessable", (b"Content-Language: en",), b"no"),
        "451": (b"451 Unavailable For Legal Reasons", (b'Link: <a>; rel="blocked-by"',), b""),
        "499": (b"499 Nobody's", (), b"1"),
        "501": (b"501 Not Implemented", (), b"no"),
        "505": (b"505 HTTP Version Not Supported", (), b"no"),
        "binary": (b"200 OK", (b"Content-Type: application/octet-stream",), EVERY_BYTE),
        "head-like": (b"200 OK", (), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        "gzip": (b"200 OK", (b"Content-Encoding: gzip", b"Vary: Accept-Encoding"), gzip.compress(EVERY_BYTE, mtime=0)),
        "brotli": (b"200 OK", (b"Content-Encoding: br",), BROTLI),
        "not-gzip": (b"200 OK", (b"content-encoding: gzip",), b"this is not gzip"),
        "no-reason": (b"200 ", (), b"ok"),
        "odd-reason": (b"200 Very  well \xe9 indeed", (), b"ok"),
        "repeats": (b"200 OK", (b"Link: <a>", b"Vary: A", b"link: <b>", b"Vary: A", b"LINK: <a>", b"Vary: B, C"), b"ok"),
        "values": (
            b"200 OK",
            (
                b"X-Empty: ",
                b"X-Text: caf\xe9 \xc3\xa9 \xff",
                b'X-Spaces: a  b\tc ",;="',
                b"x-empty: ",
                b"SERVER: them",
                b"Age: 5",
            ),
            b"ok",
        ),
        "much": (b"200 OK", tuple(b"X-%d: %b" % (number, b"v" * 1019) for number in range(100)), b"ok"),
        "denied": (
            b"200 OK",
            tuple(
                line for name in sorted(REPLAY_DENIED) for line in (b"%b: 1" % name.title(), b"X-%b: kept" % name, name + b": 2")
            ),
            b"ok",
        ),
    }
)
DELIMITED: Final = MappingProxyType(
    {
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        "no-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\n\r\n0\r\n\r\n",
        "trailers": b"HTTP/1.1 200 OK\r\nA: 1\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nX: 1\r\n\r\n",
        "version": b"HTTP/1.0 200 Yes\r\nA: 1\r\nContent-Length: 5\r\n\r\nabcde",
        "hop": b"HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nA: 1\r\nX-Hop: 1\r\nKeep-Alive: x\r\nContent-Length: 1\r\n\r\na",
        "informed": b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 1\r\n\r\na",
        "end": b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\nabcde",
        "end-at-once": b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n",
        "end-said": b"HTTP/1.1 200 OK\r\nConnection: close\r\nA: 1\r\n\r\nabcde",
        "end-of-old": b"HTTP/1.0 200 OK\r\nA: 1\r\n\r\nabcde",
    }
)


def _raw(line: bytes, fields: tuple[bytes, ...], body: bytes) -> bytes:
    framing = [] if line[:3] in (b"204", b"304") else [b"Content-Length: %d" % len(body)]
    return b"\r\n".join([b"HTTP/1.1 " + line, *fields, *framing, b"", body])


ANSWERS: Final = MappingProxyType({name: _raw(*answer) for name, answer in STORED.items()} | DELIMITED)
"""What an upstream sends to who asks for `/name`; where the name begins with `end`, the connection ends with it."""
NAMES: Final = pytest.mark.parametrize("name", ANSWERS)


def _by_name(line: Line) -> None:
    """A play: the answer that the target names."""
    name = ""
    while not name.startswith("end"):
        name = line.request().start.split(b" ")[1][1:].decode()
        line.send(ANSWERS[name])


def _once(answer: bytes, may_answer: threading.Event | None = None) -> Callable[[Line], None]:
    """A play: one answer, when it may be given, whose end is the end of the connection."""

    def play(line: Line) -> None:
        line.request()
        if may_answer is not None:
            may_answer.wait(10)
        line.send(answer)

    return play


def _asks_for(name: str, *lines: str, key: str) -> bytes:
    return request("POST", f"/{name}", *lines, body=b"1", key=key)


def _undated(raw: bytes) -> bytes:
    """An answer without the second at which it expires: the first caller hears when that is at the earliest."""
    return re.sub(rb"expires=\d+", b"expires", raw)


def _replay_of(first: Message) -> bytes:
    """The bytes of a replay of this answer: status line, what may be replayed of the fields, our two lines, our framing, body."""
    [told] = first.values("Idempotency-Status")
    assert told.startswith(b"executed; "), told
    names = [name.decode() for name in REPLAY_DENIED]
    fields = first.lines_without(*names, "Idempotency-Status", "Content-Length", "Transfer-Encoding", "Connection")
    ours = [b"Idempotency-Status: replayed" + told.removeprefix(b"executed"), b"Idempotent-Replayed: true"]
    framing = [] if status(first) in (204, 304) else [b"Content-Length: %d" % len(first.body)]
    return _undated(b"\r\n".join([first.start, *fields, *ours, *framing, b"", first.body]))


@NAMES
def test_a_retry_gets_the_same_bytes(upstream: Upstream, port: int, name: str) -> None:
    """On another connection, the second time as the third."""
    upstream.plays(_by_name)
    asked = _asks_for(name, key=new_key())

    first, second, third = (ask(port, asked) for _ in range(3))

    assert [_replay_of(first)] * 2 == [_undated(second.raw), _undated(third.raw)]
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("name", STORED)
def test_a_replay_is_what_the_upstream_wrote(upstream: Upstream, port: int, name: str) -> None:
    """Status line, fields in order with case and repeats, and body are its own, whatever the first client got."""
    line, fields, body = STORED[name]
    upstream.plays(_by_name)
    asked = _asks_for(name, key=new_key())

    ask(port, asked)
    replay = ask(port, asked)

    kept = [field for field in fields if field.partition(b":")[0].lower() not in REPLAY_DENIED]
    found = (replay.start, replay.lines_without("Idempotency-Status", "Idempotent-Replayed", "Content-Length"), replay.body)
    assert (b"HTTP/1.1 " + line, kept, body) == found


@NAMES
def test_who_waited_for_the_first_gets_the_same_bytes(upstream: Upstream, port: int, name: str) -> None:
    """A second request that comes before the upstream has answered gets what the first one gets, as a replay."""
    may_answer = threading.Event()
    upstream.plays(_once(ANSWERS[name], may_answer))
    asked = _asks_for(name, key=new_key())
    with Client(port) as one, Client(port) as another:
        one.send(asked)
        upstream.wait_for_requests(1)
        another.send(asked)
        hurried = ask(port, asked.replace(b"\r\n", b"\r\nPrefer: wait=0\r\n", 1))
        may_answer.set()
        first, waited = one.message(), another.message()

    assert "in-progress" == outcome(hurried)
    assert _replay_of(first) == _undated(waited.raw)
    assert 1 == len(upstream.requests)


@NAMES
def test_a_client_of_old_was_the_first(upstream: Upstream, port: int, name: str) -> None:
    """What an HTTP/1.0 client was answered is replayed to one of HTTP/1.1 with the same bytes, and the other way round."""
    upstream.plays(_by_name)
    asked = _asks_for(name, key=new_key())
    asked_of_old = asked.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)

    first, second, of_old = ask(port, asked_of_old), ask(port, asked), ask(port, asked_of_old)

    assert [[b"close"], [], [b"close"]] == [one.values("connection") for one in (first, second, of_old)]
    assert [_replay_of(first)] * 2 == [_undated(second.raw), _undated(of_old.raw.replace(b"Connection: close\r\n", b"", 1))]
    assert 1 == len(upstream.requests)


def test_the_same_bytes_come_after_a_restart(scripted: Upstream, store_url: str) -> None:
    """After kill -9 another proxy replays from a SQLite file, or from Redis, all that the one before it has answered."""
    scripted.plays(_by_name)
    settings = {
        "upstreams": {"api": {"url": scripted.url}},
        "store": {"url": store_url},
        "routes": [{"name": "rest", "upstream": "api"}],
        "access_log": False,
    }
    asked = {name: _asks_for(name, key=new_key()) for name in ANSWERS}
    with wired(settings) as program:
        first = {name: _replay_of(ask(program.port, data)) for name, data in asked.items()}
        program.kill()
    with wired(settings) as program:
        second = {name: _undated(ask(program.port, data).raw) for name, data in asked.items()}

    assert first == second
    assert len(ANSWERS) == len(scripted.requests)


FRAMINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "length": lambda body: b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
    "chunks": lambda body: b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
    "end": lambda body: b"\r\n" + body,
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_body_of_just_the_most_that_is_stored(upstream: Upstream, port: int, framing: str) -> None:
    """A body of `max_stored_body` bytes is replayed whole."""
    upstream.plays(_once(b"HTTP/1.1 200 OK\r\nA: 1\r\n" + FRAMINGS[framing](EVERY_BYTE[:1024])))
    asked = request("POST", "/x", "Host: small", body=b"1", key=new_key())

    first, second = ask(port, asked), ask(port, asked)

    assert EVERY_BYTE[:1024] == first.body
    assert _replay_of(first) == _undated(second.raw)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_body_of_a_byte_more_than_is_stored(upstream: Upstream, port: int, framing: str) -> None:
    """The first client gets it whole; a retry hears that it happened, and nothing is sent."""
    upstream.plays(_once(b"HTTP/1.1 200 OK\r\nA: 1\r\n" + FRAMINGS[framing](EVERY_BYTE[:1025])))
    asked = request("POST", "/x", "Host: small", body=b"1", key=new_key())

    first, second = ask(port, asked), ask(port, asked)

    assert (200, "executed", EVERY_BYTE[:1025]) == (status(first), outcome(first), first.body)
    assert (409, "response-unavailable", "yes", "never") == problem(second)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_every_covered_method_is_replayed(upstream: Upstream, port: int, method: str) -> None:
    """As POST is."""
    upstream.plays(_by_name)
    asked = request(method, "/repeats", body=b"1", key=new_key())

    first, second = ask(port, asked), ask(port, asked)

    assert _replay_of(first) == _undated(second.raw)


def test_head_is_asked_anew(upstream: Upstream, port: int) -> None:
    """HEAD changes nothing, so that it is no operation and has no replay, with a key either."""
    answer = b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 10\r\n\r\n"
    upstream.plays(answers(answer))
    asked = request("HEAD", "/x", key=new_key())

    assert [answer] * 2 == [ask(port, asked).raw for _ in range(2)]
    assert 2 == len(upstream.requests)


@pytest.mark.parametrize(
    "line",
    [
        'If-None-Match: "1"',
        "If-None-Match: *",
        'If-Match: "2"',
        "If-Modified-Since: Sat, 29 Nov 2025 14:12:23 GMT",
        "If-Unmodified-Since: Sat, 29 Nov 1975 14:12:23 GMT",
        "Range: bytes=0-0",
        'If-Range: "1"',
        "Accept: text/html",
        "Accept-Language: fr",
        "Cache-Control: no-cache, no-store",
        "Pragma: no-cache",
        "TE: trailers",
        "Prefer: return=minimal",
    ],
)
def test_what_a_retry_asks_for_beside_has_no_influence(upstream: Upstream, port: int, line: str) -> None:
    """A replay is no cache's answer: no condition, range or preference of a retry changes what the first request was answered."""
    upstream.plays(_by_name)
    key = new_key()

    first, second = ask(port, _asks_for("201", key=key)), ask(port, _asks_for("201", line, key=key))

    assert _replay_of(first) == _undated(second.raw)
    assert 1 == len(upstream.requests)


# A client that does not take the coding

CODED: Final = (
    b"Link: <a>",
    b"Content-Encoding: gzip",
    b'ETag: "1"',
    b"Vary: Accept-Encoding",
    b"Content-Digest: d",
    b"link: <b>",
)
BARE: Final = (b"Link: <a>", b'ETag: W/"1"', b"Vary: Accept-Encoding", b"link: <b>")
REFUSALS: Final = ("identity", "", "br, zstd", "gzip;q=0", "*, gzip;q=0", "identity, *;q=0")


CODED_ANSWER: Final = _raw(b"201 Sure, made", CODED, gzip.compress(TEXT, mtime=0))


def _bare(replay: bytes) -> bytes:
    """The replay of CODED_ANSWER, decoded."""
    length = b"Content-Length: %d\r\n"
    coded = gzip.compress(TEXT, mtime=0)
    replay = replay.replace(b"\r\n".join(CODED), b"\r\n".join(BARE)).replace(length % len(coded), length % len(TEXT))
    return replay.replace(coded, TEXT)


@pytest.mark.parametrize("accept_encoding", REFUSALS)
def test_a_retry_that_does_not_take_the_coding_gets_the_body_decoded(upstream: Upstream, port: int, accept_encoding: str) -> None:
    """The content, its own length, a weak ETag and no digest of other bytes; what is stored stays as it was for the next one."""
    upstream.plays(answers(CODED_ANSWER))
    key = new_key()

    first = ask(port, _asks_for("x", "Accept-Encoding: gzip", key=key))
    second = ask(port, _asks_for("x", f"Accept-Encoding: {accept_encoding}", key=key))
    third = ask(port, _asks_for("x", "Accept-Encoding: gzip", key=key))

    assert [_bare(_replay_of(first)), _replay_of(first)] == [_undated(second.raw), _undated(third.raw)]
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Accept-Encoding: gzip",),
        ("Accept-Encoding: br, X-GZIP;q=0.1",),
        ("Accept-Encoding: br", "accept-encoding: gzip"),
        ("Accept-Encoding: *",),
        ("Accept-Encoding: br, identity;q=0",),
        ("Accept-Encoding: br, *;q=0",),
        ("Accept-Encoding: identity", "Cache-Control: no-transform"),
    ],
)
def test_a_retry_that_takes_the_coding_gets_the_bytes(upstream: Upstream, port: int, lines: tuple[str, ...]) -> None:
    """So does one that says nothing of what it takes, that refuses the bare content too, or that wants nothing transformed."""
    upstream.plays(answers(CODED_ANSWER))
    key = new_key()

    first, second = ask(port, _asks_for("x", key=key)), ask(port, _asks_for("x", *lines, key=key))

    assert _replay_of(first) == _undated(second.raw)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        pytest.param("x-own", BROTLI, id="unknown"),
        pytest.param("gzip", b"this is not gzip", id="damaged"),
        pytest.param("br", BROTLI + b"more", id="followed by something"),
        pytest.param("zstd", ZSTD[:-1], id="cut short"),
        pytest.param("gzip", b"", id="empty"),
        pytest.param("gzip", gzip.compress(bytes((64 << 20) + 1), mtime=0), id="a bomb"),
        pytest.param("deflate, x-own", BROTLI, id="unknown above a known one"),
    ],
)
def test_what_cannot_be_decoded_is_given_as_it_is_stored(upstream: Upstream, port: int, coding: str, body: bytes) -> None:
    """Better the bytes in a coding that was not asked for than none."""
    upstream.plays(_once(_raw(b"200 OK", (b"Content-Encoding: " + coding.encode(), b'ETag: "1"'), body)))
    key = new_key()

    first, second = ask(port, _asks_for("x", key=key)), ask(port, _asks_for("x", "Accept-Encoding: identity", key=key))

    assert _replay_of(first) == _undated(second.raw)


@pytest.mark.parametrize(
    ("coding", "body", "left"),
    [
        pytest.param("deflate", zlib.compress(TEXT), "", id="deflate"),
        pytest.param("br", BROTLI, "", id="br"),
        pytest.param("zstd", ZSTD, "", id="zstd"),
        pytest.param("zstd, br", brotli.compress(ZSTD), "", id="zstd in br"),
        pytest.param("gzip", gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), "", id="gzip in two members"),
        pytest.param("deflate, gzip", gzip.compress(zlib.compress(TEXT)), "", id="two"),
        pytest.param("br, gzip", gzip.compress(BROTLI), "br", id="one of two"),
    ],
)
def test_how_it_is_decoded(upstream: Upstream, port: int, coding: str, body: bytes, left: str) -> None:
    """Every coding that the retry does not take comes off, and those that it takes stay."""
    upstream.plays(_once(_raw(b"200 OK", (b"Content-Encoding: " + coding.encode(),), body)))
    key = new_key()

    first = ask(port, _asks_for("x", key=key))
    second = ask(port, _asks_for("x", f"Accept-Encoding: {left}", key=key))

    assert body == first.body
    assert ([left.encode()] if left else []) == second.values("content-encoding")
    assert (BROTLI if left else TEXT) == second.body


def test_who_waited_and_does_not_take_the_coding_gets_the_body_decoded(upstream: Upstream, port: int) -> None:
    """While the first one gets the bytes of the upstream."""
    may_answer = threading.Event()
    upstream.plays(_once(CODED_ANSWER, may_answer))
    key = new_key()
    with Client(port) as one, Client(port) as another:
        one.send(_asks_for("x", "Accept-Encoding: gzip", key=key))
        upstream.wait_for_requests(1)
        another.send(_asks_for("x", "Accept-Encoding: identity", key=key))
        hurried = ask(port, _asks_for("x", "Prefer: wait=0", key=key))
        may_answer.set()
        first, waited = one.message(), another.message()

    assert "in-progress" == outcome(hurried)
    assert gzip.compress(TEXT, mtime=0) == first.body
    assert _bare(_replay_of(first)) == _undated(waited.raw)
