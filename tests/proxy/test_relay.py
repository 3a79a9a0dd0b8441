"""A body on its way from an attempt to a client: how long the attempt waits, and what the client's side hears of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from idemproxy.proxy.reply import BrokenOffError, Relay

PATIENCE = 0.05


async def test_pieces_come_in_order_and_end() -> None:
    """What is put is taken, and at the end there is nothing more."""
    relay = Relay(10)

    async def attempt() -> None:
        for piece in (b"1", b"2", b"3"):
            await relay.put(piece)
        relay.end(broken=False)

    attempting = asyncio.create_task(attempt())
    taken = [await relay.take() for _ in range(4)]
    await attempting

    assert [b"1", b"2", b"3", b""] == taken


async def test_a_body_that_breaks_off_says_so_after_its_pieces() -> None:
    """The client gets what there was, and then no end."""
    relay = Relay(10)
    attempting = asyncio.create_task(relay.put(b"1"))
    taken = await relay.take()
    await attempting
    relay.end(broken=True)

    assert b"1" == taken
    with pytest.raises(BrokenOffError):
        await relay.take()


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    """The attempt goes on without it, and its side hears that it is the client that failed, and not the body."""
    relay = Relay(PATIENCE)
    for piece in (b"1", b"2"):
        await relay.put(piece)
    relay.end(broken=False)

    with pytest.raises(ConnectionAbortedError):
        await relay.take()


async def test_a_client_that_takes_a_little_each_time_is_given_up_too() -> None:
    """All waits together last ten times as long as one may: of pieces that are each taken late, no more than twelve are."""
    relay = Relay(PATIENCE)

    async def attempt() -> None:
        for _ in range(50):
            await relay.put(b"x")
        relay.end(broken=False)

    attempting = asyncio.create_task(attempt())
    taken = 0
    with suppress(ConnectionAbortedError):
        while await relay.take():
            taken += 1
            await asyncio.sleep(0.9 * PATIENCE)
    await attempting

    assert taken <= 12


async def test_a_client_that_has_left_holds_nobody_up() -> None:
    """An attempt that waits for it goes on at once, and so does all that it puts later."""
    relay = Relay(3600)
    attempting = asyncio.create_task(relay.put(b"1"))
    await asyncio.sleep(0)
    relay.leave()
    await attempting
    await relay.put(b"2")
