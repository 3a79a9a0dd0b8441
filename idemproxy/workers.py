"""Several processes that serve one port: the one that starts them, passes signals on to them, and starts those anew that die.

It has no threads and no event loop, so that it can fork at any time: each worker begins with the very settings that the first
ones had. Clients reach a worker by the system's choice (SO_REUSEPORT); operators reach whichever is awake. The address for
clients stays reserved here, and so a worker that dies takes with it no more than the connections that it had.

Exit codes: the highest of those of the workers, which are those of `lifecycle`; one that was killed while it drained counts as
one that has not finished.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from socket import socket
from typing import Final

from idemproxy import lifecycle
from idemproxy.board import Board, Question, Seat, State
from idemproxy.config.settings import Address, Settings
from idemproxy.crew import last_words, room
from idemproxy.lifecycle import EXIT_NOT_STARTED, EXIT_UNFINISHED
from idemproxy.listening import NotListeningError, reserve, share, tell
from idemproxy.observe.log import Lines
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.metrics_merged import Tally
from idemproxy.store.base import StoreError
from idemproxy.store.choice import open_store

_log = logging.getLogger("idemproxy")

STEADY_SECONDS: Final = 10.0
"""A worker that has lived for so long is started again at once when it dies; others later and later."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0

PATIENCE: Final = 10.0
"""Seconds after the end of the drain, or after a second signal, in which a worker has to end by itself."""

_LOOK: Final = 0.02
"""Seconds after which it is looked whether all have started."""

_STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_PASSED_ON: Final = _STOPS | {signal.SIGHUP}
_HEARD: Final = _PASSED_ON | {signal.SIGCHLD}


def run(settings: Settings) -> int:
    """Serve until a signal comes, with as many workers as the settings say; the exit code."""
    lifecycle.open_standard_streams()
    logging.basicConfig(level=logging.INFO, handlers=[Lines(_write, as_json=settings.log_format == "json")], force=True)
    if not hasattr(signal, "sigtimedwait"):
        _log.error("several workers need Linux: leave `workers` at 1")
        return EXIT_NOT_STARTED
    try:
        with ExitStack() as stack:
            clients, operators = (
                [stack.enter_context(each) for each in reserve(address, option)]
                for address, option in ((settings.listen, "listen"), (settings.admin, "admin-listen"))
            )
            share(clients)
            for each in operators:
                each.listen()
                each.setblocking(False)  # noqa: FBT003 - the standard library's
            listen = Address(settings.listen.host, clients[0].getsockname()[1])
            metrics = lifecycle.metrics_of(settings, open_store(settings.store))
            return _Supervisor(replace(settings, listen=listen), clients, operators, metrics).run()
    except (NotListeningError, StoreError) as exc:
        _log.error("%s", exc)
        return EXIT_NOT_STARTED


def _write(line: bytes) -> None:
    """A line on standard error, unless its reader has stopped reading."""
    with suppress(OSError):
        if select.select((), (2,), (), 0)[1]:
            os.write(2, line[: select.PIPE_BUF])


@dataclass(slots=True)
class _Worker:
    """A seat and who has it: a process that takes `orders`, or nobody, until it is time for one (`due`, monotonic)."""

    number: int
    pid: int = 0
    orders: int = -1
    began: float = 0.0
    restarts: int = 0
    early_deaths: int = 0
    due: float | None = 0.0
    code: int = 0

    @property
    def name(self) -> str:
        return f"worker {self.number + 1}"


