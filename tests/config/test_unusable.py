"""Files, secrets and flags that cannot be used at all, and whatever else may stand in a file."""

from __future__ import annotations

import contextlib
import copy
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


def test_of_two_upstreams_of_one_name_nothing_else_is_said(complaints: Complaints) -> None:
    """That no route of the file uses such an upstream would mislead: it is told once its name is its own."""
    text = UPSTREAM + "routes:\n- {name: one, upstream: payments}\n"

    assert ["--upstream: two upstreams are called 'x': write each as name=URL, with a name of its own"] == complaints(
        text, upstream=["x=http://127.0.0.1:1", "x=http://127.0.0.1:2"]
    )


def nested_aliases(levels: int, width: int) -> str:
    """Lists from line 2 on, `k0`, `k1`, ...: each holds the one before it `width` times."""
    first = UPSTREAM + "k0: &k0 [x]\n"
    return first + "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * width)}]\n" for n in range(1, levels + 1))


@pytest.mark.parametrize(
    ("levels", "width", "told"),
    [
        (9, 10, "idemproxy.yaml:7: with every alias written out, k5 makes more than 100,000 values"),
        (400, 1, "idemproxy.yaml:51: with every alias written out, k49 makes values more than 50 levels deep"),
    ],
    ids=["many", "deep"],
)
def test_a_file_that_stands_for_too_much_is_told_at_once(levels: int, width: int, told: str, complaints: Complaints) -> None:
    """Aliases within aliases are not written out without end (a thousand million values here, or as deep as the stack)."""
    assert [f"{told}: use fewer aliases within aliases"] == complaints(nested_aliases(levels, width))


def test_aliases_in_plenty_are_read(complaints: Complaints) -> None:
    """Tens of thousands of values are not too many: they are looked at, and told for what they are."""
    reported = [line.partition(" (")[0].partition(";")[0] for line in complaints(nested_aliases(4, 14))]

    assert [f"idemproxy.yaml:{n + 2}: k{n}: unknown key" for n in range(5)] == reported


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        ("store: {url: 'redis://h/0?a=b'}\n", {}, "idemproxy.yaml:2: store.url: is odd"),
        ("store: {url_file: url}\n", {}, "idemproxy.yaml:2: store.url_file: what stands in the file is odd"),
        ("drain: 1s\n", {"store": ["redis://h/0?a=b"]}, "--store: is odd"),
    ],
    ids=["url", "url_file", "flag"],
)
def test_what_a_store_has_against_its_url_is_told_with_the_rest(
    text: str, flags: dict[str, list[str]], told: str, tmp_path: Path
) -> None:
    """Only a store knows all its options: its objection stands where the URL was given, among the other problems."""
    (tmp_path / "url").write_text("redis://h/0?a=b\n")
    path = tmp_path / "idemproxy.yaml"
    path.write_text(UPSTREAM + text + "scope: sharde\n")

    with pytest.raises(ConfigurationError) as caught:
        load({"config": [str(path)], **flags}, {}, lambda store: "is odd" if store.url == "redis://h/0?a=b" else None)

    scope = "idemproxy.yaml:3: scope: must be shared, or a mapping such as {headers: [x-tenant]} (did you mean 'shared'?)"
    assert [told, scope] == [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]


@pytest.mark.parametrize("store", ["{url: 'reddis://h'}", "{prefix: '{}'}", "{url_file: absent}"])
def test_a_store_is_not_asked_about_what_could_not_be_read(store: str, tmp_path: Path) -> None:
    """What is wrong already is told once."""
    path = tmp_path / "idemproxy.yaml"
    path.write_text(f"{UPSTREAM}store: {store}\n")

    with pytest.raises(ConfigurationError) as caught:
        load({"config": [str(path)]}, {}, lambda _: "is odd")

    assert 1 == len(caught.value.problems)
    assert "is odd" not in str(caught.value)


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
    document = copy.deepcopy(EXAMPLE)
    for trail, value in spoiled:
        inner = document
        with contextlib.suppress(LookupError, TypeError):  # an earlier value took the place of a mapping on the way
            for step in trail[:-1]:
                inner = inner[step]
            inner[trail[-1]] = value

    assert [] == [line for line in complaints(yaml.safe_dump(document)) if not re.match(r"idemproxy\.yaml:[0-9]+: ", line)]
