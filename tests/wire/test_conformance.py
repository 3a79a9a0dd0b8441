"""What RFC 9112 and RFC 9110 ask of an HTTP/1.1 server, as one table: requests in, answers out, and what the upstream saw of it.

The list is that of the public conformance suites for servers; the wording, and what a proxy adds to it, is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from tests.wire.bytestream import Message
from tests.wire.client import Client, status
from tests.wire.combination import current
from tests.wire.upstream import Line, Upstream

H: Final = b"Host: proxy.example\r\n"
H80: Final = b"Host: proxy.example:80\r\n"
"""With the port that an absolute target with `http:` means, whatever the listener's own scheme is."""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKS: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
GET: Final = b"GET /x HTTP/1.1\r\n" + H + b"\r\n"
POST: Final = b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: 5\r\n\r\n12345"
CHUNKED: Final = b"POST /x HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Case:
    """Bytes of a client, the statuses of the answers, and the requests that the upstream saw, as `METHOD target body`.

    `given`: what the upstream answers. `ends`: the connection ends with the last answer; else it carries one more request.
    `has`, `lacks`: a field line, or the name of a field, in the last answer.
    """

    section: str
    name: str
    sent: bytes
    statuses: tuple[int, ...] = (200,)
    seen: tuple[bytes, ...] = ()
    given: bytes = OK
    ends: bool = False
    has: bytes | None = None
    lacks: str | None = None
    body: bytes | None = None


def _refused(section: str, name: str, sent: bytes, code: int = 400, seen: tuple[bytes, ...] = ()) -> Case:
    """One that ends the connection, and of which nothing leaves."""
    return Case(section, name, sent, (200,) * len(seen) + (code,), seen, ends=True, has=b"Connection: close")


