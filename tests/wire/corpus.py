"""A corpus of requests and answers, and an oracle that says from the contract alone what must come out on the other side.

Nothing here knows how the proxy does it. A request changes only so (contract, sections 3, 4 and 8; RFC 9110, section 7.6):
Host is the upstream's; hop-by-hop fields, those that `Connection` names, `Expect`, the key, `Workflow-*` and what only this proxy
may say are gone; the body has a framing of ours; `Via` and, where there is none, `X-Request-Id` are added.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

REQUEST_ID: Final = b"<made by the proxy>"
"""Stands for the value of an `X-Request-Id` that was added."""

KEY: Final = b"<the key>"
"""Stands for a key that is new with every try, in a field line."""

_TCHAR: Final = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HOP: Final = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_OURS: Final = frozenset((b"idempotency-status", b"idempotent-replayed", b"proxy-status"))
_FOR_US: Final = frozenset((b"idempotency-key", b"workflow-id", b"workflow-step", b"workflow-action", b"expect"))
_NEVER_NAMED: Final = re.compile(rb"host|authorization|content-(type|encoding)|via|x-request-id|forwarded|x-forwarded-.*")
"""What nobody can have removed by naming it in `Connection`: without it the message, or who asked for it, would be another."""

_DENIED: Final = re.compile(
    rb"set-cookie2?|(www|proxy)-authenticate|(proxy-)?authentication-info|retry-after|(x-)?ratelimit(-(policy|limit|remaining|reset))?"
    rb"|(x-)?request-id|x-correlation-id"
)
"""The names of fields that a replay does not repeat."""

_SINGLE: Final = frozenset(
    (b"content-type", b"user-agent", b"server", b"content-range", b"content-location", b"etag", b"max-forwards")
)
"""Fields that may stand once in a request; a second one is refused (test_conformance.py)."""

_SPECIAL: Final = _HOP | _OURS | _FOR_US | {b"host", b"content-length", b"via", b"x-request-id", b"prefer"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as whoever reads strictly sees it: start line, field lines, body."""

    start: bytes
    lines: tuple[bytes, ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """A message to be sent: as Seen, with the framing among the lines, and the bytes that carry the body."""

    start: bytes
    lines: tuple[bytes, ...]
    body: bytes
    framed: bytes

    @property
    def raw(self) -> bytes:
        """As it goes on the wire."""
        return b"\r\n".join((self.start, *self.lines, b"", self.framed))


# The oracle.


def expected_request(told: Told, authority: bytes, *, covered: bool) -> Seen:
    """What the upstream must see; the body's framing is `Content-Length` for a covered request, else of the client's kind."""
    gone = (_named(told.lines) | _HOP | _OURS | _FOR_US) - {b"host"}
    lines = []
    has_id = False
    for line in told.lines:
        name, value = _split(line)
        lowered = name.lower()
        if lowered == b"host":
            lines.append(name + b": " + authority)
        elif lowered == b"content-length" or (lowered == b"transfer-encoding" and covered):
            lines.append((name if lowered == b"content-length" else b"Content-Length") + b": %d" % len(told.body))
        elif lowered == b"transfer-encoding":
            lines.append(b"Transfer-Encoding: chunked")
        elif lowered not in gone:
            has_id |= lowered == b"x-request-id"
            lines.append(name + b": " + value)
    lines = [re.sub(rb"(?i)^content-length:", b"Content-Length:", line) for line in lines]
    lines.append(b"Via: 1.1 idemproxy")
    if not has_id:
        lines.append(b"X-Request-Id: " + REQUEST_ID)
    return Seen(told.start, tuple(lines), told.body)


def expected_answer(told: Told) -> Seen:
    """What the client must see, less our own lines and the framing."""
    gone = _named(told.lines) | _HOP | _OURS | {b"content-length"}
    lines = tuple(name + b": " + value for name, value in map(_split, told.lines) if name.lower() not in gone)
    return Seen(told.start, lines, b"" if told.start.split(b" ")[1] in {b"204", b"304"} else told.body)


def expected_replay(told: Told) -> Seen:
    """What a retry must see, less our own lines and the framing."""
    first = expected_answer(told)
    lines = tuple(line for line in first.lines if not _DENIED.fullmatch(_split(line)[0].lower()))
    return Seen(first.start, lines, first.body)


def expected_outcome(told: Told) -> str:
    """What `Idempotency-Status` must say to a covered request that got this answer: the table of section 7."""
    status = int(told.start.split(b" ")[1])
    has_retry_after = any(_split(line)[0].lower() == b"retry-after" for line in told.lines)
    if status in {401, 403, 407, 408, 409, 421, 425, 429} or (status == 503 and has_retry_after):
        return "refused"
    return "unknown" if status >= 500 and status not in {501, 505} else "executed"


def _named(lines: tuple[bytes, ...]) -> set[bytes]:
    """The names that `Connection` lists."""
    values = [value for name, value in map(_split, lines) if name.lower() == b"connection"]
    named = {token.strip().lower() for value in values for token in value.split(b",")}
    return {name for name in named if not _NEVER_NAMED.fullmatch(name)}


def _split(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.strip(b" \t")


# The strict reader.

_REQUEST_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [\x21\x22\x24-\x7e]+ HTTP/1\.1")
_FIELD_LINE: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: (?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?"
)
_CHUNK: Final = re.compile(rb"([1-9a-f][0-9a-f]{0,7})\r\n")


def read_strictly(raw: bytes) -> tuple[list[Seen], bytes]:
    """The whole requests in what went out on a connection, and what follows them.

    Raises ValueError for anything that a reader could take in another way: this is how a proxy should write.
    """
    found = []
    at = 0
    while (end := raw.find(b"\r\n\r\n", at)) >= 0:
        start, *lines = raw[at:end].split(b"\r\n")
        body = _body(_checked(start, lines), raw[end + 4 :])
        if body is None:
            break
        found.append(Seen(start, tuple(lines), body[0]))
        at = end + 4 + body[1]
    return found, raw[at:]


def _checked(start: bytes, lines: list[bytes]) -> dict[bytes, list[bytes]]:
    """The values of fields by lower-case name. Raises ValueError."""
    bad = [line for line in lines if not _FIELD_LINE.fullmatch(line)]
    if bad or not _REQUEST_LINE.fullmatch(start):
        raise ValueError(f"not strictly valid: {bad or start!r}")
    values: dict[bytes, list[bytes]] = {}
    for name, value in map(_split, lines):
        values.setdefault(name.lower(), []).append(value)
    framing = values.get(b"content-length", []) + values.get(b"transfer-encoding", [])
    if len(values.get(b"host", [])) != 1 or len(framing) > 1:
        raise ValueError(f"more or less than one of what there must be one: {lines}")
    return values


def _body(values: dict[bytes, list[bytes]], rest: bytes) -> tuple[bytes, int] | None:
    """The body at the start of `rest`, and how many bytes it takes; None where it is not whole. Raises ValueError."""
    if b"transfer-encoding" not in values:
        length = values.get(b"content-length", [b"0"])[0]
        if not re.fullmatch(rb"0|[1-9][0-9]*", length):
            raise ValueError(f"not a length: {length!r}")
        return (rest[: int(length)], int(length)) if len(rest) >= int(length) else None
    if values[b"transfer-encoding"] != [b"chunked"]:
        raise ValueError(f"not a coding: {values[b'transfer-encoding']}")
    body, at = b"", 0
    while chunk := _CHUNK.match(rest, at):
        end = chunk.end() + int(chunk[1], 16)
        if len(rest) >= end + 2 and rest[end : end + 2] != b"\r\n":
            raise ValueError(f"not the end of a chunk: {rest[end:]!r}")
        body, at = body + rest[chunk.end() : end], end + 2
    last = rest[at : at + 5]
    if not b"0\r\n\r\n".startswith(last) and b"\r\n" in rest[at:]:
        raise ValueError(f"not a chunk: {rest[at:]!r}")
    return (body, at + 5) if last == b"0\r\n\r\n" else None


# The strategies.


def _ascii(alphabet: str, least: int = 0, most: int = 20) -> st.SearchStrategy[bytes]:
    return st.text(alphabet, min_size=least, max_size=most).map(str.encode)


_NAMES: Final = st.one_of(
    st.sampled_from(
        b"Accept accept ACCEPT-ENCODING User-Agent Content-Type content-type Content-Encoding Authorization Cookie Date If-Match"
        b" Range X-Repeat x-repeat X-REPEAT Forwarded X-Forwarded-For traceparent baggage Stripe-Account Server Age".split()
    ),
    _ascii(_TCHAR, 1, 24).filter(lambda name: name.lower() not in _SPECIAL and not name.lower().startswith(b"x-forwarded")),
)
_VALUES: Final = st.one_of(
    st.sampled_from(
        (
            b"",
            b"1",
            b"a, b,c",
            b'"quoted, \\" text"',
            b"a  b\tc",
            b"gzip, br;q=0.5",
            b"application/json",
            b"text/plain; charset=x",
            b":;=,",
        )
    ),
    _ascii("".join(map(chr, range(0x20, 0x7F))) + "\t", 0, 60),
    st.integers(100, 3000).map(lambda size: b"v" * size),
)
_BLANKS: Final = st.sampled_from((b" ", b"", b"  ", b"\t", b" \t "))
_BODIES: Final = st.one_of(
    st.just(b""),
    st.binary(max_size=200),
    st.sampled_from(
        (b'{"amount": 1}', b"a=1&b=2", b"0\r\n\r\n", b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 5)
    ),
    st.binary(max_size=50).map(lambda data: gzip.compress(data, mtime=0)),
    st.tuples(st.binary(min_size=1, max_size=5), st.integers(1_000, 40_000)).map(lambda part: part[0] * part[1]),
)
_PARTS: Final = (
    b"/ // . .. ./ ../ ; ;p=1 %2f %2F %7E %41 %zz % %25 %00 %0d%0a ? ?? & = + [1] [ ] @ : * ! $ ' ( ) , - _ ~"
    b' \\ | { } ^ ` " < > %E2%82%AC %ff =%3D; //host/'
).split()
_TARGETS: Final = st.builds(
    lambda first, rest: b"/" + first + rest,
    st.lists(
        st.one_of(
            st.sampled_from(_PARTS),
            _ascii("abcXYZ019", 1, 8),
        ),
        max_size=12,
    ).map(b"".join),
    st.one_of(st.just(b""), st.just(b"?"), st.integers(1, 6000).map(lambda size: b"?" + b"q" * size)),
)
_HOP_LINES: Final = st.sampled_from(
    (
        b"Keep-Alive: timeout=5", b"Proxy-Authorization: Basic x", b"proxy-connection: keep-alive", b"TE: trailers",
        b"Trailer: X-Sum",
        b"Upgrade: h2c", b"Proxy-Authenticate: Basic", b"Idempotency-Status: executed",
        b"idempotent-REPLAYED: true",
        b"Proxy-Status: idemproxy", b"Connection: keep-alive", b"connection: , X-Repeat,,",
    )
)  # fmt: skip


def _field_lines() -> st.SearchStrategy[list[bytes]]:
    line = st.builds(lambda name, before, value, after: name + b":" + before + value + after, _NAMES, _BLANKS, _VALUES, _BLANKS)
    return st.lists(st.one_of(line, line, line, _HOP_LINES), max_size=12)


def _chunks(data: st.DataObject, body: bytes) -> bytes:
    """A body as chunks of any sizes, with extensions and trailers."""
    pieces = []
    while body:
        size = data.draw(st.integers(1, len(body)), "chunk size")
        extension = data.draw(st.sampled_from((b"", b"", b";a", b";a=1;b=c", b';a="x;y"')), "extension")
        spelled = data.draw(st.sampled_from((b"%x", b"%X", b"%04x")), "spelling") % size
        pieces.append(b"%b%b\r\n%b\r\n" % (spelled, extension, body[:size]))
        body = body[size:]
    return (
        b"".join(pieces) + b"0\r\n" + data.draw(st.sampled_from((b"", b"X-Sum: 1\r\n", b"A: 1\r\nb:2\r\n")), "trailers") + b"\r\n"
    )


def _framed(data: st.DataObject, lines: list[bytes], body: bytes, kinds: tuple[str, ...]) -> tuple[list[bytes], bytes]:
    """The lines with one that tells the body's end, somewhere among them, and the bytes that carry the body."""
    match data.draw(st.sampled_from(kinds), "framing"):
        case "length":
            name = data.draw(st.sampled_from((b"Content-Length", b"content-length")), "length")
            told, framed = name + b": %d" % len(body), body
        case "chunks":
            told, framed = (
                data.draw(st.sampled_from((b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked"))),
                _chunks(data, body),
            )
        case _:
            return lines, body
    at = data.draw(st.integers(0, len(lines)), "where the framing stands")
    return [*lines[:at], told, *lines[at:]], framed


def _with_names(data: st.DataObject, lines: list[bytes]) -> list[bytes]:
    """The lines and, at times, a `Connection` that names some of them, and some that are not there."""
    if not data.draw(st.booleans(), "Connection names fields"):
        return lines
    names = [_split(line)[0] for line in lines] + [b"X-Absent", b"keep-alive", b"Authorization", b"Host", b"via"]
    listed = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4), "named")
    listed = [name for name in listed if name.lower() not in {b"upgrade", b"te"}]
    return [*lines, b"Connection: " + b", ".join(listed)]


def _each_single_once(lines: list[bytes]) -> list[bytes]:
    names = [_split(line)[0].lower() for line in lines]
    return [line for at, line in enumerate(lines) if names[at] not in _SINGLE or names[at] not in names[:at]]


def draw_request(data: st.DataObject, *, covered: bool) -> Told:
    """A request: one that names an operation when it is `covered`, else a read or a write that names none."""
    methods = ("POST", "PUT", "PATCH", "DELETE") + (
        () if covered else ("GET", "HEAD", "OPTIONS", "PROPFIND", "QUERY", "REPORT", "LOCK")
    )
    method = data.draw(st.sampled_from(methods), "method").encode()
    target = data.draw(_TARGETS, "target")
    lines = _with_names(data, _each_single_once(data.draw(_field_lines(), "fields")))
    body = data.draw(_BODIES, "body")
    lines, framed = _framed(data, lines, body, ("length", "chunks") if body else ("none", "length", "chunks"))
    own = [data.draw(st.sampled_from((b"Host: proxy.example", b"host:Proxy.Example:8080", b"HOST: [::1]:80")), "host")]
    own += [b"Idempotency-Key: " + KEY] if covered else []
    own += data.draw(st.lists(st.sampled_from((b"Workflow-Action: charge", b"workflow-id: w-1")), unique=True), "workflow")
    own += data.draw(
        st.sampled_from(([], [], [b"Via: 1.0 other"], [b"X-Request-Id: r-1"], [b"x-request-id: r-2", b"via: 2 a, 1.1 b"])), "told"
    )
    own += [b"Expect: 100-continue"] if framed and data.draw(st.booleans(), "expect") else []
    for line in own:
        at = data.draw(st.integers(0, len(lines)), "place")
        lines = [*lines[:at], line, *lines[at:]]
    return Told(b"%b %b HTTP/1.1" % (method, target), tuple(lines), body, framed)


_ANSWERS_OWN: Final = st.sampled_from(
    (
        b"Set-Cookie: a=b; Path=/", b"set-cookie: c=d", b"Retry-After: 5", b"X-Request-Id: r-9", b"WWW-Authenticate: Basic",
        b"RateLimit: 1", b'ETag: W/"1"', b"Location: /x/%2f?a=b#c", b"X-Text: caf\xe9 \xc3\xa9 \xff", b"Via: 1.1 other",
        b"Vary: *",
    )
)  # fmt: skip


def draw_answer(data: st.DataObject) -> Told:
    """A final answer; one without a length or chunks ends with its connection."""
    status = data.draw(
        st.one_of(st.sampled_from((200, 201, 204, 301, 304, 401, 404, 422, 429, 500, 501, 503)), st.integers(200, 599)), "status"
    )
    reason = data.draw(st.one_of(st.just(b"OK"), st.just(b""), st.sampled_from((b"Very  well", b"caf\xe9", b"a\tb"))), "reason")
    lines = data.draw(_field_lines(), "fields") + data.draw(st.lists(_ANSWERS_OWN, max_size=4), "own")
    lines = [line for line in _with_names(data, lines) if not line.lower().startswith(b"content-type: text/event-stream")]
    if status in {204, 304}:
        return Told(b"HTTP/1.1 %d %b" % (status, reason), tuple(lines), b"", b"")
    body = data.draw(_BODIES, "body")
    lines, framed = _framed(data, lines, body, ("length", "chunks", "end"))
    return Told(b"HTTP/1.1 %d %b" % (status, reason), tuple(lines), body, framed)
