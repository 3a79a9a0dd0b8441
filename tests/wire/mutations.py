"""Requests and answers whose end, or whose address, two readers could find in different places: data, no behaviour.

Each is valid HTTP/1.1 but for one thing. `reading` is what RFC 9112 makes of it; where that leaves a choice between repairing and
refusing, the choice is to refuse, since a proxy that repairs has to hope that everybody behind it repairs in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLACE: Final = b"X-Place: 1\r\n"
"""Stands where a test may put the line with its key."""

START: Final = b"POST /mutated HTTP/1.1\r\nHost: proxy.example\r\n" + PLACE
CHUNKED: Final = START + b"Transfer-Encoding: chunked\r\n\r\n"
GET: Final = b"GET /mutated HTTP/1.1\r\n"
HOST: Final = b"Host: proxy.example\r\n"


@dataclass(frozen=True, slots=True)
class Reading:
    """The one way to read a request: its request line, its body, and whether another request may follow on its connection."""

    start: bytes = b"POST /mutated HTTP/1.1"
    body: bytes = b""
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Mutation:
    """A request on the wire. Without a `reading` it must be refused with one of `statuses`, and its connection ended.

    `may_refuse`: RFC 9112 leaves it to the server whether it takes the reading or refuses.
    """

    name: str
    raw: bytes
    reading: Reading | None = None
    statuses: tuple[int, ...] = (400,)
    may_refuse: bool = False
    in_body: bool = False
    """What is wrong comes behind the head, which may have been passed on by then."""


@dataclass(frozen=True, slots=True)
class AnswerMutation:
    """What an upstream says to a request of a method, as (status, body) for the client; None: no answer, so 502.

    `late` is said when the client has that answer. `ends`: the upstream hangs up after it.
    """

    name: str
    raw: bytes
    reading: tuple[int, bytes] | None
    method: str = "PUT"
    late: bytes = b""
    ends: bool = False


_REFUSED_CODINGS: Final = {  # RFC 9112, sections 6.1 and 5.1
    "tab before": b"Transfer-Encoding:\tchunked, identity",
    "vertical tab before": b"Transfer-Encoding: \x0bchunked",
    "vertical tab after": b"Transfer-Encoding: chunked\x0b",
    "form feed before": b"Transfer-Encoding: \x0cchunked",
    "form feed after": b"Transfer-Encoding: chunked\x0c",
    "NUL after": b"Transfer-Encoding: chunked\x00",
    "NUL before": b"Transfer-Encoding: \x00chunked",
    "DEL after": b"Transfer-Encoding: chunked\x7f",
    "no-break space before": b"Transfer-Encoding: \xa0chunked",
    "0xff after": b"Transfer-Encoding: chunked\xff",
    "a capital that folds to k": b"Transfer-Encoding: chun\xe2\x84\xaaed",
    "double quotes": b'Transfer-Encoding: "chunked"',
    "single quotes": b"Transfer-Encoding: 'chunked'",
    "x": b"Transfer-Encoding: x",
    "xchunked": b"Transfer-Encoding: xchunked",
    "chunkedx": b"Transfer-Encoding: chunkedx",
    "chunke": b"Transfer-Encoding: chunke",
    "chun ked": b"Transfer-Encoding: chun ked",
    "identity": b"Transfer-Encoding: identity",
    "gzip": b"Transfer-Encoding: gzip",
    "gzip, chunked": b"Transfer-Encoding: gzip, chunked",
    "chunked, gzip": b"Transfer-Encoding: chunked, gzip",
    "chunked, identity": b"Transfer-Encoding: chunked, identity",
    "identity, chunked": b"Transfer-Encoding: identity, chunked",
    "chunked twice": b"Transfer-Encoding: chunked, chunked",
    "trailing comma": b"Transfer-Encoding: chunked,",
    "leading comma": b"Transfer-Encoding: , chunked",
    "semicolon": b"Transfer-Encoding: chunked;",
    "parameter": b"Transfer-Encoding: chunked;q=1",
    "empty": b"Transfer-Encoding:",
    "empty, then chunked": b"Transfer-Encoding:\r\nTransfer-Encoding: chunked",
    "two lines": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "two lines, then x": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "two lines, x first": b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "two lines, identity first": b"transfer-encoding: identity\r\nTransfer-Encoding: chunked",
    "space before the colon": b"Transfer-Encoding : chunked",
    "tab before the colon": b"Transfer-Encoding\t: chunked",
    "vertical tab before the colon": b"Transfer-Encoding\x0b: chunked",
    "NUL in the name": b"Transfer\x00-Encoding: chunked",
    "space before the name": b" Transfer-Encoding: chunked",
    "tab before the name": b"\tTransfer-Encoding: chunked",
    "folded": b"Transfer-Encoding:\r\n chunked",
    "folded with a tab": b"Transfer-Encoding:\r\n\tchunked",
    "folded behind": b"Transfer-Encoding: chunked\r\n , identity",
    "hidden in a folded line": b"X-Other: 1\r\n Transfer-Encoding: chunked",
    "behind a bare LF": b"X-Other: 1\nTransfer-Encoding: chunked",
    "behind a bare CR": b"X-Other: 1\rTransfer-Encoding: chunked",
    "ended by a bare LF": b"Transfer-Encoding: chunked\nX-Other: 1",
    "ended by a bare CR": b"Transfer-Encoding: chunked\rX-Other: 1",
    "ended by CR CR LF": b"Transfer-Encoding: chunked\r",
    "no colon": b"Transfer-Encoding chunked",
    "equals sign": b"Transfer-Encoding= chunked",
}

_REFUSED_LENGTHS: Final = {  # RFC 9110, section 8.6, and RFC 9112, section 6.3
    "plus": b"Content-Length: +5",
    "minus": b"Content-Length: -5",
    "minus zero": b"Content-Length: -0",
    "two numbers": b"Content-Length: 5 5",
    "list of equals": b"Content-Length: 5, 5",
    "list": b"Content-Length: 5, 6",
    "list without blanks": b"Content-Length: 5,5",
    "quoted list": b'Content-Length: "5,5"',
    "quoted": b'Content-Length: "5"',
    "trailing comma": b"Content-Length: 5,",
    "hexadecimal": b"Content-Length: 0x5",
    "underscore": b"Content-Length: 0_5",
    "fraction": b"Content-Length: 5.0",
    "exponent": b"Content-Length: 5e0",
    "letter behind": b"Content-Length: 5a",
    "semicolon behind": b"Content-Length: 5;",
    "no digit": b"Content-Length: x",
    "empty": b"Content-Length:",
    "only blanks": b"Content-Length: \t ",
    "2 to the 64th plus 5": b"Content-Length: 18446744073709551621",
    "forty digits": b"Content-Length: " + b"9" * 40,
    "two equal lines": b"Content-Length: 5\r\nContent-Length: 5",
    "two differing lines": b"Content-Length: 5\r\nContent-Length: 6",
    "two differing lines, the shorter last": b"Content-Length: 6\r\ncontent-length: 5",
    "zero and five": b"Content-Length: 0\r\nContent-Length: 5",
    "vertical tab before": b"Content-Length: \x0b5",
    "form feed behind": b"Content-Length: 5\x0c",
    "NUL behind": b"Content-Length: 5\x00",
    "no-break space before": b"Content-Length: \xa05",
    "Arabic digit": b"Content-Length: \xd9\xa5",
    "space before the colon": b"Content-Length : 5",
    "tab before the colon": b"Content-Length\t: 5",
    "NUL in the name": b"Content\x00-Length: 5",
    "folded": b"Content-Length:\r\n 5",
    "folded behind": b"Content-Length: 5\r\n 5",
    "behind a bare LF": b"X-Other: 1\nContent-Length: 5",
    "behind a bare CR": b"X-Other: 1\rContent-Length: 5",
    "ended by a bare LF": b"Content-Length: 5\nX-Other: 1",
    "no colon": b"Content-Length 5",
}

_READ_LENGTHS: Final = {
    "leading zeros": b"Content-Length: 0005",
    "trailing blanks": b"Content-Length: 5   ",
    "trailing tab": b"Content-Length: 5\t",
    "leading tab": b"Content-Length:\t5",
    "no blank": b"Content-Length:5",
    "lower case": b"content-length: 5",
    "another name with an underscore": b"Content_Length: 6\r\nContent-Length: 5",
}

_REFUSED_CHUNKS: Final = {  # RFC 9112, section 7.1; all come after `Transfer-Encoding: chunked`
    "0x": b"0x5\r\n12345\r\n0\r\n\r\n",
    "minus": b"-5\r\n12345\r\n0\r\n\r\n",
    "minus zero": b"-0\r\n\r\n",
    "plus": b"+5\r\n12345\r\n0\r\n\r\n",
    "underscore": b"0_5\r\n12345\r\n0\r\n\r\n",
    "seventeen digits": b"10000000000000005\r\n12345\r\n0\r\n\r\n",
    "sixteen digits of F": b"FFFFFFFFFFFFFFFFF\r\n12345\r\n0\r\n\r\n",
    "leading blank": b" 5\r\n12345\r\n0\r\n\r\n",
    "leading tab": b"\t5\r\n12345\r\n0\r\n\r\n",
    "leading empty line": b"\r\n5\r\n12345\r\n0\r\n\r\n",
    "trailing blank": b"5 \r\n12345\r\n0\r\n\r\n",
    "trailing NUL": b"5\x00\r\n12345\r\n0\r\n\r\n",
    "no size": b"\r\n12345\r\n0\r\n\r\n",
    "extension without a size": b";a=1\r\n12345\r\n0\r\n\r\n",
    "not hexadecimal": b"g\r\n12345\r\n0\r\n\r\n",
    "letter behind": b"5g\r\n12345\r\n0\r\n\r\n",
    "two sizes": b"5 5\r\n12345\r\n0\r\n\r\n",
    "comma": b"5,a\r\n12345\r\n0\r\n\r\n",
    "fraction": b"5.0\r\n12345\r\n0\r\n\r\n",
    "size ended by a bare LF": b"5\n12345\r\n0\r\n\r\n",
    "size ended by a bare CR": b"5\r12345\r\n0\r\n\r\n",
    "size ended by CR CR LF": b"5\r\r\n12345\r\n0\r\n\r\n",
    "extension with a bare LF": b"5;a\nb\r\n12345\r\n0\r\n\r\n",
    "extension with a bare CR": b"5;a\rb\r\n12345\r\n0\r\n\r\n",
    "extension with a NUL": b"5;a\x00b\r\n12345\r\n0\r\n\r\n",
    "extension ended by a bare LF": b"5;a\n12345\r\n0\r\n\r\n",
    "no CRLF behind the data": b"5\r\n123450\r\n\r\n",
    "extra bytes behind the data": b"5\r\n1234567\r\n0\r\n\r\n",
    "data ended by a bare LF": b"5\r\n12345\n0\r\n\r\n",
    "data ended by a bare CR": b"5\r\n12345\r0\r\n\r\n",
    "data ended by XX": b"5\r\n12345XX0\r\n\r\n",
    "data too short": b"6\r\n12345\r\n0\r\n\r\n",
    "last chunk 0x0": b"5\r\n12345\r\n0x0\r\n\r\n",
    "last chunk ended by a bare LF": b"5\r\n12345\r\n0\n\n",
    "empty line ended by a bare LF": b"5\r\n12345\r\n0\r\n\n",
    "empty line with a blank": b"5\r\n12345\r\n0\r\n \r\n\r\n",
    "trailer without a colon": b"5\r\n12345\r\n0\r\nX-Trailer\r\n\r\n",
    "trailer with a space before the colon": b"5\r\n12345\r\n0\r\nX-Trailer : 1\r\n\r\n",
    "trailer with a NUL": b"5\r\n12345\r\n0\r\nX-Trailer: \x00\r\n\r\n",
    "trailer ended by a bare LF": b"5\r\n12345\r\n0\r\nX-Trailer: 1\n\r\n",
    "folded trailer": b"5\r\n12345\r\n0\r\nX-Trailer: 1\r\n 2\r\n\r\n",
}

_READ_CHUNKS: Final = {
    "upper case": b"A\r\n1234512345\r\n0\r\n\r\n",
    "lower case": b"a\r\n1234512345\r\n0\r\n\r\n",
    "leading zeros": b"00000005\r\n12345\r\n0\r\n\r\n",
    "an extension": b"5;a=1;b\r\n12345\r\n0;c\r\n\r\n",
    "a quoted extension": b'5;a="x;y"\r\n12345\r\n0\r\n\r\n',
    "several zeros at the end": b"5\r\n12345\r\n000\r\n\r\n",
    "data that looks like chunks": b"5\r\n0\r\n\r\n\r\n0\r\n\r\n",
    "a trailer": b"5\r\n12345\r\n0\r\nX-Trailer: 1\r\n\r\n",
}
_FRAMING_TRAILERS: Final = {  # RFC 9110, section 6.5.1: never merged into the head; ignored, or refused
    "Transfer-Encoding as a trailer": b"5\r\n12345\r\n0\r\nTransfer-Encoding: identity\r\n\r\n",
    "Content-Length as a trailer": b"5\r\n12345\r\n0\r\nContent-Length: 100\r\n\r\n",
    "Host and key as trailers": b"5\r\n12345\r\n0\r\nHost: other.example\r\nIdempotency-Key: other\r\n\r\n",
    "Connection as a trailer": b"5\r\n12345\r\n0\r\nConnection: close\r\n\r\n",
}
_DECODED: Final = {"upper case": b"1234512345", "lower case": b"1234512345", "data that looks like chunks": b"0\r\n\r\n"}

_REFUSED_LINES: Final = {  # RFC 9112, section 3
    "tab before the target": b"GET\t/mutated HTTP/1.1\r\n" + HOST,
    "tab before the version": b"GET /mutated\tHTTP/1.1\r\n" + HOST,
    "blank behind the version": b"GET /mutated HTTP/1.1 \r\n" + HOST,
    "blank before the method": b" GET /mutated HTTP/1.1\r\n" + HOST,
    "tab in the target": b"GET /mu\ttated HTTP/1.1\r\n" + HOST,
    "NUL in the target": b"GET /mu\x00tated HTTP/1.1\r\n" + HOST,
    "bare CR in the target": b"GET /mu\rtated HTTP/1.1\r\n" + HOST,
    "bare LF in the target": b"GET /mu\ntated HTTP/1.1\r\n" + HOST,
    "DEL in the target": b"GET /mu\x7ftated HTTP/1.1\r\n" + HOST,
    "non-ASCII in the target": b"GET /mu\xc3\xa4tated HTTP/1.1\r\n" + HOST,
    "fragment": b"GET /mutated#here HTTP/1.1\r\n" + HOST,
    "fragment behind the query": b"GET /mutated?a=b#here HTTP/1.1\r\n" + HOST,
    "no target": b"GET HTTP/1.1\r\n" + HOST,
    "target without a slash": b"GET mutated HTTP/1.1\r\n" + HOST,
    "target with a question mark only": b"GET ?a=b HTTP/1.1\r\n" + HOST,
    "backslash target": b"GET \\mutated HTTP/1.1\r\n" + HOST,
    "asterisk for GET": b"GET * HTTP/1.1\r\n" + HOST,
    "authority for GET": b"GET other.example:80 HTTP/1.1\r\n" + HOST,
    "no version": b"GET /mutated\r\n" + HOST,
    "lower case": b"GET /mutated http/1.1\r\n" + HOST,
    "no digits": b"GET /mutated HTTP/\r\n" + HOST,
    "three digits": b"GET /mutated HTTP/1.1.1\r\n" + HOST,
    "two digits behind the dot": b"GET /mutated HTTP/1.10\r\n" + HOST,
    "leading zero": b"GET /mutated HTTP/01.1\r\n" + HOST,
    "comma": b"GET /mutated HTTP/1,1\r\n" + HOST,
    "another protocol": b"GET /mutated ICY/1.1\r\n" + HOST,
    "RTSP": b"OPTIONS /mutated RTSP/1.0\r\n" + HOST,
    "HTTP/0.9": b"GET /mutated HTTP/0.9\r\n" + HOST,
    "HTTP/2.0": b"GET /mutated HTTP/2.0\r\n" + HOST,
    "HTTP/3.0": b"GET /mutated HTTP/3.0\r\n" + HOST,
    "ended by a bare LF": b"GET /mutated HTTP/1.1\n" + HOST,
    "ended by a bare CR": b"GET /mutated HTTP/1.1\r" + HOST,
    "ended by CR CR LF": b"GET /mutated HTTP/1.1\r\r\n" + HOST,
    "control character in the method": b"GE\x01T /mutated HTTP/1.1\r\n" + HOST,
    "NUL before the method": b"\x00GET /mutated HTTP/1.1\r\n" + HOST,
    "colon in the method": b"GE:T /mutated HTTP/1.1\r\n" + HOST,
    "absolute with another authority": b"GET http://other.example/mutated HTTP/1.1\r\n" + HOST,
    "absolute with another scheme": b"GET ftp://proxy.example/mutated HTTP/1.1\r\n" + HOST,
    "absolute with a user": b"GET http://user@proxy.example/mutated HTTP/1.1\r\n" + HOST,
    "absolute without an authority": b"GET http:///mutated HTTP/1.1\r\n" + HOST,
}

_READ_LINES: Final = {
    "two slashes": b"GET //other.example/mutated HTTP/1.1",
    "a URL as a path": b"GET /http://other.example/mutated HTTP/1.1",
    "dots": b"GET /../../mutated HTTP/1.1",
    "an encoded line end": b"GET /mutated%0d%0aHost:%20other.example HTTP/1.1",
    "an encoded NUL": b"GET /mutated%00 HTTP/1.1",
}

_REFUSED_FIELDS: Final = {  # RFC 9112, sections 3.2 and 5; RFC 9110, section 5.5
    "no Host": b"X-Other: 1\r\n",
    "two Hosts": HOST + b"Host: other.example\r\n",
    "two equal Hosts": HOST + HOST,
    "Host and host": HOST + b"host: other.example\r\n",
    "Host with a user": b"Host: user@proxy.example\r\n",
    "Host with a comma": b"Host: proxy.example, other.example\r\n",
    "Host with a blank": b"Host: proxy.example other.example\r\n",
    "Host with a slash": b"Host: proxy.example/x\r\n",
    "Host with a backslash": b"Host: proxy.example\\x\r\n",
    "Host with a question mark": b"Host: proxy.example?x\r\n",
    "Host with a hash": b"Host: proxy.example#x\r\n",
    "Host with a bad port": b"Host: proxy.example:8o\r\n",
    "Host with two ports": b"Host: proxy.example:80:80\r\n",
    "Host with an open bracket": b"Host: [::1\r\n",
    "Host with non-ASCII": b"Host: pr\xc3\xb6xy.example\r\n",
    "space before the colon of Host": b"Host : proxy.example\r\n",
    "folded Host": b"Host:\r\n proxy.example\r\n",
    "blank before the first field": b" " + HOST,
    "tab before the first field": b"\t" + HOST,
    "empty line of blanks before the first field": b" \r\n" + HOST,
    "no name": HOST + b": 1\r\n",
    "a name that begins with a colon": HOST + b":X-Other: 1\r\n",
    "a blank in a name": HOST + b"X Other: 1\r\n",
    "a blank before the colon": HOST + b"X-Other : 1\r\n",
    "a control character in a name": HOST + b"X\x01Other: 1\r\n",
    "a non-ASCII name": HOST + b"X-\xc3\x96ther: 1\r\n",
    "a bracket in a name": HOST + b"X[Other]: 1\r\n",
    "a quote in a name": HOST + b'X"Other": 1\r\n',
    "a line without a colon": HOST + b"X-Other\r\n",
    "a NUL in a value": HOST + b"X-Other: a\x00b\r\n",
    "a control character in a value": HOST + b"X-Other: a\x01b\r\n",
    "an escape in a value": HOST + b"X-Other: a\x1bb\r\n",
    "a DEL in a value": HOST + b"X-Other: a\x7fb\r\n",
    "a non-ASCII value": HOST + b"X-Other: caf\xc3\xa9\r\n",
    "a bare CR in a value": HOST + b"X-Other: a\rb\r\n",
    "a bare LF in a value": HOST + b"X-Other: a\nb\r\n",
    "a folded value": HOST + b"X-Other: a\r\n b\r\n",
    "a line that ends with CR CR LF": HOST + b"X-Other: a\r\r\n",
}

_OTHERS: Final = (
    Mutation(  # RFC 9112, section 3: a recipient may split the line at any white space
        "two blanks before the target",
        b"GET  /mutated HTTP/1.1\r\n" + HOST + b"\r\n",
        Reading(b"GET /mutated HTTP/1.1"),
        may_refuse=True,
    ),
    Mutation(
        "two blanks before the version",
        b"GET /mutated  HTTP/1.1\r\n" + HOST + b"\r\n",
        Reading(b"GET /mutated HTTP/1.1"),
        may_refuse=True,
    ),
    Mutation("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", statuses=(400, 505)),
    Mutation("a record of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    Mutation("CONNECT", b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", statuses=(405,)),
    Mutation("CONNECT with a path", b"CONNECT /mutated HTTP/1.1\r\n" + HOST + b"\r\n", statuses=(400, 405)),
    Mutation(  # RFC 9110, section 10.1.1
        "an unknown expectation",
        START + b"Expect: 200-ok\r\nContent-Length: 5\r\n\r\n12345",
        Reading(body=b"12345"),
        statuses=(417,),
        may_refuse=True,
    ),
    Mutation("HTTP/1.0 with chunks", b"POST /mutated HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Mutation(
        "HTTP/1.0 with chunks and a length",
        b"POST /mutated HTTP/1.0\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    Mutation("a length, then chunks", START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Mutation("chunks, then a length", START + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    Mutation("a length of zero and chunks", START + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Mutation(
        "chunks and a length that Connection names",
        START + b"Connection: Content-Length\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    Mutation(
        "a length and chunks that Connection names",
        START + b"Connection: Transfer-Encoding\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    Mutation(
        "Connection names the length",
        START + b"Connection: Content-Length\r\nContent-Length: 5\r\n\r\n12345",
        Reading(body=b"12345"),
    ),
    Mutation(
        "Connection names the chunks",
        START + b"Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
        Reading(body=b"12345"),
    ),
    Mutation("Connection names Host", START + b"Connection: Host\r\nContent-Length: 5\r\n\r\n12345", Reading(body=b"12345")),
    Mutation(
        "Connection names the key",
        START + b"Connection: idempotency-key\r\nContent-Length: 5\r\n\r\n12345",
        Reading(body=b"12345"),
    ),
    Mutation(
        "Connection is close, then keep-alive",
        START + b"Connection: close\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n12345",
        Reading(body=b"12345", kept=False),
        may_refuse=True,
    ),
    Mutation("no length and bytes that follow", START + b"\r\n12345", Reading(kept=False), may_refuse=True),
    Mutation(
        "a length that is too short", START + b"Content-Length: 3\r\n\r\n12345", Reading(body=b"123", kept=False), may_refuse=True
    ),
    Mutation(
        "a body that is a request",
        START + b"Content-Length: 53\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: proxy.example\r\nA: 1\r\n\r\n",
        Reading(body=b"GET /smuggled HTTP/1.1\r\nHost: proxy.example\r\nA: 1\r\n\r\n"),
    ),
    Mutation(
        "GET with a body that is a request",
        GET + HOST + b"Content-Length: 53\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: proxy.example\r\nA: 1\r\n\r\n",
        Reading(b"GET /mutated HTTP/1.1", b"GET /smuggled HTTP/1.1\r\nHost: proxy.example\r\nA: 1\r\n\r\n"),
    ),
    Mutation("capital letters", START + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n5\r\n12345\r\n0\r\n\r\n", Reading(body=b"12345")),
    Mutation("blanks around chunked", START + b"Transfer-Encoding: \t chunked \t\r\n\r\n0\r\n\r\n", Reading(), may_refuse=True),
    Mutation(
        "Transfer_Encoding",
        START + b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        Reading(body=b"0\r\n\r\n"),
    ),
    Mutation("empty lines first", b"\r\n\r\n" + START + b"Content-Length: 5\r\n\r\n12345", Reading(body=b"12345")),
    Mutation("an empty line behind a body", START + b"Content-Length: 5\r\n\r\n12345\r\n", Reading(body=b"12345")),
    Mutation(
        "HTTP/1.2",
        b"GET /mutated HTTP/1.2\r\n" + HOST + b"\r\n",
        Reading(b"GET /mutated HTTP/1.1"),
        statuses=(400, 505),
        may_refuse=True,
    ),
    Mutation(
        "absolute with our authority",
        b"GET http://proxy.example/mutated HTTP/1.1\r\nHost: proxy.example:80\r\n\r\n",
        Reading(b"GET /mutated HTTP/1.1"),
    ),
    Mutation(
        "Upgrade: h2c",
        GET + HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        Reading(b"GET /mutated HTTP/1.1"),
    ),
    Mutation(
        "Expect: 100-continue with the body at once",
        START + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n12345",
        Reading(body=b"12345"),
    ),
    Mutation(
        "Expect: 100-continue without a body", GET + HOST + b"Expect: 100-continue\r\n\r\n", Reading(b"GET /mutated HTTP/1.1")
    ),
)


def _mutations() -> tuple[Mutation, ...]:
    smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: proxy.example\r\n\r\n"
    length = b"Content-Length: %d\r\n" % len(smuggled)
    told = b"\r\n\r\n"
    return (
        *(Mutation(f"coding: {name}", START + line + told + b"0\r\n\r\n") for name, line in _REFUSED_CODINGS.items()),
        *(Mutation(f"CL.TE: {name}", START + length + line + told + smuggled) for name, line in _REFUSED_CODINGS.items()),
        *(
            Mutation(f"TE.CL: {name}", START + line + b"\r\n" + length + told[2:] + smuggled)
            for name, line in _REFUSED_CODINGS.items()
        ),
        *(Mutation(f"length: {name}", START + line + told + b"12345") for name, line in _REFUSED_LENGTHS.items()),
        *(
            Mutation(f"length: {name}", START + line + told + b"12345", Reading(body=b"12345"))
            for name, line in _READ_LENGTHS.items()
        ),
        *(Mutation(f"chunk: {name}", CHUNKED + body, in_body=True) for name, body in _REFUSED_CHUNKS.items()),
        *(
            Mutation(f"chunk: {name}", CHUNKED + body, Reading(body=_DECODED.get(name, b"12345")))
            for name, body in _READ_CHUNKS.items()
        ),
        *(
            Mutation(f"chunk: {name}", CHUNKED + body, Reading(body=b"12345"), may_refuse=True, in_body=True)
            for name, body in _FRAMING_TRAILERS.items()
        ),
        *(Mutation(f"line: {name}", lines + b"\r\n", statuses=(400, 421, 505)) for name, lines in _REFUSED_LINES.items()),
        *(Mutation(f"line: {name}", start + b"\r\n" + HOST + b"\r\n", Reading(start)) for name, start in _READ_LINES.items()),
        *(Mutation(f"field: {name}", GET + lines + b"\r\n") for name, lines in _REFUSED_FIELDS.items()),
        *_OTHERS,
    )


MUTATIONS: Final = _mutations()


OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STALE: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale"
_WHOLE: Final = (200, b"ok")

_NO_ANSWERS: Final = {  # nobody can say where it ends, or whether it is one
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok!",
    "plus": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "minus": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "hexadecimal": b"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
    "a length that is too large": b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nok",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunks and a length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "coding x": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\nok",
    "coding chunked, identity": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "coding gzip, chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "coding chunked twice": b"HTTP/1.1 200 OK\r\n" + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n2\r\nok\r\n0\r\n\r\n",
    "coding with a vertical tab": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunk size 0x": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
    "chunk size minus": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n",
    "chunk size too large": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nok\r\n0\r\n\r\n",
    "chunk without CRLF": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok0\r\n\r\n",
    "chunk with extra bytes": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokok\r\n0\r\n\r\n",
    "a bare LF behind a chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n",
    "space before a colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "a folded length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok",
    "a NUL in a value": b"HTTP/1.1 200 OK\r\nX-Other: a\x00b\r\nContent-Length: 2\r\n\r\nok",
    "a bare CR in a value": b"HTTP/1.1 200 OK\r\nX-Other: a\rX-Split: b\r\nContent-Length: 2\r\n\r\nok",
    "a line without a colon": b"HTTP/1.1 200 OK\r\nX-Other\r\nContent-Length: 2\r\n\r\nok",
    "an empty name": b"HTTP/1.1 200 OK\r\n: 1\r\nContent-Length: 2\r\n\r\nok",
    "no status": b"HTTP/1.1 OK\r\nContent-Length: 2\r\n\r\nok",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
    "status 600": b"HTTP/1.1 600 OK\r\nContent-Length: 2\r\n\r\nok",
    "another protocol": b"ICY 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "bytes before the answer": b"stale" + OK,
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "101 that nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + STALE,
}

ANSWER_MUTATIONS: Final = (
    *(AnswerMutation(name, raw, None) for name, raw in _NO_ANSWERS.items()),
    AnswerMutation("a second answer", OK + STALE, _WHOLE),
    AnswerMutation("a second answer, late", OK, _WHOLE, late=STALE),
    AnswerMutation("half a second answer", OK + STALE[:20], _WHOLE),
    AnswerMutation("half a second answer, late", OK, _WHOLE, late=STALE[:20]),
    AnswerMutation("a body longer than its length", OK + b"stale", _WHOLE),
    AnswerMutation("a body longer than its length, late", OK, _WHOLE, late=b"stale"),
    AnswerMutation("an empty line behind", OK + b"\r\n", _WHOLE),
    AnswerMutation("an empty line behind, late", OK, _WHOLE, late=b"\r\n"),
    AnswerMutation("103 behind", OK + b"HTTP/1.1 103 Early Hints\r\n\r\n", _WHOLE),
    AnswerMutation("103 behind, late", OK, _WHOLE, late=b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    AnswerMutation("a length of zero and a body", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + STALE, (200, b"")),
    AnswerMutation("204 with a body", b"HTTP/1.1 204 No Content\r\n\r\n" + STALE, (204, b"")),
    AnswerMutation("204 with a length and a body", b"HTTP/1.1 204 No Content\r\nContent-Length: 50\r\n\r\n" + STALE, (204, b"")),
    AnswerMutation(
        "204 with chunks", b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstale\r\n0\r\n\r\n", (204, b"")
    ),
    AnswerMutation("304 with a body", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n" + STALE, (304, b"")),
    AnswerMutation("304 with a body, late", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n", (304, b""), late=STALE),
    AnswerMutation("HEAD with a body", OK + STALE, (200, b""), method="HEAD"),
    AnswerMutation("HEAD with a body, late", OK[:-2], (200, b""), method="HEAD", late=b"ok" + STALE),
    AnswerMutation(
        "HEAD with chunks",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstale\r\n0\r\n\r\n",
        (200, b""),
        method="HEAD",
    ),
    AnswerMutation(
        "behind the last chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + STALE, _WHOLE
    ),
    AnswerMutation(
        "framing as trailers",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Length: 5\r\nSet-Cookie: a\r\n\r\n" + STALE,
        _WHOLE,
    ),
    AnswerMutation("close and more", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok" + STALE, _WHOLE),
    AnswerMutation("HTTP/1.0 and more", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok" + STALE, _WHOLE),
    AnswerMutation("a hundred informational answers", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + OK, _WHOLE),
    AnswerMutation("too many informational answers", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000 + OK, None),
    AnswerMutation(
        "an informational answer with a length", b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n" + OK, _WHOLE
    ),
    AnswerMutation("only an informational answer", b"HTTP/1.1 100 Continue\r\n\r\n", None, ends=True),
    AnswerMutation("a body shorter than its length", OK[:-1], None, ends=True),
    AnswerMutation("no last chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", None, ends=True),
    AnswerMutation("a head without its end", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", None, ends=True),
    AnswerMutation("nothing", b"", None, ends=True),
    AnswerMutation("up to the end of the connection", b"HTTP/1.1 200 OK\r\n\r\nok", _WHOLE, ends=True),
)
