"""What the workers of one proxy say together: each answers operators for all, and asks the others through the board."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import orjson

from idemproxy.admin.health import Finding, Health
from idemproxy.board import Page, Question, Seat, State
from idemproxy.observe.metrics import Metrics
from idemproxy.observe.metrics_merged import Row, merged_page, read_row

PATIENCE: Final[Mapping[Question, float]] = {Question.LIFE: 0.8, Question.HEALTH: 0.9, Question.METRICS: 9.0}
"""Seconds in which a worker has to answer: within those that Kubernetes' probes and Prometheus wait by default."""

_LOOK: Final = 0.05
"""Seconds after which it is looked whether one that is waited for still lives."""

_LONGEST_TEXT: Final = 1_000
_HEALTH_ROOM: Final = 64 * 1024

_ABSENT: Final[Mapping[State, str]] = {
    State.DOWN: "it has died, and is started again",
    State.STARTING: "not started yet",
    State.ENDED: "it has ended",
}


def room(metrics: Metrics) -> dict[Question, int]:
    """Bytes of the longest answers."""
    series = sum(len(family.samples) for family in metrics.families())
    return {Question.LIFE: 0, Question.HEALTH: _HEALTH_ROOM, Question.METRICS: 8 * series}


@dataclass(frozen=True, slots=True)
class _Heard:
    """What a worker has said last, and whether that is its answer; else `why` not."""

    seat: int
    content: bytes
    why: str | None

    @property
    def name(self) -> str:
        return f"worker {self.seat + 1}"


class Crew:
    """One worker's view of all, while it serves. See admin.sight.Sight."""

    def __init__(self, seat: Seat, health: Health) -> None:
        self._seat = seat
        self._board = seat.board
        self._health = health
        self._answers: dict[Question, Callable[[], Awaitable[bytes | None]]] = {
            Question.LIFE: self._life,
            Question.HEALTH: self._findings,
            Question.METRICS: self._row,
        }
        self._turns = {question: asyncio.Lock() for question in self._answers}
        self._answering: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        """From now on this one answers the others."""
        asyncio.get_running_loop().add_reader(self._board.bell(self._seat.number), self._rung)
        self._board.now(self._seat.number, State.SERVING)
        return self

    async def __aexit__(self, *_: object) -> None:
        """From now on it is not waited for."""
        self._board.now(self._seat.number, State.ENDED)
        asyncio.get_running_loop().remove_reader(self._board.bell(self._seat.number))
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def metrics_page(self) -> tuple[bytes, str]:
        """The sums of all workers, with what was counted by those that have died: no count goes back."""
        living: list[Row] = []
        gone: list[Row] = []
        for heard in await self._ask(Question.METRICS):
            if row := read_row(heard.content):
                (living if heard.why is None else gone).append(row)
        return await asyncio.to_thread(merged_page, self._seat.metrics, living, gone)

    async def findings(self) -> list[Finding]:
        """Those of each worker, with its name."""
        found = []
        for heard in await self._ask(Question.HEALTH):
            if heard.why is None:
                found += [Finding(f"{heard.name} {name}", *told) for name, *told in orjson.loads(heard.content)]
            else:
                found.append(Finding(heard.name, heard.why))
        return found

    async def silent(self) -> Sequence[str]:
        """Who lives and does not answer. A worker that has died is none of them: another one comes."""
        heard = await self._ask(Question.LIFE)
        return [each.name for each in heard if each.why is not None and self._board.state(each.seat) is State.SERVING]

    def has_started(self) -> bool:
        """Whether every worker has."""
        return all(self._board.state(seat) >= State.SERVING for seat in self._board.seats)

    async def _ask(self, question: Question) -> list[_Heard]:
        """What each worker answers, in their order; this one does, also while it does not serve yet, or no more."""
        clock, own = asyncio.get_running_loop().time, self._seat.number
        deadline = clock() + PATIENCE[question]
        asked = [seat for seat in self._board.seats if seat == own or self._board.state(seat) is State.SERVING]
        # An answer that is begun already may not know of what has just happened.
        awaited = {seat: self._board.page(seat, question).begun + 1 for seat in asked}
        for seat in awaited.keys() - {own}:
            self._board.ring(seat, question, own)
        await self._answer(question, ())
        while self._is_open(question, awaited) and clock() < deadline:
            self._news.clear()
            await _either(self._news, _LOOK)
        return [self._heard(question, seat, awaited.get(seat)) for seat in self._board.seats]

    def _is_open(self, question: Question, awaited: Mapping[int, int]) -> bool:
        return any(
            self._board.page(seat, question).ended < number and self._board.state(seat) is State.SERVING
            for seat, number in awaited.items()
        )

    def _heard(self, question: Question, seat: int, number: int | None) -> _Heard:
        page, state = self._board.page(seat, question), self._board.state(seat)
        if number is not None and page.ended >= number:
            return _Heard(seat, page.read(), None)
        return _Heard(seat, page.read(), _ABSENT.get(state, f"no answer within {PATIENCE[question]:g} s"))

    def _rung(self) -> None:
        asked: dict[Question, set[int]] = {}
        for question, asker in self._board.rung(self._seat.number):
            asked.setdefault(question, set()).add(asker)
        if asked.pop(Question.ANSWERED, None):
            self._news.set()
        for question, askers in asked.items():
            task = asyncio.get_running_loop().create_task(self._answer(question, askers))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, question: Question, askers: Collection[int]) -> None:
        async with self._turns[question]:
            number = self._board.page(self._seat.number, question).begin()
            _write(self._board.page(self._seat.number, question), number, await self._answers[question]())
        for asker in askers:
            self._board.ring(asker, Question.ANSWERED, self._seat.number)

    async def _life(self) -> bytes:
        return b""

    async def _findings(self) -> bytes:
        found = await self._health.findings()
        return orjson.dumps([[each.name, _short(each.reason), _short(each.note)] for each in found])

    async def _row(self) -> bytes | None:
        """In a thread, as `Alone` renders its page."""
        return await asyncio.to_thread(self._seat.tally.told)


def last_words(seat: Seat) -> None:
    """Leave what was counted to the others, when nothing more will be."""
    page = seat.board.page(seat.number, Question.METRICS)
    _write(page, page.begin(), seat.tally.told())


def _write(page: Page, number: int, content: bytes | None) -> None:
    """Without a new answer the one from before stays."""
    page.write(number, page.read() if content is None else content)


def _short(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST_TEXT]


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Return when it is set, or after so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
