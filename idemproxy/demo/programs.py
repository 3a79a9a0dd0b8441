"""The programs of the demo, each a process of its own that ends with the demo, whatever ends that."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

_LEAVING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the demo before its end."""

_LISTENING: Final = re.compile(r"\blistening on (http://\S+)\n")
_START_SECONDS: Final = 20.0
_END_SECONDS: Final = 5.0
_PAUSE: Final = 0.01
_OURS: Final = "IDEMPROXY_"


class ProgramError(Exception):
    """A program did not do what it was started for; the message has what it said."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no signal come between the start of a program and the knowledge that it was started: it is heard at the end."""
    heard: list[int] = []
    handlers = {number: signal.signal(number, lambda heard_now, _: heard.append(heard_now)) for number in _LEAVING}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for late in heard:
            signal.raise_signal(late)


@contextmanager
def serving(log: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """Start `python -m` with the arguments; what is given waits until it listens, and returns the URL. Raises ProgramError.

    `log` takes what it writes. Nothing of the caller's own configuration reaches it.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    program: subprocess.Popen[bytes] | None = None
    try:
        with log.open("wb") as out, _undisturbed():
            # In a session of its own: Ctrl-C is for the demo, which then ends its programs in order.
            program = subprocess.Popen(  # noqa: S603 - a program of ours
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )
        yield partial(_url, program, log, arguments[0])
    finally:
        if program is not None:
            _end(program)


def _url(program: subprocess.Popen[bytes], log: Path, name: str) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while (found := _LISTENING.search(log.read_text("utf-8"))) is None:
        if program.poll() is not None or time.monotonic() > deadline:
            raise ProgramError(f"{name} does not start:\n{log.read_text('utf-8')}")
        time.sleep(_PAUSE)
    return found[1]


def _end(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def life(halt: str | None, *arguments: str) -> Generator[dict[str, Any], None, None]:
    """What one life of the agent tells, until it is done, or is killed (kill -9) where it was to halt. Raises ProgramError."""
    halted = () if halt is None else ("--halt", halt)
    agent: subprocess.Popen[str] | None = None
    try:
        with _undisturbed():
            agent = subprocess.Popen(  # noqa: S603 - as above
                [sys.executable, "-m", "idemproxy.demo.agent", *arguments, *halted],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        for line in agent.stdout or ():
            told: dict[str, Any] = json.loads(line)
            if "halts" in told:
                return
            yield told
        if problem := agent.stderr.read() if agent.stderr else "":
            raise ProgramError(problem)
    finally:
        if agent is not None:
            agent.kill()
            agent.communicate()


def effects(api: str) -> list[dict[str, Any]]:
    """What has come to pass, in order, as the ledger of the sample has it; the ledger is empty afterwards."""
    with closing(HTTPConnection(urlsplit(api).netloc, timeout=_END_SECONDS)) as connection:
        connection.request("GET", "/ledger")
        found: list[dict[str, Any]] = json.loads(connection.getresponse().read())["effects"]
        connection.request("DELETE", "/ledger")
        connection.getresponse().read()
        return found
