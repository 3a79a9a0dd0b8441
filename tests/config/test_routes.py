"""What a route may be called, where it may take its keys from, and what it may not release."""

from __future__ import annotations

import pytest

from tests.config.conftest import Complaints, Load

UPSTREAM = "upstreams: {payments: {url: 'http://127.0.0.1:9000'}}\n"
ROUTE = UPSTREAM + "routes:\n- {name: one, upstream: payments, %s}\n"
IN_ROUTE = "idemproxy.yaml:3: routes[0]."
NO_ROUTE_NAME = "is no name of a route: use letters, digits, _, . and -, and begin with a letter or a digit"
ACTED = "says that the upstream acted, and a released key would let it act again: 2xx may not be in release"

# The text of a file, and every complaint about it.
WRONG: dict[str, tuple[str, list[str]]] = {
    "a copy of a route, unfinished: its name alone is told, not the upstream that it was to use": (
        UPSTREAM.replace("}}", "},\n  spare: {url: 'http://127.0.0.1:9001'}}")
        + "routes:\n- {name: one, upstream: payments}\n- {name: one, upstream: payments}\n",
        ["idemproxy.yaml:5: routes[1].name: routes[0] has the name 'one' too: give each route a name of its own"],
    ),
    "an upstream that stands twice in a route: nothing is concluded from the one that was kept": (
        UPSTREAM.replace("}}", "},\n  spare: {url: 'http://127.0.0.1:9001'}}")
        + "routes:\n- {name: one, upstream: payments, upstream: spare}\n",
        ["idemproxy.yaml:4: routes[0].upstream: this key stands here twice, first in line 4: keep one"],
    ),
    "a route under the name that metrics give to no route": (
        UPSTREAM + "routes:\n- {name: '-', upstream: payments}\n",
        [f"idemproxy.yaml:3: routes[0].name: '-' {NO_ROUTE_NAME}"],
    ),
    "a route whose name breaks a line": (
        UPSTREAM + 'routes:\n- {name: "one\\n", upstream: payments}\n',
        [f"idemproxy.yaml:3: routes[0].name: 'one\\n' {NO_ROUTE_NAME}"],
    ),
    "a route whose name holds a quotation mark": (
        UPSTREAM + "routes:\n- {name: 'a\"b', upstream: payments}\n",
        [f"idemproxy.yaml:3: routes[0].name: 'a\"b' {NO_ROUTE_NAME}"],
    ),
    "a route with an empty name": (
        UPSTREAM + "routes:\n- {name: '', upstream: payments}\n",
        [f"idemproxy.yaml:3: routes[0].name: '' {NO_ROUTE_NAME}"],
    ),
    "a release of what the upstream has done": (
        ROUTE % "outcome: {release: [200, 429, 299, 300]}",
        [f"{IN_ROUTE}outcome.release[0]: 200 {ACTED}", f"{IN_ROUTE}outcome.release[2]: 299 {ACTED}"],
    ),
    "a key from nowhere": (
        ROUTE % "key: {from: []}",
        [f"{IN_ROUTE}key.from: is an empty list: write something or delete it"],
    ),
    "a key from somewhere else": (
        ROUTE % "key: {from: [header, worfklow]}",
        [f"{IN_ROUTE}key.from[1]: must be header or workflow (did you mean 'workflow'?)"],
    ),
    "a key derived from what is not read": (
        ROUTE % "key: {mode: derive, from: [header]}",
        [f"{IN_ROUTE}key: mode: derive makes keys for workflows: add workflow to `from`, or leave `from` out"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_route_is_told_and_nothing_else(text: str, expected: list[str], complaints: Complaints) -> None:
    """A wrong route is reported exactly so: its line, its path, and a way out."""
    assert expected == complaints(text)


@pytest.mark.parametrize("name", ["a", "7", "Charges_v1.2-eu", "0-._"])
def test_a_name_of_letters_digits_and_few_signs_is_a_routes_name(name: str, loaded: Load) -> None:
    """What every log, label and header can hold as it stands is a name."""
    [route] = loaded(f"{UPSTREAM}routes:\n- {{name: '{name}', upstream: payments}}\n").settings.routes

    assert name == route.name
