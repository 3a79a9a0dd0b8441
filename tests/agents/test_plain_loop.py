"""A plain tool loop that begins again from the start: its trajectory is replayed, and each write happens once."""

from __future__ import annotations

import pytest

from examples.plain_loop import Message, Model, run, scripted
from idemproxy.agent import KeyReusedError
from tests.agents.shop import Shop

ONCE = [("charge", 4200), ("charge", 4200), ("refund", 4200)]
"""What the scripted model asks for; two charges that are alike are both meant."""


class CrashError(Exception):
    """The process of the agent has ended."""


def crashing_after(turns: int) -> Model:
    """The scripted model, in a process that ends when it is asked for the turn after so many."""

    def model(messages: list[Message]) -> Message:
        if sum(message["role"] == "assistant" for message in messages) == turns:
            raise CrashError
        return scripted(messages)

    return model


@pytest.mark.parametrize(
    ("way", "turns", "effects"),
    [
        ("directly", 1, ONCE[:2] + ONCE),
        ("directly", 2, ONCE + ONCE),
        ("through the proxy", 1, ONCE),
        ("through the proxy", 2, ONCE),
    ],
)
def test_a_loop_that_begins_again_acts_once(shop: Shop, way: str, turns: int, effects: list[tuple[str, int]], key: str) -> None:
    """The ids of the tool calls are new, their numbers are not: the second run reads the first one's answers, and goes on."""
    with pytest.raises(CrashError):
        run(shop.urls[way], key, crashing_after(turns))

    said = run(shop.urls[way], key, scripted)

    assert effects == shop.kinds(key)
    assert said == shop.made(key)[-1]["id"]


def test_a_model_that_asks_for_something_else_is_refused(shop: Shop, key: str) -> None:
    """The first call of the second run is another one than before: it raises, and nothing is done."""
    run(shop.urls["through the proxy"], key, scripted)

    def changed(messages: list[Message]) -> Message:
        said = scripted(messages)
        for call in said["tool_calls"]:
            call["arguments"]["amount"] = 1
        return said

    with pytest.raises(KeyReusedError) as refused:
        run(shop.urls["through the proxy"], key, changed)

    assert ("no", "new_key") == (refused.value.executed, refused.value.retry)
    assert ONCE == shop.kinds(key)
