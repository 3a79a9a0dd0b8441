"""The SDKs of OpenAI and Anthropic with retries of their own: what is paid for directly, and through keys that are derived."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest
import yaml

from tests.agents.paid_model import PaidModel, Trouble, paid_model
from tests.docs.pages import blocks, read
from tests.processes import proxy

PAGE: Final = "docs/how-to/use-with-agent-frameworks.md"
QUESTION: Final = "Which seat?"

Ask: TypeAlias = Callable[[str, str, float], str | None]
"""Ask QUESTION at a base URL, in a workflow, with a time-out in seconds for each try; the answer.

Of an error, what it says of the execution, None where that is nothing.
"""


def by_openai(base_url: str, workflow_id: str, timeout: float) -> str | None:
    """With the client of the example."""
    import openai

    from examples import openai_client

    with openai_client.client(f"{base_url}/v1", workflow_id, timeout) as api:
        try:
            return openai_client.ask(api, QUESTION)
        except openai.APIStatusError as error:
            return _executed(error.response.content)


def by_anthropic(base_url: str, workflow_id: str, timeout: float) -> str | None:
    """Likewise."""
    import anthropic

    from examples import anthropic_client

    with anthropic_client.client(base_url, workflow_id, timeout) as api:
        try:
            return anthropic_client.ask(api, QUESTION)
        except anthropic.APIStatusError as error:
            return _executed(error.response.content)


def _executed(problem: bytes) -> str | None:
    executed: str | None = json.loads(problem).get("executed")
    return executed


SDKS: Final = {"openai": by_openai, "anthropic": by_anthropic}


@dataclass(frozen=True, slots=True)
class Provider:
    """A paid model, and the base URLs at which an SDK reaches it."""

    ask: Ask
    model: PaidModel
    urls: Mapping[str, str]

    def paid(self, way: str, workflow_id: str, *troubles: Trouble, timeout: float = 30) -> tuple[int, str | None]:
        """How many generations one call of the SDK costs whose first tries meet these troubles, and what it brings."""
        self.model.troubles.extend(troubles)
        before = self.model.generations
        try:
            said = self.ask(self.urls[way], workflow_id, timeout)
        finally:
            self.model.troubles.clear()
        return self.model.generations - before, said


@pytest.fixture(scope="module")
def providers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Provider]]:
    """A proxy with the configuration that the documentation shows, and with the same routes judged strictly, below /strict."""
    directory = tmp_path_factory.mktemp("models")
    [shown] = [block.text for block in blocks(read(PAGE), "yaml") if "key: derive" in block.text]
    with paid_model() as model:
        config = yaml.safe_load(shown)
        for sdk in SDKS:
            config["upstreams"][sdk]["url"] = model.url
            config["upstreams"][f"strict-{sdk}"] = {"url": model.url}
            config["routes"].append(
                {
                    "name": f"strict-{sdk}", "upstream": f"strict-{sdk}", "key": "derive",
                    "match": {"path": f"/strict/{sdk}/**"}, "strip_prefix": f"/strict/{sdk}",
                }
            )  # fmt: skip
        (directory / "models.yaml").write_text(yaml.safe_dump(config))
        with proxy("--config", str(directory / "models.yaml"), "--store", f"sqlite:///{directory}/records.db") as running:
            yield {
                sdk: Provider(
                    ask,
                    model,
                    {"directly": model.url, "as shown": f"{running.url}/{sdk}", "strictly": f"{running.url}/strict/{sdk}"},
                )
                for sdk, ask in SDKS.items()
            }


@pytest.fixture(params=SDKS)
def provider(providers: Mapping[str, Provider], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Each SDK in turn, with an API key in its variable."""
    monkeypatch.setenv(f"{request.param.upper()}_API_KEY", "a key of nobody")
    return providers[request.param]


@pytest.mark.parametrize(("way", "paid"), [("directly", 2), ("as shown", 1)])
def test_a_generation_for_which_the_client_does_not_wait_is_paid_once(provider: Provider, way: str, paid: int, key: str) -> None:
    """The client gives up and tries again: the proxy lets the second try wait for the first one's generation."""
    first = provider.model.generations + 1

    got = provider.paid(way, key, Trouble(seconds=0.8), timeout=0.5)

    assert (paid, f"generation {first + paid - 1}") == got


@pytest.mark.parametrize(
    ("way", "got"), [("directly", (2, "generation")), ("as shown", (2, "generation")), ("strictly", (1, "unknown"))]
)
def test_a_500_after_the_generation_is_tried_again_unless_judged_strictly(
    provider: Provider, way: str, got: tuple[int, str], key: str
) -> None:
    """Nobody knows what became of it: as shown the retry is a new generation; strictly the client is told that it is unknown."""
    paid, said = provider.paid(way, key, Trouble(500))

    assert got == (paid, str(said).partition(" ")[0])


@pytest.mark.parametrize("way", ["directly", "as shown"])
def test_a_503_that_says_when_to_come_again_is_tried_again(provider: Provider, way: str, key: str) -> None:
    """The model's server has refused the request by its own word: the retry is forwarded, and there is one generation."""
    paid, _ = provider.paid(way, key, Trouble(503, retry_after=0, paid=False))

    assert 1 == paid


def test_a_run_that_begins_again_is_answered_from_the_records(provider: Provider, key: str) -> None:
    """The same question in the same workflow, by another client, is paid once; in another workflow it is paid again."""
    url, start = "as shown", provider.model.generations

    again = [provider.paid(url, key)[1] for _ in range(2)]
    elsewhere = provider.paid(url, f"{key}-b")[1]

    assert [f"generation {start + 1}"] * 2 + [f"generation {start + 2}"] == [*again, elsewhere]


def test_every_try_has_the_same_body(provider: Provider, key: str) -> None:
    """What changes from try to try stands in header fields, which are no part of the fingerprint."""
    provider.model.tries.clear()

    provider.paid("directly", key, Trouble(500))

    first, second = provider.model.tries
    assert ("0", "1") == (first.retry_count, second.retry_count)
    assert first.body == second.body
