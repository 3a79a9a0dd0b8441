"""WebSockets through the proxy, between libraries that others wrote: what they agree on is none of the proxy's business."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from tests.process.asking import eventually
from tests.processes import Program, scratch
from tests.wire.combination import Combination, client_context, current, server_context, wired

MIB = 1 << 20
LARGE = bytes(range(256)) * (MIB // 256)


async def _echo(request: web.Request) -> web.StreamResponse:
    """Say again what is said, until the client closes, and then how it closed."""
    if request.path != "/echo":
        raise web.HTTPForbidden(text="not here")
    socket = web.WebSocketResponse(protocols=["chat"], max_msg_size=4 * MIB)
    await socket.prepare(request)
    async for message in socket:
        if message.data == "close, please":
            await socket.close(code=4001, message=b"as you like")
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    request.app[CLOSED].append(socket.close_code)
    return socket


CLOSED: web.AppKey[list[int | None]] = web.AppKey("closed", list)


class Echo:
    """A server of another library's, in a thread of its own. `closed` are the codes with which its WebSockets ended, in order."""

    def __init__(self) -> None:
        self.closed: list[int | None] = []
        self.port = 0
        self._listens = Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._listens.wait(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        app = web.Application()
        app[CLOSED] = self.closed
        app.router.add_route("*", "/{anything:.*}", _echo)
        serving = web.AppRunner(app)
        await serving.setup()
        site = web.TCPSite(serving, "127.0.0.1", 0, ssl_context=server_context() if current().upstream_tls else None)
        await site.start()
        self.port = serving.addresses[0][1]
        self._listens.set()
        await self._over.wait()
        await serving.cleanup()

    def close(self) -> None:
        """Listen no more."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)


@pytest.fixture(scope="module")
def server(combination: Combination) -> Iterator[Echo]:
    """The upstream of this module's proxy."""
    serving = Echo()
    yield serving
    serving.close()


@pytest.fixture(scope="module")
def program(combination: Combination, server: Echo) -> Iterator[Program]:
    """A proxy before it."""
    url = f"{combination.scheme}://127.0.0.1:{server.port}"
    with scratch() as directory:
        store = {"url": f"sqlite:///{directory}/records.db"}
        with wired({"upstreams": {"api": {"url": url}}, "store": store}) as running:
            yield running


@pytest.fixture
def echo(server: Echo) -> Echo:
    """The upstream, with no WebSocket yet."""
    server.closed.clear()
    return server


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=client_context())
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def test_messages_of_any_size_go_both_ways(program: Program, echo: Echo) -> None:
    """Texts, bytes, 1 MiB at a time and several at once, pings; and the subprotocol that both agreed on."""
    async with (
        _session() as session,
        session.ws_connect(f"{program.url}/echo", protocols=["chat"], max_msg_size=4 * MIB) as socket,
    ):
        said: list[str | bytes] = ["hello", "\N{SNOWMAN}" * 1000, LARGE, b"", LARGE[::-1]]

        async def say() -> None:
            for message in said:
                await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
                await socket.ping()

        saying = asyncio.create_task(say())
        heard = [(await socket.receive(10)).data for _ in said]
        await saying
        protocol = socket.protocol
        await socket.close()

    assert said == heard
    assert "chat" == protocol
    eventually(lambda: echo.closed == [1000])


@pytest.mark.parametrize("closes", ["client", "server"])
async def test_the_closing_handshake_is_theirs(program: Program, echo: Echo, closes: str) -> None:
    """Whoever closes, the code reaches the other side, and the answer to it comes back."""
    async with _session() as session:
        socket = await session.ws_connect(f"{program.url}/echo")
        if closes == "client":
            await socket.close(code=4000, message=b"enough")
        else:
            await socket.send_str("close, please")
            await socket.receive(10)

    assert (1000 if closes == "client" else 4001) == socket.close_code, "this library answers any code with 1000"
    eventually(lambda: echo.closed == [4000 if closes == "client" else 1000])


async def test_a_refusal_reaches_the_client(program: Program) -> None:
    """A handshake that the server declines is an ordinary answer."""
    async with _session() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{program.url}/elsewhere")

    assert 403 == refused.value.status


NODE = shutil.which("node")
SCRIPT = """
const socket = new WebSocket(process.argv[1], "chat")
const told = {}
socket.binaryType = "arraybuffer"
socket.onopen = () => { told.protocol = socket.protocol; socket.send("x".repeat(1 << 20)) }
socket.onmessage = ({data}) => {
  if (typeof data === "string") { told.text = data.length; socket.send(new Uint8Array(1 << 20)) }
  else { told.bytes = data.byteLength; socket.close(4002, "enough") }
}
socket.onclose = ({code, wasClean}) => console.log(JSON.stringify({...told, code, wasClean}))
socket.onerror = ({message}) => { told.error = String(message) }
"""


@pytest.mark.skipif(NODE is None, reason="needs Node")
def test_node_speaks_with_aiohttp(program: Program, echo: Echo, tmp_path: Path) -> None:
    """The WebSocket of Node and browsers: its handshake, messages of 1 MiB, and its closing handshake."""
    assert NODE is not None
    flags = ["--experimental-websocket"]
    if b"function" not in subprocess.run([NODE, *flags, "-p", "typeof WebSocket"], capture_output=True, check=False).stdout:
        pytest.skip("this Node has no WebSocket")
    trusted = tmp_path / "authority.pem"
    trusted.write_text("".join(map(ssl.DER_cert_to_PEM_cert, client_context().get_ca_certs(binary_form=True))))
    url = program.url.replace("http", "ws", 1) + "/echo"
    found = subprocess.run(
        [NODE, *flags, "-e", SCRIPT, url],
        capture_output=True,
        check=True,
        timeout=30,
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(trusted)},
    )

    told = {"protocol": "chat", "text": MIB, "bytes": MIB, "code": 1000, "wasClean": True}
    assert told == json.loads(found.stdout), found.stderr
    eventually(lambda: echo.closed == [4002])
