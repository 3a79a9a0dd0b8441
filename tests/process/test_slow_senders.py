"""Clients that send a byte a second keep nobody from being served, and nothing of theirs stays: the short form of `make slow`."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from bench.machine import Cores
from bench.slow_senders import SLOW, allow_descriptors, claims, normal_traffic, slow_senders, start, until_idle
from bench.soak.client import Address
from bench.stage import MissingError, Stage

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")

DEADLINE: Final = 6.0
"""Seconds that the proxy waits for a head, and for the first bytes of a body."""


async def test_five_hundred_slow_senders_stop_nobody_and_are_ended(tmp_path: Path) -> None:
    """Beside heads and bodies that drip, 200 writes, replays and reads are answered; the slow are ended, and leave nothing."""
    try:
        allow_descriptors(4 * SLOW)
    except MissingError as exc:
        pytest.skip(str(exc))
    with closing(Stage(tmp_path, Cores.of_this_machine())) as stage:
        watched = start(stage, head_seconds=DEADLINE, idle_seconds=DEADLINE)
        address = Address(watched.port, None)
        descriptors = watched.descriptors().total()
        async with slow_senders(watched, address) as dripping:
            answered = len(await normal_traffic(address, 2.0, 100.0))
            ends = [await each for each in dripping]
        left, claimed = await until_idle(watched, descriptors), claims(watched)

    each = SLOW // 5
    kinds = ("head", "keyed, sized", "keyed, chunked", "sized", "chunked")
    assert 200 == answered
    assert {(kind, 408): each for kind in kinds} == Counter((end.kind, end.status) for end in ends)
    assert min(end.seconds for end in ends) > DEADLINE - 0.1
    assert 0 == left
    assert 8 * (1 + 9 + 8) == claimed, "each of 8 clients: a write, then 9 more and 8 replays of the first, and 8 reads"
