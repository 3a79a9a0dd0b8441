"""What the workers of one proxy share: some memory, and a bell for each, with which one asks another what it knows.

The supervisor makes the board before it forks, and so it outlives each of them: what a worker has written before it died is
there for those that live, and for the one that takes its seat.

An answer is written beside the one before it and takes its place at the end, so that a death in the middle leaves that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap
from socket import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from idemproxy.observe.metrics import Metrics
    from idemproxy.observe.metrics_merged import Tally

_WORD: Final = 8
_RUNG_AT_ONCE: Final = 4096


class State(IntEnum):
    """Of a seat: the supervisor says when a worker was started and has died, the worker when it serves, and when it ends."""

    DOWN = 0
    STARTING = 1
    SERVING = 2
    ENDED = 3


class Question(IntEnum):
    """What a bell asks for. ANSWERED asks for nothing: it tells an asker to look."""

    LIFE = 0
    HEALTH = 1
    METRICS = 2
    ANSWERED = 3


class Page:
    """The answers of one worker to one question; only the worker writes, one answer at a time.

    `words`: how many were begun, and ended, in which of two places the last one stands, and how long each is. `room`: the places,
    one after the other.
    """

    WORDS: Final = 5

    def __init__(self, words: memoryview, room: memoryview) -> None:
        self._words = words
        self._room = room
        self._longest = len(room) // 2

    @property
    def begun(self) -> int:
        """How many answers were begun, in all the lives of the seat; the number of the last one."""
        return int(self._words[0])

    @property
    def ended(self) -> int:
        """The number of the last answer that is there."""
        return int(self._words[1])

    def begin(self) -> int:
        """The number of the answer that is now looked for."""
        self._words[0] += 1
        return self.begun

    def write(self, number: int, content: bytes) -> None:
        """The answer of that number; without more than the longest."""
        place = 1 - self._words[2]
        content = content[: self._longest]
        self._room[place * self._longest : place * self._longest + len(content)] = content
        self._words[3 + place] = len(content)
        self._words[2] = place
        self._words[1] = number

    def read(self) -> bytes:
        """The last answer; empty before the first."""
        while True:
            number, place = self.ended, self._words[2]
            start = place * self._longest
            content = bytes(self._room[start : start + self._words[3 + place]])
            if self.begun <= number + 1:  # else its place may have been written anew meanwhile
                return content
            if self.ended == number:  # the writer has died in the middle, which leaves the place alone
                return content


class Board:
    """Seats are numbered from 0. `room`: bytes of the longest answer to each question."""

    def __init__(self, seats: int, room: Mapping[Question, int]) -> None:
        self._states = seats * _WORD
        words = (1 + len(room) * Page.WORDS) * seats * _WORD
        memory = memoryview(mmap(-1, words + 2 * seats * sum(room.values())))
        self._state = memory[: self._states].cast("Q")
        self._pages: dict[tuple[int, Question], Page] = {}
        at, content = self._states, words
        for seat in range(seats):
            for question, longest in room.items():
                place = memory[at : at + Page.WORDS * _WORD].cast("Q")
                self._pages[seat, question] = Page(place, memory[content : content + 2 * longest])
                at += Page.WORDS * _WORD
                content += 2 * longest
        self._bells = [os.pipe() for _ in range(seats)]
        for bell in self._bells:
            for end in bell:
                os.set_blocking(end, False)

    @property
    def seats(self) -> range:
        """The numbers of all seats."""
        return range(len(self._bells))

    def page(self, seat: int, question: Question) -> Page:
        """Where a worker writes what it answers."""
        return self._pages[seat, question]

    def state(self, seat: int) -> State:
        """How it stands with a seat."""
        return State(self._state[seat])

    def now(self, seat: int, state: State) -> None:
        """Say how it stands."""
        self._state[seat] = state

    def bell(self, seat: int) -> int:
        """A descriptor that can be read when somebody has rung."""
        return self._bells[seat][0]

    def ring(self, seat: int, question: Question, asker: int) -> None:
        """Ask, or say that it was answered. A worker that has not listened for very long is not rung for."""
        with suppress(BlockingIOError):
            os.write(self._bells[seat][1], bytes((question, asker)))

    def rung(self, seat: int) -> Iterator[tuple[Question, int]]:
        """Who has asked what since this was last called."""
        with suppress(BlockingIOError):
            while rung := os.read(self._bells[seat][0], _RUNG_AT_ONCE):
                yield from zip(map(Question, rung[::2]), rung[1::2], strict=True)


@dataclass(frozen=True, slots=True)
class Seat:
    """What a worker gets from its supervisor; `number` is that of the board.

    `orders` is a descriptor from which each byte is the number of a signal, and which ends with the supervisor. `admin` are the
    sockets on which all workers listen for operators. `metrics` were made before the worker was there, and `tally` tells them to
    the others.
    """

    number: int
    board: Board
    orders: int
    admin: tuple[socket, ...]
    metrics: Metrics
    tally: Tally

    @property
    def name(self) -> str:
        """As people count."""
        return f"worker {self.number + 1}"