class _Supervisor:
    def __init__(self, settings: Settings, clients: list[socket], operators: list[socket], metrics: Metrics) -> None:
        self._settings = settings
        self._clients = clients
        self._operators = operators
        self._metrics = metrics
        self._board = Board(settings.workers, room(metrics))
        self._workers = [_Worker(number) for number in self._board.seats]
        self._has_told = False
        self._stops = 0
        self._kill_at: float | None = None

    def run(self) -> int:
        """Until no worker is there and none is to come; the exit code."""
        gc.freeze()  # what all share: a collection in a worker would touch, and so copy, each page of it
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may have left it ignored: nobody would be told then
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        while True:
            self._start_who_is_due()
            self._tell_when_all_serve()
            if not any(worker.pid or worker.due is not None for worker in self._workers):
                return max(worker.code for worker in self._workers)
            match self._next_signal():
                case signal.SIGTERM | signal.SIGINT as number:
                    self._stop(number)
                case signal.SIGHUP:
                    self._pass_on(signal.SIGHUP)
                case _:
                    self._reap()
            self._kill_who_is_late()

    def _next_signal(self) -> int | None:
        """The next one; None when it is time to look at something else."""
        times = [worker.due for worker in self._workers if worker.due is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        if not self._has_told:
            times.append(time.monotonic() + _LOOK)
        if not times:
            return signal.sigwait(_HEARD)
        found = signal.sigtimedwait(_HEARD, max(0.0, min(times) - time.monotonic()))
        return None if found is None else found.si_signo

    def _start_who_is_due(self) -> None:
        for worker in self._workers:
            if worker.due is not None and worker.due <= time.monotonic():
                worker.due = None
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        self._board.now(worker.number, State.STARTING)
        worker.began = time.monotonic()
        orders, worker.orders = os.pipe()
        try:
            worker.pid = os.fork()
        except OSError as exc:
            os.close(worker.orders)
            self._ended(worker, EXIT_NOT_STARTED, f"cannot be started: {exc.strerror}")
        else:
            if not worker.pid:
                self._become(worker, orders)
        os.close(orders)

    def _become(self, worker: _Worker, orders: int) -> None:
        """In the new process: be the worker, and end."""
        code = EXIT_NOT_STARTED
        try:
            for each in self._workers:  # a worker learns of the supervisor's death when nobody else can write to it
                if each.orders >= 0:
                    os.close(each.orders)
            for client in self._clients:
                client.close()
            for number in _PASSED_ON:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
            before = self._board.page(worker.number, Question.METRICS).read()
            tally = Tally(self._metrics, before)
            self._metrics.restarted(worker.restarts)
            seat = Seat(worker.number, self._board, orders, tuple(self._operators), self._metrics, tally)
            code = lifecycle.run(self._settings, seat)
            last_words(seat)
        except BaseException:  # noqa: BLE001 - it must not come to the supervisor's code, which waits for it
            _log.exception("a fault of this proxy ends %s", worker.name)
        finally:
            os._exit(code)

    def _tell_when_all_serve(self) -> None:
        if not self._has_told and all(self._board.state(worker.number) is State.SERVING for worker in self._workers):
            self._has_told = True
            tell("admin", self._operators)
            tell("listening", self._clients, is_tls=self._settings.tls is not None)
            lifecycle.tell_settings(self._settings)
            _log.info("%d workers", len(self._workers))

    def _stop(self, number: int) -> None:
        """The first asks for a drain, every other for an end at once."""
        self._stops += 1
        self._has_told = True
        if self._stops == 1:
            _log.info("draining: %d workers", len(self._alive()))
        self._kill_at = time.monotonic() + PATIENCE + (self._settings.drain if self._stops == 1 else 0.0)
        for worker in self._workers:
            worker.due = None
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        for worker in self._alive():
            with suppress(OSError):  # it has just died
                os.write(worker.orders, bytes((number,)))

    def _alive(self) -> Collection[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def _reap(self) -> None:
        """See who has ended. As the first process of a container this one also gets what its workers have left."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                for worker in self._workers:
                    if worker.pid == found[0]:
                        worker.pid = 0
                        os.close(worker.orders)
                        self._ended(worker, *_told(os.waitstatus_to_exitcode(found[1])))

    def _ended(self, worker: _Worker, code: int, how: str) -> None:
        worker.orders = -1
        if self._stops:
            self._board.now(worker.number, State.ENDED)
            worker.code = code
        elif not self._has_told:  # what one cannot have at the start, the others cannot have either
            self._board.now(worker.number, State.ENDED)
            worker.code = EXIT_NOT_STARTED
            _log.error("not started: %s %s", worker.name, how)
            self._stop(signal.SIGTERM)
        else:
            self._board.now(worker.number, State.DOWN)
            is_early = time.monotonic() - worker.began < STEADY_SECONDS
            worker.early_deaths = worker.early_deaths + 1 if is_early else 0
            pause = pause_after(worker.early_deaths)
            worker.restarts += 1
            worker.due = time.monotonic() + pause
            when = f"in {pause:g} s" if pause else "now"
            _log.error("%s %s, and is started again %s; what it had under way becomes unknown", worker.name, how, when)

    def _kill_who_is_late(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            for worker in self._alive():
                _log.error("%s does not end, and is killed", worker.name)
                os.kill(worker.pid, signal.SIGKILL)


def pause_after(early_deaths: int) -> float:
    """Seconds until a worker is started again: none after one that was steady, and more with each that was not."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (early_deaths - 1)) if early_deaths else 0.0


def _told(code: int) -> tuple[int, str]:
    """The exit code of a worker that ended so, and how it ended, in words."""
    if code < 0:
        return EXIT_UNFINISHED, f"was ended by signal {-code}"
    return code, f"has ended with status {code}"