CASES: Final = (
    # The request line.
    Case("9112 2.1", "a request", GET, seen=(b"GET /x ",), body=b"ok"),
    Case("9112 2.2", "empty lines before the request line", b"\r\n\r\n" + GET, seen=(b"GET /x ",)),
    Case("9112 2.2", "an empty line between requests", POST + b"\r\n" + GET, (200, 200), (b"POST /x 12345", b"GET /x ")),
    _refused("9112 2.2", "white space before the first field", b"GET /x HTTP/1.1\r\n " + H + b"\r\n"),
    _refused("9112 2.2", "a lone CR in the request line", b"GET /\rx HTTP/1.1\r\n" + H + b"\r\n"),
    _refused("9112 2.2", "a lone CR as the end of a line", b"GET /x HTTP/1.1\r" + H + b"\r\n"),
    _refused("9112 2.3", "no version", b"GET /x\r\n" + H + b"\r\n"),
    _refused("9112 2.3", "a version in lower case", b"GET /x http/1.1\r\n" + H + b"\r\n"),
    _refused("9112 2.3", "a version that is no number", b"GET /x HTTP/x.y\r\n" + H + b"\r\n"),
    _refused("9112 3", "a prefix", b"abcGET/x HTTP/1.1\r\n" + H + b"\r\n"),
    _refused("9112 3", "garbage", b"\x80\x81\x82\r\n\r\n"),
    _refused("9112 3.1", "a method that is no token", b"G(T /x HTTP/1.1\r\n" + H + b"\r\n"),
    _refused("9112 3.1", "a method in lower case, which is another one", b"get /x HTTP/1.1\r\n" + H + b"\r\n"),
    _refused("9110 9.1", "a method that the parser does not know", b"UNHEARD-OF /x HTTP/1.1\r\n" + H + b"\r\n"),
    Case("9110 9.1", "a method of an extension", b"PROPFIND /x HTTP/1.1\r\n" + H + b"\r\n", seen=(b"PROPFIND /x ",)),
    Case("9110 9.1", "QUERY with a body", b"QUERY" + POST[4:], seen=(b"QUERY /x 12345",)),
    _refused("9110 9.3.6", "CONNECT", b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", 405),
    Case("9110 9.3.8", "TRACE is the upstream's affair", b"TRACE" + GET[3:], seen=(b"TRACE /x ",)),
    # The target.
    Case(
        "9112 3.2.1",
        "a long target",
        b"GET /" + b"x" * 7000 + b" HTTP/1.1\r\n" + H + b"\r\n",
        seen=(b"GET /" + b"x" * 7000 + b" ",),
    ),
    _refused("9110 15.5.15", "a target that is too long", b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n" + H + b"\r\n", 414),
    Case(
        "9112 3.2.2",
        "absolute form of our own",
        b"GET http://proxy.example/x?a HTTP/1.1\r\n" + H80 + b"\r\n",
        seen=(b"GET /x?a ",),
    ),
    Case(
        "9112 3.2.2", "absolute form without a path", b"GET http://proxy.example HTTP/1.1\r\n" + H80 + b"\r\n", seen=(b"GET / ",)
    ),
    _refused("9112 3.2.2", "absolute form of another", b"GET http://other.example/x HTTP/1.1\r\n" + H + b"\r\n"),
    _refused("9112 3.2.3", "authority form", b"GET proxy.example:80 HTTP/1.1\r\n" + H + b"\r\n"),
    _refused("9112 3.2", "a fragment", b"GET /x#y HTTP/1.1\r\n" + H + b"\r\n"),
    Case(
        "9112 3.2.1",
        "two slashes at the front are a path",
        b"GET //other.example/x HTTP/1.1\r\n" + H + b"\r\n",
        seen=(b"GET //other.example/x ",),
    ),
    # Host.
    _refused("9112 3.2", "no Host", b"GET /x HTTP/1.1\r\n\r\n"),
    _refused("9112 3.2", "two Hosts", b"GET /x HTTP/1.1\r\n" + H + H + b"\r\n"),
    _refused("9112 3.2", "a Host that is none", b"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n"),
    _refused("9110 4.2.1", "an empty Host, which no http URI has", b"GET /x HTTP/1.1\r\nHost:\r\n\r\n"),
    Case("9112 3.2", "no Host in HTTP/1.0", b"GET /x HTTP/1.0\r\n\r\n", seen=(b"GET /x ",), ends=True),
    # Fields.
    Case("9110 5.5", "an empty value", b"GET /x HTTP/1.1\r\n" + H + b"X-Empty:\r\n\r\n", seen=(b"GET /x ",)),
    Case(
        "9110 5.6.2",
        "every character of a name",
        b"GET /x HTTP/1.1\r\n" + H + b"!#$%&'*+-.^_`|~09azAZ: 1\r\n\r\n",
        seen=(b"GET /x ",),
    ),
    _refused("9110 5.6.2", "a name that is no token", b"GET /x HTTP/1.1\r\n" + H + b"X/Y: 1\r\n\r\n"),
    _refused("9110 5.5", "a NUL in a value", b"GET /x HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n"),
    _refused("9110 5.5", "a control character in a value", b"GET /x HTTP/1.1\r\n" + H + b"X: a\x07b\r\n\r\n"),
    _refused("9110 5.5", "a byte over 127 in a value", b"GET /x HTTP/1.1\r\n" + H + b"X: a\xe9b\r\n\r\n"),
    _refused("9110 5.3", "two types", b"GET /x HTTP/1.1\r\n" + H + b"Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n"),
    _refused("9110 5.3", "two user agents", b"GET /x HTTP/1.1\r\n" + H + b"User-Agent: a\r\nuser-agent: b\r\n\r\n"),
    _refused("9112 5.1", "white space before a colon", b"GET /x HTTP/1.1\r\n" + H + b"X : 1\r\n\r\n"),
    _refused("9112 5.2", "a folded line", b"GET /x HTTP/1.1\r\n" + H + b"X: 1\r\n 2\r\n\r\n"),
    _refused("6585 5", "a field that is too long", b"GET /x HTTP/1.1\r\n" + H + b"X: " + b"x" * 100_000 + b"\r\n\r\n", 431),
    _refused("6585 5", "too many fields", b"GET /x HTTP/1.1\r\n" + H + b"X: 1\r\n" * 2000 + b"\r\n", 431),
    # Bodies.
    Case("9112 6.2", "a body with a length", POST, seen=(b"POST /x 12345",)),
    Case("9112 6.2", "a body without a byte", b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n", seen=(b"POST /x ",)),
    Case("9112 6.3", "neither length nor coding is no body", b"POST /x HTTP/1.1\r\n" + H + b"\r\n", seen=(b"POST /x ",)),
    Case("9110 9.3.1", "GET with a body", b"GET" + POST[4:], seen=(b"GET /x 12345",)),
    _refused("9112 6.3", "a negative length", b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: -1\r\n\r\n"),
    _refused(
        "9112 6.3",
        "a negative length that overflows",
        b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: -18446744073709551615\r\n\r\n",
    ),
    _refused("9112 6.3", "a length that is no number", b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: abc\r\n\r\n"),
    _refused("9112 6.3", "a length and a coding", CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n"),
    _refused("9112 6.1", "a coding that nobody knows", b"POST /x HTTP/1.1\r\n" + H + b"Transfer-Encoding: x\r\n\r\n"),
    _refused(
        "9112 6.1",
        "chunked is not the last coding",
        b"POST /x HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    ),
    _refused("9112 6.1", "a coding in HTTP/1.0", b"POST /x HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Case("9112 7.1", "chunks", CHUNKED + b"3\r\n123\r\n2\r\n45\r\n0\r\n\r\n", seen=(b"POST /x 12345",)),
    Case("9112 7.1", "no chunk", CHUNKED + b"0\r\n\r\n", seen=(b"POST /x ",)),
    Case(
        "9112 7.1", "a size in capitals, with zeros", CHUNKED + b"000A\r\n1234567890\r\n0\r\n\r\n", seen=(b"POST /x 1234567890",)
    ),
    Case("9112 7.1.1", "extensions are not for us", CHUNKED + b'5;a;b="c;d"\r\n12345\r\n0;e\r\n\r\n', seen=(b"POST /x 12345",)),
    Case(
        "9112 7.1.2",
        "trailers are dropped",
        CHUNKED + b"5\r\n12345\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n",
        seen=(b"POST /x 12345",),
    ),
    _refused("9112 7.1", "a size that is none", CHUNKED + b"x\r\n12345\r\n0\r\n\r\n"),
    # Connections.
    Case("9112 9.3", "a second request on a connection", GET + GET, (200, 200), (b"GET /x ", b"GET /x ")),
    Case(
        "9112 9.3.2",
        "requests in a row",
        GET + POST + CHUNKED + b"1\r\nx\r\n0\r\n\r\n" + GET,
        (200,) * 4,
        (b"GET /x ", b"POST /x 12345", b"POST /x x", b"GET /x "),
    ),
    _refused("9112 9.3.2", "garbage behind a request", GET + b"garbage\r\n\r\n", seen=(b"GET /x ",)),
    Case("9112 9.3", "kept without a word in HTTP/1.1", GET, seen=(b"GET /x ",), lacks="connection"),
    Case("9112 9.6", "close", GET[:-2] + b"Connection: close\r\n\r\n", seen=(b"GET /x ",), ends=True, has=b"Connection: close"),
    Case(
        "9112 9.6",
        "close among others, in capitals",
        GET[:-2] + b"Connection: x, CLOSE\r\n\r\n",
        seen=(b"GET /x ",),
        ends=True,
        has=b"Connection: close",
    ),
    Case("9112 9.6", "no request behind close", GET[:-2] + b"Connection: close\r\n\r\n" + POST, seen=(b"GET /x ",), ends=True),
    Case(
        "9112 9.3",
        "HTTP/1.0 closes",
        b"GET /x HTTP/1.0\r\n" + H + b"\r\n",
        seen=(b"GET /x ",),
        ends=True,
        has=b"Connection: close",
    ),
    Case(
        "9112 C.2.2",
        "HTTP/1.0 is kept where it asks for that",
        b"GET /x HTTP/1.0\r\n" + H + b"Connection: keep-alive\r\n\r\n",
        seen=(b"GET /x ",),
        has=b"Connection: keep-alive",
    ),
    Case(
        "9112 9.1",
        "the upstream's close is not the client's",
        GET,
        seen=(b"GET /x ",),
        given=b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        lacks="connection",
    ),
    Case(
        "9110 7.8",
        "an upgrade that nobody follows",
        GET[:-2] + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        seen=(b"GET /x ",),
    ),
    # Answers.
    Case(
        "9110 9.3.2",
        "HEAD has no body",
        b"HEAD" + GET[3:],
        seen=(b"HEAD /x ",),
        given=OK[:-2],
        has=b"Content-Length: 2",
        body=b"",
    ),
    Case("9110 9.3.7", "OPTIONS", b"OPTIONS" + GET[3:], seen=(b"OPTIONS /x ",)),
    Case("9110 8.6", "204 has no length", GET, (204,), (b"GET /x ",), b"HTTP/1.1 204 No Content\r\n\r\n", lacks="content-length"),
    Case(
        "9112 6.1", "204 has no coding", GET, (204,), (b"GET /x ",), b"HTTP/1.1 204 No Content\r\n\r\n", lacks="transfer-encoding"
    ),
    Case(
        "9112 6.3",
        "304 has no body",
        GET,
        (304,),
        (b"GET /x ",),
        b"HTTP/1.1 304 Not Modified\r\nETag: 1\r\n\r\n",
        has=b"ETag: 1",
        body=b"",
    ),
    Case("9112 6.1", "a coded answer has one framing", GET, seen=(b"GET /x ",), given=CHUNKS, body=b"ok"),
    Case(
        "9112 6.1",
        "no chunks for HTTP/1.0",
        b"GET /x HTTP/1.0\r\n" + H + b"\r\n",
        seen=(b"GET /x ",),
        given=CHUNKS,
        ends=True,
        lacks="transfer-encoding",
        body=b"ok",
    ),
    Case(
        "9110 2.5",
        "an answer speaks our version",
        b"GET /x HTTP/1.0\r\n" + H + b"\r\n",
        seen=(b"GET /x ",),
        given=OK.replace(b"1.1", b"1.0"),
        ends=True,
    ),
    # Expectations.
    Case(
        "9110 10.1.1",
        "100-continue with the body at once",
        POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
        seen=(b"POST /x 12345",),
    ),
    Case("9110 10.1.1", "100-continue without a body", GET[:-2] + b"Expect: 100-continue\r\n\r\n", seen=(b"GET /x ",)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.section}: {case.name}")
@pytest.mark.parametrize("cut", [False, True], ids=["at once", "byte by byte"])
def test_it_is_done_as_the_section_says(upstream: Upstream, port: int, case: Case, *, cut: bool) -> None:
    """Statuses, the end of the connection, and what the upstream saw, however the bytes are cut."""
    if cut and current().client_tls:
        pytest.skip("what TLS carries is the same HTTP when it is deciphered")
    if cut and len(case.sent) > 1000:
        pytest.skip("too many system calls")

    def play(line: Line) -> None:
        while True:
            line.request()
            line.send(case.given if len(upstream.requests) <= len(case.seen) else OK)

    upstream.plays(play)
    with Client(port) as client:
        for piece in (bytes([byte]) for byte in case.sent) if cut else (case.sent,):
            client.send(piece)
        found = [_final(client, bodiless=case.sent.startswith(b"HEAD ")) for _ in case.statuses]
        ended = client.ended() if case.ends else client.ask(GET).body != b"ok"
    seen = [one.start.removesuffix(b"HTTP/1.1") + one.body for one in upstream.requests]
    last = found[-1]

    assert list(case.statuses) == [status(answer) for answer in found]
    assert case.ends == ended
    assert [*case.seen, *([] if case.ends else [b"GET /x "])] == seen
    assert case.has is None or case.has in last.lines
    assert case.lacks is None or [] == last.values(case.lacks)
    assert case.body is None or case.body == last.body
    assert last.start.startswith(b"HTTP/1.1 ")
    assert len(last.values("content-length") + last.values("transfer-encoding")) <= 1


def _final(client: Client, *, bodiless: bool) -> Message:
    """The next answer that is not an informational one."""
    while status(answer := client.message(bodiless=bodiless)) < 200:
        pass
    return answer
