"""Forms are compared by their fields; the boundary of a multipart body does not matter."""

from __future__ import annotations

import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.fingerprint import FingerprintRule, fingerprint
from idemproxy.core.message import Request

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)
URLENCODED = b"application/x-www-form-urlencoded"
FORM_OF_BYTES = FingerprintRule(mode="raw")


def of(body: bytes, kind: bytes, rule: FingerprintRule | None = None) -> str:
    """The fingerprint of a POST with this body."""
    return fingerprint(Request("POST", b"/", ((b"Content-Type", kind),), body), rule or FingerprintRule(), max_decoded=0)


def is_compared_as_bytes(body: bytes, kind: bytes) -> bool:
    """Whether the body has no form of its own: its fingerprint is that of its bytes."""
    return of(body, kind) == of(body, kind, FORM_OF_BYTES)


# application/x-www-form-urlencoded


def form(body: bytes) -> str:
    """The fingerprint of a form."""
    return of(body, URLENCODED)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"a=b+c", b"a=b%20c"),
        (b"a=%c3%A9", b"a=%C3%a9"),
        (b"a=\xc3\xa9", b"%61=%C3%A9"),
        (b"a=b=c", b"a=b%3Dc"),
        (b"a=1&&b=2&", b"a=1&b=2"),
    ],
)
def test_spelling_of_a_form_does_not_matter(one: bytes, other: bytes) -> None:
    """Escapes, `+` for a space, and empty pairs leave the fingerprint as it is."""
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"a=1&b=2", b"b=2&a=1"),
        (b"a=1&a=2", b"a=2"),
        (b"a", b"a="),
        (b"a=", b""),
        (b"=", b""),
        (b"a=1%26b=2", b"a=1&b=2"),
        (b"a=%2B", b"a=+"),
        (b"a=%00", b"a="),
        (b"a=b\n", b"a=b"),
        (b"a=1;b=2", b"a=1&b=2"),
        (b"a=-", b"a&="),
        (b"a=2:bc", b"a&bc"),
        (b"A=1", b"a=1"),
    ],
)
def test_forms_that_differ(one: bytes, other: bytes) -> None:
    """Order, repeats, the presence of a value, and every byte count."""
    assert form(one) != form(other)
    assert not is_compared_as_bytes(one, URLENCODED)


@pytest.mark.parametrize("body", [b"a=%", b"a=%4", b"a=%zz", b"%=1", b"a=%%41"])
def test_a_broken_escape_is_compared_as_bytes(body: bytes) -> None:
    """Readers disagree on a percent sign without two hexadecimal digits."""
    assert is_compared_as_bytes(body, URLENCODED)


@PROPERTY
@given(pairs=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=3))
def test_pairs_survive_escaping(pairs: list[tuple[bytes, bytes | None]]) -> None:
    """A form written with every byte escaped is the form written with only the necessary ones."""

    def everything(text: bytes) -> bytes:
        return b"".join(b"%%%02x" % byte for byte in text)

    def necessary(text: bytes) -> bytes:
        return b"".join(b"%%%02X" % byte if byte in b"%&=+" else bytes([byte]) for byte in text)

    full, short = (
        b"&".join(write(name) if value is None else write(name) + b"=" + write(value) for name, value in pairs)
        for write in (everything, necessary)
    )

    assert form(full) == form(short)


# multipart/*

FILE = b"hello\r\n--not-the-boundary\r\n\r\nworld\r\n"


def by_requests() -> tuple[bytes, bytes]:
    """What requests writes for fields and files."""
    files = {"file": ("a b.txt", FILE, "text/plain"), "other": ("é.bin", b"\x00\xff", "a/b")}
    sent = requests.Request("POST", "http://127.0.0.1/", data={"name": "é", "tag": ["1", "2"]}, files=files).prepare()
    kind = sent.headers["Content-Type"]
    assert isinstance(sent.body, bytes)
    assert isinstance(kind, str)
    return sent.body, kind.encode()


def by_httpx() -> tuple[bytes, bytes]:
    """What httpx writes for fields and files."""
    files = {"file": ("a b.txt", FILE, "text/plain"), "other": ('é".bin', b"\x00\xff", "a/b")}
    sent = httpx.Request("POST", "http://127.0.0.1/", data={"name": "é", "tag": ["1", "2"]}, files=files)
    return sent.read(), sent.headers["Content-Type"].encode()


