"""What workers share: an answer is there whole or not at all, whoever dies; and a bell says who asks what."""

from __future__ import annotations

import os
import select
from typing import Final

from idemproxy.board import Board, Question, State

ROOM: Final = {Question.LIFE: 0, Question.HEALTH: 8, Question.METRICS: 16}


def test_each_answer_takes_the_place_of_the_last() -> None:
    """The last whole answer is read, whatever its length, under its number, and pages do not touch each other."""
    board = Board(2, ROOM)
    page, other = board.page(0, Question.HEALTH), board.page(1, Question.HEALTH)
    read = [page.read()]
    for content in (b"one", b"longer", b"", b"too long for it"):
        page.write(page.begin(), content)
        read.append(page.read())

    assert [b"", b"one", b"longer", b"", b"too long"] == read
    assert (4, 4, 0, b"") == (page.begun, page.ended, other.begun, other.read())


def test_an_answer_that_is_not_finished_leaves_the_one_before() -> None:
    """A death in the middle of an answer, in another process, costs that answer alone; the next one on the seat goes on."""
    board = Board(1, ROOM)
    page = board.page(0, Question.METRICS)
    page.write(page.begin(), b"whole")
    pid = os.fork()
    if not pid:
        page.begin()
        os._exit(0)
    os.waitpid(pid, 0)
    left = page.begun, page.ended, page.read()
    page.write(page.begin(), b"next")

    assert (2, 1, b"whole") == left
    assert (3, 3, b"next") == (page.begun, page.ended, page.read())


def test_a_bell_tells_who_asks_what() -> None:
    """Those who ring are heard in their order, once; nobody waits for one who does not listen."""
    board = Board(3, ROOM)
    board.ring(1, Question.METRICS, 2)
    board.ring(1, Question.ANSWERED, 0)
    heard = [bool(select.select([board.bell(seat)], (), (), 0)[0]) for seat in board.seats]
    rung = list(board.rung(1))
    for _ in range(100_000):
        board.ring(0, Question.LIFE, 1)

    assert [False, True, False] == heard
    assert [(Question.METRICS, 2), (Question.ANSWERED, 0)] == rung
    assert [] == list(board.rung(1))


def test_a_seat_is_down_until_something_else_is_said() -> None:
    """Each seat has a state of its own."""
    board = Board(2, ROOM)
    board.now(1, State.SERVING)

    assert [State.DOWN, State.SERVING] == [board.state(seat) for seat in board.seats]
