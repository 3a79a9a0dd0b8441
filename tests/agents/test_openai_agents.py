"""The OpenAI Agents SDK as it is installed: a tool that is called again, within a run or by the next one, acts once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idemproxy.agent import WorkflowDivergedError
from tests.agents.shop import Shop

if TYPE_CHECKING:
    from agents import Model, ModelResponse

ONCE = [("charge", 4200), ("charge", 900), ("refund", 4200)]
"""What a run means to do."""


class CrashError(Exception):
    """The process of the agent has ended."""


def crashing_after(turns: int) -> Model:
    """The scripted model, in a process that ends when it is asked for the turn after so many."""
    from examples.openai_agents_sdk import Scripted

    class Crashing(Scripted):
        left = turns

        async def get_response(self, *told: Any, **also: Any) -> ModelResponse:  # noqa: ANN401  # whatever the SDK asks
            if not self.left:
                raise CrashError
            self.left -= 1
            return await super().get_response(*told, **also)

    return Crashing()


@pytest.mark.parametrize(("way", "again"), [("directly", ONCE[:2]), ("through the proxy", [])])
async def test_a_run_that_is_begun_again_acts_once(shop: Shop, way: str, again: list[tuple[str, int]], key: str) -> None:
    """The first run dies after two charges; the second calls every tool anew, and goes on with the refund of the first charge."""
    from examples.openai_agents_sdk import Scripted, run

    with pytest.raises(CrashError):
        await run(shop.urls[way], key, crashing_after(1))

    said = await run(shop.urls[way], key, Scripted())

    assert ONCE[:2] + again + ONCE[2:] == shop.kinds(key)
    assert said == shop.made(key)[-1]["id"]


@pytest.mark.parametrize(("way", "again"), [("directly", ONCE[:1]), ("through the proxy", [])])
async def test_a_tool_that_the_model_tries_again_acts_once(shop: Shop, way: str, again: list[tuple[str, int]], key: str) -> None:
    """The first charge is made, and its answer does not come in time; the model is told so, and calls the tool again.

    The second charge of that turn does not leave, since it may be the first one in other words, and is made by the next turn.
    """
    from examples.openai_agents_sdk import Scripted, run

    shop.api.fault("delay_after=0.8")

    await run(shop.urls[way], key, Scripted(), timeout=0.5)

    assert ONCE[:1] + again + ONCE[1:] == shop.kinds(key)


async def test_a_finished_run_is_replayed(shop: Shop, key: str) -> None:
    """Run once more, the agent says the same, and nothing more is done."""
    from examples.openai_agents_sdk import Scripted, run

    url = shop.urls["through the proxy"]

    assert await run(url, key, Scripted()) == await run(url, key, Scripted())
    assert shop.kinds(key) == ONCE


async def test_a_run_that_is_another_than_before_ends_without_an_effect(shop: Shop, key: str) -> None:
    """The model asks for another first charge than on the first run: that and all that follows is refused, and the run ends."""
    from agents.exceptions import UserError
    from openai.types.responses import ResponseFunctionToolCall

    from examples.openai_agents_sdk import Scripted, run

    class Rewording(Scripted):
        async def get_response(self, *told: Any, **also: Any) -> ModelResponse:  # noqa: ANN401  # whatever the SDK asks
            answer = await super().get_response(*told, **also)
            for call in answer.output:
                if isinstance(call, ResponseFunctionToolCall):
                    call.arguments = call.arguments.replace('"amount": 4200', '"amount": 4300')
            return answer

    url = shop.urls["through the proxy"]
    await run(url, key, Scripted())

    with pytest.raises(UserError) as ended:
        await run(url, key, Rewording())

    assert isinstance(ended.value.__cause__, WorkflowDivergedError)
    assert ONCE == shop.kinds(key)