async def by_aiohttp() -> tuple[bytes, bytes]:
    """What aiohttp writes for a form."""
    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("name", "é")
    form.add_field("file", FILE, filename='a "b".txt', content_type="text/plain")
    written = form()
    return await written.as_bytes(), written.headers["Content-Type"].encode()


async def by_aiohttp_related() -> tuple[bytes, bytes]:
    """What aiohttp writes for multipart/related."""
    with aiohttp.MultipartWriter("related") as writer:
        writer.append_json({"name": "a"})
        writer.append(FILE, {"Content-Type": "application/octet-stream"})
    return await writer.as_bytes(), writer.headers["Content-Type"].encode()


def by_curl(folder: Path) -> tuple[bytes, bytes]:
    """What `curl -F` writes, taken from a real connection."""
    upload = folder / "upload.txt"
    upload.write_bytes(FILE)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        command = [
            "curl",
            "--silent",
            "--noproxy",
            "*",
            "--http1.0",
            "-F",
            "name=é",
            "-F",
            f'file=@{upload};filename="a\\"b.txt"',
            url,
        ]
        client = pool.submit(subprocess.run, command, check=True, timeout=20)
        connection, _ = server.accept()
        with connection:
            head, _, body = read_message(connection)
            connection.sendall(b"HTTP/1.0 204 No Content\r\n\r\n")
        client.result()
    [kind] = [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-type:")]
    return body, kind


def read_message(connection: socket.socket) -> tuple[bytes, bytes, bytes]:
    """Head, separator and body of the one message that arrives with a Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, separator, body = received.partition(b"\r\n\r\n")
    [length] = [int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < length:
        body += connection.recv(65_536)
    return head, separator, body


async def test_a_retry_with_a_new_boundary_is_the_same_request(tmp_path: Path) -> None:
    """What requests, httpx, aiohttp and curl send for a second try differs in its bytes and is the same request."""
    first = [by_requests(), by_httpx(), await by_aiohttp(), await by_aiohttp_related(), by_curl(tmp_path)]
    second = [by_requests(), by_httpx(), await by_aiohttp(), await by_aiohttp_related(), by_curl(tmp_path)]

    assert [of(*sent) for sent in first] == [of(*sent) for sent in second]
    assert [True] * 5 == [one != other for one, other in zip(first, second, strict=True)]
    assert [False] * 5 == [is_compared_as_bytes(*sent) for sent in first]


HEAD = b'Content-Disposition: form-data; name="a"; filename="f.txt"\r\nContent-Type: text/plain; charset=utf-8'


def multipart(*parts: tuple[bytes, bytes], boundary: bytes = b"B", kind: bytes = b"form-data") -> str:
    """The fingerprint of parts given as (header lines, content)."""
    body = b"".join(b"--%b\r\n%b\r\n%b\r\n" % (boundary, head + b"\r\n" if head else b"", content) for head, content in parts)
    return of(body + b"--%b--\r\n" % boundary, b'multipart/%b; boundary="%b"' % (kind, boundary))


@pytest.mark.parametrize(
    "head",
    [
        b'Content-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name="a"; filename="f.txt"',
        b'content-disposition:form-data;filename="f.txt";name="a" \r\nCONTENT-TYPE:\tTEXT/Plain;CHARSET="utf-8";',
        b"Content-Disposition: Form-Data; name=a; filename=f.txt\r\nContent-Type: text/plain; charset=utf-8",
    ],
)
def test_spelling_of_a_part_does_not_matter(head: bytes) -> None:
    """Order of header fields and of parameters, case of names and types, quotes and white space are spelling."""
    assert multipart((HEAD, b"x")) == multipart((head, b"x"), boundary=b"another one:=?")


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [(HEAD, b"y")],
        [(HEAD, b"x\r\n")],
        [(HEAD, b"x"), (HEAD, b"x")],
        [(HEAD.replace(b'"a"', b'"b"'), b"x")],
        [(HEAD.replace(b'"a"', b'"A"'), b"x")],
        [(HEAD.replace(b"f.txt", b"g.txt"), b"x")],
        [(HEAD.replace(b'; filename="f.txt"', b""), b"x")],
        [(HEAD.replace(b"filename=", b"filename*="), b"x")],
        [(HEAD.replace(b"text/plain", b"text/html"), b"x")],
        [(HEAD.replace(b"utf-8", b"latin-1"), b"x")],
        [(HEAD.replace(b"form-data", b"attachment"), b"x")],
        [(HEAD + b"\r\nContent-Transfer-Encoding: base64", b"x")],
        [(HEAD + b"\r\nX-Checksum: 1", b"x")],
        [(HEAD + b"; broken=", b"x")],
        [(b"", b"x")],
    ],
)
def test_parts_that_differ(parts: list[tuple[bytes, bytes]]) -> None:
    """Number, name, file name, type, every other header field and the content of a part count."""
    assert multipart((HEAD, b"x")) != multipart(*parts)


def test_order_of_parts_and_kind_of_multipart_count() -> None:
    """The same parts in another order, or under another subtype, are another request."""
    one, other = (HEAD, b"x"), (HEAD, b"y")

    assert 3 == len({multipart(one, other), multipart(other, one), multipart(one, other, kind=b"mixed")})


GOOD = b"--B\r\n%b\r\n\r\nx\r\n--B--\r\n" % HEAD


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param(GOOD, b"multipart/form-data", id="no boundary"),
        pytest.param(GOOD, b"multipart/form-data; boundary=", id="empty boundary"),
        pytest.param(GOOD, b'multipart/form-data; boundary=""', id="empty quoted boundary"),
        pytest.param(GOOD, b"multipart/form-data; boundary=B; boundary=B", id="two boundaries"),
        pytest.param(GOOD, b"multipart/form-data; boundary=C", id="another boundary"),
        pytest.param(GOOD.replace(b"B", b"B" * 71), b"multipart/form-data; boundary=" + b"B" * 71, id="long boundary"),
        pytest.param(b"", b"multipart/form-data; boundary=B", id="empty"),
        pytest.param(b"B", b"multipart/form-data; boundary=B", id="the boundary alone"),
        pytest.param(GOOD[:-4], b"multipart/form-data; boundary=B", id="cut in the last boundary"),
        pytest.param(GOOD[:40], b"multipart/form-data; boundary=B", id="cut in a header"),
        pytest.param(b"hello\r\n" + GOOD, b"multipart/form-data; boundary=B", id="something before"),
        pytest.param(GOOD + b"x", b"multipart/form-data; boundary=B", id="something after"),
        pytest.param(GOOD + GOOD, b"multipart/form-data; boundary=B", id="two bodies"),
        pytest.param(GOOD.replace(b"\r\n", b"\n"), b"multipart/form-data; boundary=B", id="bare line feeds"),
        pytest.param(GOOD.replace(b"--B\r\n", b"--B \r\n"), b"multipart/form-data; boundary=B", id="padding"),
        pytest.param(GOOD.replace(b"; filename", b";\r\n filename"), b"multipart/form-data; boundary=B", id="folded header"),
        pytest.param(
            GOOD.replace(b"Content-Type:", b"Content-Type :"), b"multipart/form-data; boundary=B", id="space before the colon"
        ),
        pytest.param(GOOD.replace(b"\r\n\r\nx", b"\r\nx"), b"multipart/form-data; boundary=B", id="no empty line"),
        pytest.param(
            GOOD.replace(b"\r\nx\r\n", b"\r\n--Bx\r\n"), b"multipart/form-data; boundary=B", id="the boundary in the content"
        ),
    ],
)
def test_a_malformed_multipart_body_is_compared_as_bytes(body: bytes, kind: bytes) -> None:
    """Readers disagree on such bodies, so only the same bytes are the same request."""
    assert not is_compared_as_bytes(GOOD, b"multipart/form-data; boundary=B")
    assert is_compared_as_bytes(body, kind)


@PROPERTY
@given(contents=st.lists(st.binary(max_size=8), max_size=3), other=st.lists(st.binary(max_size=8), max_size=3))
def test_contents_are_exact(contents: list[bytes], other: list[bytes]) -> None:
    """Two bodies with the same headers share a fingerprint exactly when their contents are the same, whatever the boundary."""
    one = multipart(*((HEAD, content) for content in contents), boundary=b"=_first")

    assert (contents == other) == (one == multipart(*((HEAD, content) for content in other), boundary=b"second"))
