"""The example configurations load, hold every key there is, and agree with the schema; what is printed loads again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from idemproxy.config.fit import shape_at
from idemproxy.config.load import load
from idemproxy.config.problem import Trail
from idemproxy.config.shape import ConfigurationShape
from idemproxy.config.show import as_yaml, json_schema
from tests.config.conftest import Load

CONFIG = Path(__file__).parents[2] / "config"
EXAMPLES = sorted(path.name for path in CONFIG.glob("*.yaml"))
# Keys that cannot stand beside another one, or need a file that is there; the example shows them as comments.
INSTEAD = {
    "StoreShape.url_file",
    "ConfigurationShape.key_secret_file",
    "AdminShape.token_file",
    "ConfigurationShape.tls",
    "ListenerTlsShape.certificate_file",
    "ListenerTlsShape.key_file",
    "StoreShape.password_file",
    "StoreShape.durability",
    "DurabilityShape.replicas",
    "DurabilityShape.aof",
    "DurabilityShape.timeout",
    "StoreShape.tls",
    "StoreTlsShape.ca_file",
    "StoreTlsShape.certificate_file",
    "StoreTlsShape.key_file",
    "UpstreamTlsShape.ca_file",
    "UpstreamTlsShape.certificate_file",
    "UpstreamTlsShape.key_file",
}


def test_there_are_the_examples_that_are_promised() -> None:
    """Nobody looks for an example in vain, and no example goes untested."""
    assert ["every-key.yaml", "minimal.yaml", "redis.yaml", "stripe.yaml"] == EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_printed_loads_again_to_the_same(name: str, loaded: Load) -> None:
    """An example loads without any variable, and its effective form is the same configuration."""
    first = load({"config": [str(CONFIG / name)]}, {})

    again = loaded(as_yaml(first.shape, first.settings.profiles), {"KEY_SECRET": "an example that protects nothing"})

    assert first.settings == again.settings
    assert first.shape == again.shape


def test_secrets_are_not_printed_and_not_replaced_by_others(loaded: Load) -> None:
    """In the place of a secret stands a variable; with it set, what was printed is the same configuration again."""
    text = "key_secret: 'hu$$nter'\nstore: {url: 'redis://me:pa$$s%2Fword@127.0.0.1:6379/0'}\nupstreams: {a: {url: 'http://127.0.0.1:9/$$$$a'}}\n"
    first = loaded(text)

    printed = as_yaml(first.shape, first.settings.profiles)

    assert [] == re.findall(r"hu.*nter|pa.*word", printed)
    assert first.settings == loaded(printed, {"KEY_SECRET": "hu$nter", "STORE_CREDENTIALS": "me:pa$s%2Fword"}).settings


def test_files_of_secrets_are_printed_as_files(tmp_path: Path, loaded: Load) -> None:
    """The file's name is no secret, and is found from any directory."""
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "url").write_text("redis://:hunter2@127.0.0.1:6379/0")
    (tmp_path / "token").write_text("hunter2hunter2hunter2")
    first = loaded(
        "key_secret_file: secret\nadmin: {token_file: token}\nstore: {url_file: url}\nupstreams: {a: {url: 'http://127.0.0.1:9'}}\n"
    )

    printed = as_yaml(first.shape, first.settings.profiles)

    assert (str(tmp_path / "secret"), str(tmp_path / "token"), str(tmp_path / "url")) == (
        yaml.safe_load(printed)["key_secret_file"],
        yaml.safe_load(printed)["admin"]["token_file"],
        yaml.safe_load(printed)["store"]["url_file"],
    )
    assert "hunter2" not in printed
    assert first.settings == loaded(printed).settings


def models(model: type[BaseModel], trail: Trail = ()) -> dict[str, set[str]]:
    """The keys of every model that a configuration is made of, by the model's name."""
    found = {model.__name__: {field.alias or name for name, field in model.model_fields.items()}}
    for name in model.model_fields:
        inner = shape_at((*trail, name)) or shape_at((*trail, name, "item"))
        if inner is not None:
            found |= models(inner, (*trail, name) if shape_at((*trail, name)) else (*trail, name, "item"))
    return found


def test_every_key_of_the_shape_is_in_the_example() -> None:
    """A key that is added to the shape must be shown."""
    written: dict[str, set[str]] = {}

    def visit(value: Any, trail: Trail) -> None:  # noqa: ANN401 - whatever YAML holds
        model = shape_at(trail)
        if isinstance(value, dict) and model is not None:
            written.setdefault(model.__name__, set()).update(value)
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, item in inner:
            visit(item, (*trail, step))

    visit(yaml.safe_load((CONFIG / "every-key.yaml").read_text("utf-8")), ())

    wanted = models(ConfigurationShape)
    missing = {f"{model}.{key}" for model, keys in wanted.items() for key in keys - written.get(model, set())}
    assert missing == INSTEAD
    assert len(wanted) == 20


def test_what_the_example_cannot_use_is_shown_as_a_comment() -> None:
    """The keys that the example cannot use are still in it."""
    text = (CONFIG / "every-key.yaml").read_text("utf-8")

    comments = [line.partition("#")[2] for line in text.splitlines()]
    assert [] == [key for key in INSTEAD if not any(f"{key.partition('.')[2]}: " in comment for comment in comments)]


def test_the_committed_schema_is_that_of_the_shape() -> None:
    """`idemproxy schema > config/schema.json` after a change of the shape."""
    assert (CONFIG / "schema.json").read_text("utf-8") == json_schema()


def test_every_key_is_described() -> None:
    """An editor that shows the schema has a sentence for every key, its own or its type's."""
    schema = json.loads(json_schema())
    definitions = schema["$defs"] | {"": schema}

    def properties(definition: dict[str, Any]) -> dict[str, Any]:
        branches = [definition, *definition.get("anyOf", ())]
        return {name: about for branch in branches for name, about in branch.get("properties", {}).items()}

    silent = [
        f"{model}.{name}"
        for model, definition in definitions.items()
        for name, about in properties(definition).items()
        if not about.get("description") and not definitions[about.get("$ref", "").rpartition("/")[2]].get("description")
    ]
    assert [] == silent


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_point_editors_to_the_schema(name: str) -> None:
    """The first line of an example makes an editor complete and check it."""
    assert "# yaml-language-server: $schema=schema.json" == (CONFIG / name).read_text("utf-8").splitlines()[0]
