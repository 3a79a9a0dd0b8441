"""Bodies as real clients write them, through a running proxy: a retry is a replay, and another content another operation."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.agents.sending import SENDERS, Content, File, Form, Send, by_aiohttp, by_requests
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy

FILE: Final = File("report.csv", "text/csv", bytes(range(256)) + b"\r\n--\r\nid,amount\r\n1,42\r\n")
UPLOAD: Final = Form((("customer", "Zo\u00eb & co"), ("note", "two\r\nlines")), FILE)
PAIRS: Final = Form((("customer", "Zo\u00eb & co"), ("note", "1+1=2 %41")))
ORDER: Final[dict[str, Any]] = {
    "customer": "Zo\u00eb",
    "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}],
    "amount": 9007199254740991,
    "gift": None,
}


def turned(value: object) -> object:
    """The same JSON with its members in the opposite order at every level."""
    match value:
        case dict():
            return {name: turned(value[name]) for name in reversed(value)}
        case list():
            return [turned(item) for item in value]
        case _:
            return value


@pytest.fixture(scope="module")
def api() -> Iterator[Upstream]:
    """An upstream that takes whatever comes."""
    with upstream() as running:
        yield running


@pytest.fixture(scope="module")
def front(api: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The proxy in front of it."""
    with proxy("--upstream", api.url, "--store", f"sqlite:///{tmp_path_factory.mktemp('store')}/records.db") as running:
        yield running


def sent_types(api: Upstream, since: int) -> list[str]:
    """The content types of what has arrived."""
    return [value for arrival in api.arrived[since:] for name, value in arrival.fields if name.lower() == "content-type"]


# Forms and JSON of five clients


@pytest.mark.parametrize("send", SENDERS)
def test_every_try_of_an_upload_has_a_boundary_of_its_own(send: Send, api: Upstream, front: Program) -> None:
    """The premise: without a key both tries arrive, and their bytes differ."""
    before = len(api.arrived)

    answers = [send(f"{front.url}/uploads", None, UPLOAD) for _ in range(2)]

    assert [201, 201] == [answer.status for answer in answers]
    assert 2 == len({kind for kind in sent_types(api, before) if kind.startswith("multipart/form-data; boundary=")})
    assert all(FILE.content in arrival.body for arrival in api.arrived[before:])


RETRIES: Final[dict[str, tuple[Content, Content]]] = {
    "an upload": (UPLOAD, UPLOAD),
    "an upload with a name beyond ASCII": (replace(UPLOAD, file=replace(FILE, name="gr\u00fc\u00dfe.csv")),) * 2,
    "a large upload": (replace(UPLOAD, file=replace(FILE, content=FILE.content * 2000)),) * 2,
    "an empty file": (replace(UPLOAD, file=replace(FILE, content=b"")),) * 2,
    "a form": (PAIRS, PAIRS),
    "JSON": (ORDER, ORDER),
    "JSON in another order": (ORDER, {name: turned(value) for name, value in reversed(ORDER.items())}),
    "large JSON in another order": (
        {"orders": [ORDER] * 500, "at": 1},
        {"at": 1, "orders": [turned(ORDER)] * 500},
    ),
}


@pytest.mark.parametrize("retry", RETRIES.values(), ids=RETRIES.keys())
@pytest.mark.parametrize("send", SENDERS)
def test_a_retry_is_a_replay(send: Send, retry: tuple[Content, Content], api: Upstream, front: Program, key: str) -> None:
    """What a client writes for a second try is the same request: the upstream sees one, and both get its answer."""
    first, second = retry
    before = len(api.arrived)

    answers = [send(f"{front.url}/orders", key, content) for content in (first, second)]

    assert ["executed", "replayed"] == [answer.told for answer in answers]
    assert [201, 201] == [answer.status for answer in answers]
    assert answers[0].body == answers[1].body
    assert before + 1 == len(api.arrived)


