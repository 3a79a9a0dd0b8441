"""A file says the same whichever of the two readers of YAML is there, however long it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from idemproxy.config.source import read
from tests.config.conftest import Load

CONFIG = Path(__file__).parents[2] / "config"

TEXTS = {
    **{path.name: path.read_text("utf-8") for path in sorted(CONFIG.glob("*.yaml"))},
    "an alias": "a: &x [1, 0x1F, 1_000, 1.5, yes, ~, 2020-01-01]\nb: *x\n",
    "an anchor twice": "a: &x 1\nb: &x 2\n",
    "an alias of nothing": "a: *x\n",
    "tags": "a: !!int x\nb: !mine y\nc: !!str 1\n",
    "text over lines": "a: |\n  one\n  two\nb: >-\n  one\n  two\nc: 'it''s'\nd: \"\\u00e9\\t\"\n",
    "a tab at the end of a line": "a: 1\t\n",
    "a mark within the file": "a: 1\n\ufeffb: 2\n",
    "a brace too few": "a: {b: 1\nc: 2\n",
    "a colon too many": "a: b: c\n",
    "a sign that is not allowed": "a: \x07\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "too deep": "a: " + "[" * 5_000,
}


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="there is only one reader here")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_both_readers_say_the_same(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With libyaml and without it, a file has the same values in the same lines, and the same problems."""
    path = tmp_path / "idemproxy.yaml"
    path.write_text(text, "utf-8")
    fast = read(path, {})
    monkeypatch.setattr(yaml, "__with_libyaml__", False)

    assert read(path, {}) == fast


def test_a_file_may_be_as_long_as_its_routes_are_many(loaded: Load) -> None:
    """Only aliases make a file stand for too much: one that writes out more than 100,000 values is read."""
    methods = ", ".join(f"M{number}" for number in range(500))
    lines = (f"- {{name: r{n}, upstream: a, match: {{path: /r{n}, methods: [{methods}]}}}}" for n in range(205))

    found = loaded("upstreams: {a: {url: 'http://127.0.0.1:9000'}}\nroutes:\n" + "\n".join(lines)).settings.routes

    assert (205, 500) == (len(found), len(found[204].methods or ()))
