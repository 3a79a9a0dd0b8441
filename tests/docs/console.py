"""A terminal that does what a document says: its commands are run in order, and what they print is held against what it shows.

In a document `…` stands for any text of one line. Programs that serve are started and stay until the document ends, or until one
of the same kind is started: a proxy or a Redis that listens elsewhere is another kind. The documented ports are free ones here.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Final

from tests.docs.egress import egress_proxy
from tests.docs.pages import REPOSITORY, Block
from tests.servers import free_port, redis_binary
from tests.topologies import client, until

API, PROXY, ADMIN = "127.0.0.1:9000", "127.0.0.1:8080", "127.0.0.1:8081"
OTHER_PROXY, OTHER_ADMIN, EGRESS = "127.0.0.1:8082", "127.0.0.1:8083", "127.0.0.1:3128"
REDIS, REPLICA = "127.0.0.1:6379", "127.0.0.1:6380"
SECONDS: Final = 20.0

_ANY: Final = "…"
_VARIABLE: Final = re.compile(r"([A-Z_]+)=(.*)")
_OF_THE_PROXY: Final = "run"
_OURS: Final = ("IDEMPROXY_", "MAKE", "MFLAGS")
"""What is taken out of the environment: settings of whoever runs the tests, and a make that runs them."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the lines that the document shows under it."""

    command: str
    shown: str


def steps(block: Block) -> list[Step]:
    """The commands of a console block, each begun by a dollar sign."""
    pieces = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not pieces[0], f"line {block.line}: a console block begins with a command"
    return [Step(command, shown) for command, _, shown in (piece.partition("\n") for piece in pieces[1:])]


def as_shown(shown: str, printed: str) -> str:
    """What was printed, or, where it is as the document shows it, what that shows: the two are then equal."""
    pattern = re.escape(shown.rstrip("\n")).replace(_ANY, ".*")
    return shown if re.fullmatch(pattern, printed.rstrip("\n")) else printed