OTHERS: Final[dict[str, tuple[Content, Content]]] = {
    "content of the file": (UPLOAD, replace(UPLOAD, file=replace(FILE, content=FILE.content + b"\n"))),
    "name of the file": (UPLOAD, replace(UPLOAD, file=replace(FILE, name="report2.csv"))),
    "type of the file": (UPLOAD, replace(UPLOAD, file=replace(FILE, type="text/plain"))),
    "a field beside a file": (UPLOAD, replace(UPLOAD, fields=(*UPLOAD.fields[:1], ("note", "two\r\n lines")))),
    "a field more beside a file": (UPLOAD, replace(UPLOAD, fields=(*UPLOAD.fields, ("note2", "")))),
    "a field of a form": (PAIRS, replace(PAIRS, fields=(*PAIRS.fields[:1], ("note", "1 1=2 %41")))),
    "a field's name": (PAIRS, replace(PAIRS, fields=(*PAIRS.fields[:1], ("notes", "1+1=2 %41")))),
    "a number of JSON": (ORDER, ORDER | {"amount": 9007199254740990}),
    "an item of JSON": (ORDER, ORDER | {"lines": [{"sku": "a", "count": 2}]}),
    "absent instead of null": (ORDER, {name: value for name, value in ORDER.items() if value is not None}),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("send", SENDERS)
def test_another_content_is_refused(send: Send, change: tuple[Content, Content], api: Upstream, front: Program, key: str) -> None:
    """Another content under the same key is 422 and does not reach the upstream."""
    before = len(api.arrived)

    answers = [send(f"{front.url}/orders", key, content) for content in change]

    assert [(201, "executed"), (422, "refused")] == [(answer.status, answer.told) for answer in answers]
    assert "key-reused" == json.loads(answers[1].body)["type"]
    assert before + 1 == len(api.arrived)


@pytest.mark.parametrize("send", SENDERS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(ORDER, "replayed", id="JSON"),
        pytest.param(PAIRS, "replayed", id="form"),
        pytest.param(UPLOAD, "replayed", id="upload"),
    ],
)
def test_another_client_may_retry(send: Send, content: Content, told: str, front: Program, key: str) -> None:
    """What one client began, another may retry where it says the same: JSON, a form, an upload whose parts have the same fields.

    aiohttp gives every part of an upload a Content-Type, and the other clients only the file: that is another request.
    """
    if send is by_aiohttp and content is UPLOAD:
        told = "refused"
    first = by_requests(f"{front.url}/orders", key, content)

    answer = send(f"{front.url}/orders", key, content)

    assert ("executed", told) == (first.told, answer.told)


# Bodies that are odd


def post(front: Program, key: str, body: bytes, kind: str, coding: str | None) -> tuple[int, str]:
    """Status and Idempotency-Status of one POST."""
    fields = {"Content-Type": kind, "Idempotency-Key": key} | ({} if coding is None else {"Content-Encoding": coding})
    with closing(http.client.HTTPConnection("127.0.0.1", front.port, timeout=30)) as connection:
        connection.request("POST", "/odd", body, fields)
        answer = connection.getresponse()
        answer.read()
        return answer.status, (answer.getheader("Idempotency-Status") or "").partition(";")[0]


JSON: Final = "application/json"
TEXT: Final = '{"a": "\u00e9"}'
ODD: Final[dict[str, tuple[str, bytes, bytes]]] = {
    "a byte order mark": (JSON, b"\xef\xbb\xbf" + TEXT.encode(), TEXT.encode()),
    "UTF-16": (f"{JSON}; charset=utf-16", TEXT.encode("utf-16"), TEXT.encode("utf-16-be")),
    "UTF-16 without a mark": (JSON, TEXT.encode("utf-16-le"), TEXT.encode("utf-16-be")),
    "Latin-1": (f"{JSON}; charset=latin-1", TEXT.encode("latin-1"), TEXT.encode()),
    "Latin-1, of which the bytes are UTF-8 too": (f"{JSON}; charset=iso-8859-1", TEXT.encode(), b'{"a": "\\u00e9"}'),
    "a character set that is another": (f"{JSON}; charset=utf-16", TEXT.encode(), TEXT.replace("\u00e9", "e").encode()),
    "a character set that does not exist": (f"{JSON}; charset=x-none", TEXT.encode(), TEXT.replace("\u00e9", "e").encode()),
    "lone surrogates": (JSON, b'["\\ud800"]', b'["\\ud801"]'),
    "surrogates in the wrong order": (JSON, b'["\\udc00\\ud800"]', b'["\\ud800\\udc00"]'),
    "NUL escaped": (JSON, b'["\\u0000"]', b'[""]'),
    "NUL bytes": (JSON, b'["\x00"]', b'["\x00\x00"]'),
    "cut short": (JSON, b'{"a": [1, 2', b'{"a": [1, 2 '),
    "nothing": (JSON, b"", b" "),
    "names twice": (JSON, b'{"a": 1, "a": 2}', b'{"a": 2}'),
    "names twice in another order": (JSON, b'{"a": 1, "a": 2}', b'{"a": 2, "a": 1}'),
    "10,000 levels": (JSON, b"[" * 10_000 + b"]" * 10_000, b"[" * 9_999 + b"]" * 9_999),
    "100,000 levels without end": (JSON, b"[" * 100_000, b'{"":' * 25_000),
    "a large exponent": (JSON, b"[1e999999]", b"[1e999998]"),
    "an exponent beyond reason": (JSON, b"[1e99999999999999999999]", b"[10e99999999999999999998]"),
    "100,000 digits": (JSON, b"[1%b]" % (b"7" * 100_000), b"[1%b]" % (b"7" * 99_999 + b"8")),
    "100,000 digits of a fraction": (JSON, b"[0.%b1]" % (b"0" * 100_000), b"[0.%b2]" % (b"0" * 100_000)),
    "infinity": (JSON, b"[Infinity]", b"[-Infinity]"),
    "a broken escape in a form": ("application/x-www-form-urlencoded", b"a=%4", b"a=%5"),
    "a boundary that is not there": ("multipart/form-data; boundary=x", b"--y\r\n\r\n", b"--z\r\n\r\n"),
    "no boundary": ("multipart/form-data", b"--y\r\n\r\n", b"--z\r\n\r\n"),
    "no type that is one": (";;=", b"1", b"1.0"),
}


