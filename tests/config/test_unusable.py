"""Files, secrets and flags that cannot be used at all, and whatever else may stand in a file."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from idemproxy.config.load import load
from idemproxy.config.problem import ConfigurationError
from tests.config.conftest import Complaints

UPSTREAM = "upstreams: {payments: {url: 'http://127.0.0.1:9000'}}\n"


@pytest.mark.parametrize(("name", "reason"), [(".", "Is a directory"), ("loop", "Too many levels of symbolic links")])
def test_an_unreadable_file_is_told_with_the_reason(name: str, reason: str, tmp_path: Path) -> None:
    """A file that is there but cannot be read is told as such (root may read everything, so neither case is about rights)."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = tmp_path / name

    with pytest.raises(ConfigurationError) as caught:
        load({"config": [str(path)]}, {})

    assert [f"{path}:1: the file cannot be read: {reason}"] == list(map(str, caught.value.problems))


@pytest.mark.parametrize("name", ["absent.yaml", "dangling.yaml"])
def test_a_missing_file_is_told_as_missing(name: str, tmp_path: Path) -> None:
    """A path to nothing, or a link to nothing, names the path that was asked for."""
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")
    path = tmp_path / name

    with pytest.raises(ConfigurationError) as caught:
        load({"config": [str(path)]}, {})

    assert [f"{path}:1: there is no such file: check the path"] == list(map(str, caught.value.problems))


def test_a_file_in_another_encoding_is_told_with_the_line(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are found where they stand."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"# one\n# caf\xe9\n")

    with pytest.raises(ConfigurationError) as caught:
        load({"config": [str(path)]}, {})

    assert [f"{path}:2: the file is not UTF-8: save it in that encoding"] == list(map(str, caught.value.problems))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "the file cannot be read: No such file or directory"),
        ("\n", "what stands in the file is empty: write the secret into it"),
        (
            "redis:/me:hunter2@host",
            "what stands in the file is no URL: write sqlite:///file.db, redis://host:6379/0, unix:///path/to/socket or memory://",
        ),
    ],
)
def test_a_secret_file_is_told_without_its_secret(content: str | None, told: str, tmp_path: Path, complaints: Complaints) -> None:
    """What is wrong with a secret's file is said at the key that names it, and the secret is not repeated."""
    if content is not None:
        (tmp_path / "url").write_text(content)

    assert [f"idemproxy.yaml:2: store.url_file: {told}"] == complaints(UPSTREAM + "store: {url_file: url}\n")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a token with spaces", "is no bearer token: letters, digits and -._~+/ only, such as `openssl rand -hex 32` prints"),
        ("hunter2hunter2!", "is no bearer token: letters, digits and -._~+/ only, such as `openssl rand -hex 32` prints"),
        ("hunter2hunter2x", "is too short for a token: at least 16 characters, such as `openssl rand -hex 32` prints"),
    ],
)
def test_a_token_that_cannot_be_sent_or_may_be_guessed_is_refused(
    content: str, told: str, tmp_path: Path, complaints: Complaints
) -> None:
    """The problem is told at the key, or by the flag, that names the file, without the token."""
    (tmp_path / "token").write_text(content)

    in_file = complaints(UPSTREAM + "admin: {token_file: token}\n")
    by_flag = complaints(UPSTREAM, admin_token_file=[str(tmp_path / "token")])

    assert [f"idemproxy.yaml:2: admin.token_file: what stands in the file {told}"] == in_file
    assert [f"--admin-token-file: what stands in the file {told}"] == by_flag


def test_without_anything_the_way_in_is_told() -> None:
    """Neither file nor flag: the message says how to name an upstream."""
    with pytest.raises(ConfigurationError) as caught:
        load({}, {})

    text = "idemproxy: there is no upstream: give --upstream URL, or describe one under `upstreams` in a file"
    assert [text] == list(map(str, caught.value.problems))


def test_two_upstreams_of_one_name_among_flags_are_refused() -> None:
    """Two nameless upstreams would be one; neither is dropped in silence."""
    with pytest.raises(ConfigurationError) as caught:
        load({"upstream": ["http://127.0.0.1:1", "http://127.0.0.1:2"]}, {})

    text = "--upstream: two upstreams are called 'upstream': write each as name=URL, with a name of its own"
    assert [text] == list(map(str, caught.value.problems))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 700) | st.floats(allow_nan=False) | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EXAMPLE = yaml.safe_load((Path(__file__).parents[2] / "config" / "every-key.yaml").read_text("utf-8"))


def trails(value: object, trail: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every value within a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [trail, *(found for step, item in inner for found in trails(item, (*trail, step)))]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoiled=st.lists(st.tuples(st.sampled_from(trails(EXAMPLE)[1:]), ANYTHING), min_size=1, max_size=4))
def test_whatever_stands_in_a_file_it_loads_or_is_told(
    spoiled: list[tuple[tuple[str | int, ...], object]], complaints: Complaints
) -> None:
    """Any values in any places give settings or problems with their lines, and never another exception."""
    document = yaml.safe_load(yaml.safe_dump(EXAMPLE))
    for trail, value in spoiled:
        inner = document
        with contextlib.suppress(LookupError, TypeError):  # an earlier value took the place of a mapping on the way
            for step in trail[:-1]:
                inner = inner[step]
            inner[trail[-1]] = value

    assert [] == [line for line in complaints(yaml.safe_dump(document)) if not re.match(r"idemproxy\.yaml:[0-9]+: ", line)]
