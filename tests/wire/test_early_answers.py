"""An answer that comes before the request is whole: it is the answer, whatever becomes of the rest (RFC 9112, section 9.5)."""

from __future__ import annotations

import asyncio
import select
import threading
import time

import pytest

from idemproxy.core.message import Request
from idemproxy.core.policy import Route
from idemproxy.core.policy import Upstream as UpstreamSettings
from idemproxy.proxy.connection import Connection
from idemproxy.proxy.lease import Lease, elapsed
from idemproxy.proxy.outlet import untaken
from idemproxy.proxy.pool import Pool
from idemproxy.proxy.upstream import attempt
from tests.wire.bytestream import PATIENCE
from tests.wire.client import Client, ask, new_key, request, status
from tests.wire.combination import client_context, current
from tests.wire.conftest import Records
from tests.wire.upstream import Line, Upstream

MIB = 1 << 20
SIZE = 8 * MIB
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("then", ["hangs up", "hangs up on what it has not read", "waits", "reads on"])
@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"])
def test_an_early_answer_reaches_a_client_that_is_still_uploading(upstream: Upstream, port: int, then: str, framing: str) -> None:
    """It is passed on at once, says that the client's connection ends with it, and the upstream's is not used again either."""
    answered = threading.Event()

    def answers_early(line: Line) -> None:
        line.request_head()
        line.exactly(1000)
        line.send(TOO_LARGE)
        if then == "hangs up":
            line.finish()
        if then in {"hangs up", "waits"}:
            answered.wait(10)
        if then == "reads on":
            line.wait_for_end()

    upstream.plays(answers_early)
    chunked = framing.startswith("Transfer")
    with Client(port) as client:
        client.send(request("PUT", "/file", framing))
        client.send(b"%x\r\n%b\r\n" % (MIB, bytes(MIB)) if chunked else bytes(MIB))
        answer = client.message()
        answered.set()
    upstream.wait_for_end_of(upstream.lines[0])

    if not (current().upstream_tls and then == "hangs up on what it has not read" and status(answer) == 502):
        assert (413, b"big") == (status(answer), answer.body)
    assert [b"close"] == answer.values("connection")


@pytest.mark.parametrize("how", ["passed through", "covered", "no route"])
@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"])
def test_the_end_of_the_connection_is_told_with_the_answer(upstream: Upstream, port: int, framing: str, how: str) -> None:
    """A client that is silent, and waits for the end that `Connection: close` has announced, has it at once."""

    def answers_early(line: Line) -> None:
        line.request_head()
        line.send(TOO_LARGE)
        line.wait_for_end()

    upstream.plays(answers_early)
    fields = {"passed through": (), "covered": ("Host: small", "Expect: 100-continue"), "no route": ()}[how]
    path = "/_idemproxy/none" if how == "no route" else "/file"
    with Client(port) as client:
        client.send(request("PUT", path, framing, *fields, key=new_key() if how == "covered" else None))
        if how == "covered" and framing.startswith("Transfer"):
            client.until(b"\r\n\r\n")
            client.send(b"800\r\n" + bytes(0x800) + b"\r\n")
        answer = client.message()
        started = time.monotonic()
        ended = client.ended()
        waited = time.monotonic() - started

    assert (404 if how == "no route" else 413) == status(answer)
    assert ([b"close"], True) == (answer.values("connection"), ended)
    assert waited < 2