@pytest.mark.parametrize(("kind", "body", "other"), ODD.values(), ids=ODD.keys())
def test_an_odd_body_is_itself_and_no_other(kind: str, body: bytes, other: bytes, front: Program, key: str) -> None:
    """Whatever the bytes are, the same ones again are a replay, and others are refused."""
    sent = [post(front, key, each, kind, None) for each in (body, body, other)]

    assert [(201, "executed"), (201, "replayed"), (422, "refused")] == sent


# Bodies that are packed

SAID: Final = json.dumps(ORDER).encode()
WRITTEN: Final = json.dumps(turned(ORDER), indent=2).encode()
BOMB: Final = gzip.compress(bytes(11 * 2**20), mtime=0)
"""11 KiB that unpack to more than a body may have."""
MEMBERS: Final = gzip.compress(SAID[:9], mtime=0) + gzip.compress(SAID[9:], mtime=0)

PACKED: Final[dict[str, tuple[str, bytes, bytes, str]]] = {
    "gzip of another level and time": ("gzip", gzip.compress(SAID, 1, mtime=1), gzip.compress(SAID, 9, mtime=2), "replayed"),
    "gzip of another spelling": ("gzip", gzip.compress(SAID), gzip.compress(WRITTEN), "replayed"),
    "gzip of another content": ("gzip", gzip.compress(SAID), gzip.compress(SAID.replace(b"9007", b"9008")), "refused"),
    "deflate of another level": ("deflate", zlib.compress(SAID, 1), zlib.compress(SAID, 9), "replayed"),
    "two codings": ("deflate, gzip", gzip.compress(zlib.compress(SAID)), gzip.compress(zlib.compress(WRITTEN)), "replayed"),
    "three codings": ("gzip, gzip, gzip", gzip.compress(SAID, mtime=1), gzip.compress(SAID, mtime=2), "refused"),
    "a coding that is not undone": ("br", b"\x0b\x02\x80" + SAID + b"\x03", b"\x0b\x02\x80" + WRITTEN + b"\x03", "refused"),
    "a coding that is not undone, again": ("zstd", b"\x28\xb5\x2f\xfd" + SAID, b"\x28\xb5\x2f\xfd" + SAID, "replayed"),
    "two members, and others": ("gzip", MEMBERS, gzip.compress(SAID[:9], mtime=1) + MEMBERS[29:], "refused"),
    "a bomb, again": ("gzip", BOMB, BOMB, "replayed"),
    "a bomb, and another": ("gzip", BOMB, gzip.compress(bytes(11 * 2**20), mtime=1), "refused"),
    "no gzip at all": ("gzip", SAID, WRITTEN, "refused"),
}


@pytest.mark.parametrize(("coding", "body", "other", "told"), PACKED.values(), ids=PACKED.keys())
def test_a_packed_body_is_what_it_holds(coding: str, body: bytes, other: bytes, told: str, front: Program, key: str) -> None:
    """What is packed with gzip or deflate is compared unpacked, within bounds; every other coding by its bytes."""
    sent = [post(front, key, each, JSON, coding) for each in (body, other)]

    assert [(201, "executed"), (201 if told == "replayed" else 422, told)] == sent


def test_an_unpacked_body_is_what_was_packed(front: Program, key: str) -> None:
    """A client that packs its first try and not its second says the same."""
    sent = [post(front, key, body, JSON, coding) for body, coding in ((gzip.compress(SAID), "gzip"), (WRITTEN, None))]

    assert [(201, "executed"), (201, "replayed")] == sent


def test_a_packed_body_arrives_packed(api: Upstream, front: Program, key: str) -> None:
    """What is unpacked for the fingerprint is forwarded as it came."""
    body = gzip.compress(SAID, 1, mtime=1)

    post(front, key, body, JSON, "gzip")

    assert body == api.arrived[-1].body