class Console:
    """A shell in `directory`, with `idemproxy` and `python` in its path, which import the package of the repository.

    `pip install .` makes another package, which they import from then on.
    """

    def __init__(self, directory: Path, egress: str) -> None:
        self.directory = directory
        ours = (API, PROXY, ADMIN, OTHER_PROXY, OTHER_ADMIN, REDIS, REPLICA)
        self._ports = {EGRESS: egress} | {address: f"127.0.0.1:{free_port()}" for address in ours}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._programs = directory / "programs"
        self._programs.mkdir()
        self._import_from(REPOSITORY)
        (self._programs / ".curlrc").write_text("silent\nshow-error\n")  # its progress is for terminals
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        self._environment = kept | {
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "CURL_HOME": str(self._programs),
            "COLUMNS": "120",
            "IDEMPROXY_LISTEN": self._ports[PROXY],
            "IDEMPROXY_ADMIN_LISTEN": self._ports[ADMIN],
        }

    def real(self, text: str) -> str:
        """The same text with the ports of this console."""
        for documented, real in self._ports.items():
            text = text.replace(documented, real)
        return text

    def _documented(self, text: str) -> str:
        """The same text with the ports of the document."""
        for documented, real in self._ports.items():
            text = text.replace(real, documented)
        return text

    def _import_from(self, package: Path) -> None:
        """Make the commands run what lies in `package`."""
        for name, arguments in (("idemproxy", "-m idemproxy"), ("python", "")):
            command = self._programs / name
            command.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(package))} exec {sys.executable} {arguments} "$@"\n')
            command.chmod(0o755)

    def run(self, command: str) -> str:
        """Do one command; what it prints, with the documented ports. A failure is told in a last line."""
        words = shlex.split(command)
        match words:
            case ["make", "run"]:
                return self._serve(_OF_THE_PROXY, self._made("run"), {}, API, PROXY)
            case ["make", "demo"]:
                command = shlex.join(self._made("demo"))
            case ["pip", "install", "."]:
                return self._install()
            case ["kill", "-HUP", "PID"]:
                self._running[_OF_THE_PROXY].send_signal(signal.SIGHUP)
                return ""
            case ["redis-server", *options]:
                return self._serve_redis(options)
            case ["idemproxy", "demo-api", *_]:
                return self._serve("demo-api", [*words, "--listen", self._ports[API]], {}, API)
            case ["idemproxy", "run", *_]:
                return self._run(shlex.split(self.real(command)), {})
            case [first, "idemproxy", "run", *_] if variable := _VARIABLE.fullmatch(first):
                return self._run(shlex.split(self.real(command))[1:], {variable[1]: variable[2]})
        done = subprocess.run(
            ["sh", "-c", self.real(command)],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        printed = self._documented(done.stdout.decode().replace("\r\n", "\n"))
        return f"{printed}[exit status {done.returncode}]\n" if done.returncode else printed

    def _made(self, target: str) -> list[str]:
        """How a target is made as after `make setup`; here the environment is that of the tests."""
        variables = {"BIN": str(self._programs), "DEMO_API": self._ports[API], "PROXY": self._ports[PROXY]}
        made = ["make", "--silent", "-f", str(REPOSITORY / "Makefile"), "-o", ".venv/.installed", target]
        return [*made, *(f"{name}={value}" for name, value in variables.items())]

    def _install(self) -> str:
        """Install the package alone, what it leans on being there, and use it from now on."""
        installed = self.directory / "installed"
        offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--root-user-action=ignore"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(installed), str(REPOSITORY)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        self._import_from(installed)
        return done.stdout + done.stderr

    def _run(self, words: list[str], variables: dict[str, str]) -> str:
        """Start a proxy; the environment says where it listens, unless that is at the other address, by a flag or in its file."""
        files = [self.directory / word for word in words if word.endswith(".yaml")]
        if any(self._ports[OTHER_PROXY] in text for text in (*words, *(file.read_text("utf-8") for file in files))):
            elsewhere = {"IDEMPROXY_LISTEN": "", "IDEMPROXY_ADMIN_LISTEN": ""}
            return self._serve("run-beside", words, variables | elsewhere, OTHER_PROXY)
        return self._serve(_OF_THE_PROXY, words, variables, PROXY)

    def _serve_redis(self, options: list[str]) -> str:
        """Start a Redis server; a replica has its primary's data when this returns."""
        ports = {documented.rpartition(":")[2]: self._ports[documented] for documented in (REDIS, REPLICA)}
        address = next(documented for documented in (REDIS, REPLICA) if ["--port", documented.rpartition(":")[2]] == options[1:3])
        words = [ports[word].rpartition(":")[2] if word in ports else word for word in options]
        here = ["--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"]
        printed = self._serve(f"redis-{options[2]}", [redis_binary(), *words, *here], {}, address)
        if "--replicaof" in words:
            with client(int(words[words.index("--replicaof") + 2])) as primary:
                until(lambda: bool(primary.set("followed", 1, px=1) and primary.wait(1, 100)), "the replica does not follow")
        return printed

    def told(self, shown: str) -> bool:
        """Whether the proxy tells this in its log, sooner or later."""
        pattern = re.compile(re.escape(shown.rstrip("\n")).replace(_ANY, ".*"), re.MULTILINE)
        log = self.directory / f"{_OF_THE_PROXY}.log"
        deadline = time.monotonic() + SECONDS
        while (found := pattern.search(log.read_text("utf-8"))) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return found is not None

    def _serve(self, kind: str, words: list[str], variables: dict[str, str], *addresses: str) -> str:
        """Start a program, in the place of one of its kind, and return when it listens; what it says, where it ends instead."""
        self._stop(kind)
        log = self.directory / f"{kind}.log"
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as told:
            program = subprocess.Popen(
                words,
                cwd=self.directory,
                env=self._environment | variables,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )
        self._running[kind] = program
        deadline = time.monotonic() + SECONDS
        for host, port in (self._ports[address].split(":") for address in addresses):
            while True:
                with suppress(OSError), closing(create_connection((host, int(port)), 1)):
                    break
                if program.poll() is not None:
                    said = log.read_bytes()[before:].decode()
                    return f"{self._documented(said)}[exit status {program.returncode}]\n"
                assert time.monotonic() < deadline, f"{words} does not listen:\n{log.read_text()}"
                time.sleep(0.01)
        return ""

    def _stop(self, kind: str) -> None:
        """End a program with all that it has started, as Ctrl-C does."""
        if program := self._running.pop(kind, None):
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGTERM)
            program.wait(SECONDS)

    def close(self) -> None:
        """End what still serves."""
        for kind in reversed(list(self._running)):
            self._stop(kind)


@contextmanager
def console(directory: Path) -> Iterator[Console]:
    """A console whose programs end with the context."""
    with egress_proxy() as egress:
        opened = Console(directory, egress)
        try:
            yield opened
        finally:
            opened.close()