@pytest.mark.parametrize("then", ["hangs up", "hangs up on what it has not read"])
@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
def test_an_upstream_that_hangs_up_after_its_early_answer_has_answered(
    upstream: Upstream, port: int, records: Records, then: str, *, keyed: bool
) -> None:
    """Time and again: an answer that is here is read before the connection is found broken, and settles the operation.

    Over TLS it may be lost with the connection; then the outcome is unknown, and not "not sent".
    """

    def answers_early(line: Line) -> None:
        line.request_head()
        line.exactly(1000)
        line.send(TOO_LARGE)
        if then == "hangs up":
            line.finish()
            line.wait_for_end()

    upstream.plays(answers_early)
    key = new_key()
    found = []
    for _ in range(20):
        answer = ask(port, request("POST", "/file", body=bytes(SIZE), key=key if keyed else None))
        found.append((status(answer), answer.body))

    if current().upstream_tls:  # what the kernel has when a connection breaks is lost there, and then nobody knows
        assert {413, 502, 409} >= {code for code, _ in found}
    else:
        assert [(413, b"big")] * 20 == found
    assert (1 if keyed else 20) == len(upstream.requests)
    assert (None if not keyed else "completed" if found[0][0] == 413 else "unknown") == records.phase(key)


@pytest.mark.parametrize("code", [401, 413, 200])
def test_an_early_answer_to_a_covered_request_settles_it(upstream: Upstream, port: int, records: Records, code: int) -> None:
    """What it means is judged as of any answer, although the body has not been sent; and the connection is not used again."""

    def answers_early(line: Line) -> None:
        line.request_head()
        line.exactly(1000)
        line.send(b"HTTP/1.1 %d Early\r\nContent-Length: 2\r\n\r\nno" % code)
        line.wait_for_end()

    upstream.plays(answers_early)
    key = new_key()

    answer = ask(port, request("POST", "/file", body=bytes(SIZE), key=key))
    upstream.wait_for_end_of(upstream.lines[0])

    assert (code, b"no") == (status(answer), answer.body)
    assert (None if code == 401 else "completed") == records.phase(key)


class _Pool(Pool):
    """Keeps hold of the connection that it gave last."""

    given: Connection | None = None

    async def acquire(self) -> Connection:
        """As Pool.acquire."""
        self.given = await super().acquire()
        return self.given


async def test_no_request_follows_half_of_another(upstream: Upstream) -> None:
    """Where an answer came before the body had gone out, its connection takes no other: that would be read as the rest.

    The worst moment is made: in one and the same turn of the loop the answer comes, and what was given of the body has gone out.
    """
    is_full = threading.Event()

    def answers_early(line: Line) -> None:
        line.request_head()
        if line is upstream.lines[0]:
            is_full.wait(PATIENCE)
            line.send(b"HTTP/1.1 401 Early\r\nContent-Length: 2\r\n\r\nno")
        else:
            line.send(OK)
        line.wait_for_end()

    upstream.plays(answers_early)
    combination = current()
    settings = UpstreamSettings("upstream", combination.scheme, "127.0.0.1", upstream.port)
    loop = asyncio.get_running_loop()
    pool = _Pool(settings, loop, client_context() if combination.upstream_tls else None)
    early = loop.create_task(_attempted(pool, bytes(SIZE)))
    while pool.given is None or not pool.given._writing_paused:  # noqa: ASYNC110, SLF001 - until the upstream takes no more
        await asyncio.sleep(0)

    transport = pool.given._transport  # noqa: SLF001 - to see what it and the kernel hold
    answer = select.poll()
    answer.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    is_full.set()
    while not answer.poll(0) or untaken(transport) > transport.get_write_buffer_size():
        time.sleep(0.001)  # noqa: ASYNC251 - the loop stands still meanwhile
    found = [await early, await _attempted(pool, b"small")]
    pool.close()

    assert [401, 200] == found
    assert [1, 1] == [bytes(line.raw).count(b"POST /file") for line in upstream.lines]


async def _attempted(pool: Pool, body: bytes) -> int:
    """The status of one attempt's answer."""
    asked = Request("POST", b"/file", ((b"Host", b"x"), (b"Content-Length", b"%d" % len(body))), body)
    attempted = await attempt(pool, asked, "key", Route("all", "upstream"), Lease(elapsed(), 60.0), lambda *_: None)
    assert attempted.answer is not None
    return attempted.answer.status
