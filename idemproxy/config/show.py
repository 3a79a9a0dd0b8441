"""A configuration as text: the effective YAML without its secrets, and the JSON Schema for editors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from idemproxy.config.effective import LIMITS
from idemproxy.config.shape import ConfigurationShape

_DUMPER: Final = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
_KEY_SECRET: Final = "${KEY_SECRET}"  # noqa: S105 - stands in the place of one
_STORE_CREDENTIALS: Final = "${STORE_CREDENTIALS}"


def as_yaml(shape: ConfigurationShape, profiles: Mapping[str, str]) -> str:
    """YAML that loads again to the same settings, and which profile each route has.

    A variable stands in the place of each secret: what is printed and then run fails, instead of running with a wrong secret.
    """
    tree = _escape(shape.model_dump(mode="json", exclude_none=True, by_alias=True))
    tree["routes"] = [_limits_last(route) for route in tree["routes"]]
    hidden = []
    if shape.key_secret is not None:
        tree["key_secret"] = _KEY_SECRET
        hidden.append(_KEY_SECRET)
    # Beside a password's file, what stands before the @ is a user's name alone; else it may be anything.
    urls = [] if shape.store.password_file else [(tree["store"], "url", shape.store.url, _STORE_CREDENTIALS)]
    for name, upstream in shape.upstreams.items():
        variable = f"${{PROXY_CREDENTIALS_{name.upper().replace('-', '_')}}}"
        urls.append((tree["upstreams"][name], "proxy", upstream.proxy, variable))
    for said, key, url, preferred in urls:
        credentials, at, _ = urlsplit(url or "").netloc.rpartition("@")
        if at:
            variable = preferred
            while variable in hidden:  # a-b and a_b
                variable = variable.replace("}", "_}")
            said[key] = said[key].replace(f"//{_escape(credentials)}@", f"//{variable}@", 1)
            hidden.append(variable)
    head = "".join(f"# profile of the route {json.dumps(name)}: {why}\n" for name, why in profiles.items())
    if hidden:
        head += f"# secrets are not shown: {' and '.join(hidden)} must be set to use this\n"
    return head + yaml.dump(tree, Dumper=_DUMPER, sort_keys=False, default_flow_style=None, width=130, allow_unicode=True)


def json_schema() -> str:
    """The JSON Schema of a configuration file."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **ConfigurationShape.model_json_schema()}
    return json.dumps(_without_nulls(schema), indent=2) + "\n"


def _limits_last(route: dict[str, Any]) -> dict[str, Any]:
    """A route that begins with what sets it apart."""
    return {name: item for name, item in route.items() if name not in LIMITS} | {name: route[name] for name in LIMITS}


def _escape(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """The same value, with every dollar sign in text written so that it is read as one."""
    match value:
        case str():
            return value.replace("$", "$$")
        case dict():
            return {key: _escape(item) for key, item in value.items()}
        case list():
            return [_escape(item) for item in value]
        case _:
            return value


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A schema without pydantic's titles, and in which what may be left out may not be null: the loader takes no null either."""
    match value:
        case {"anyOf": [inner, {"type": "null"}], **rest}:
            return _without_nulls(inner | rest)
        case dict():
            said = {name: item for name, item in value.items() if item is not None}
            return {name: _without_nulls(item) for name, item in said.items() if not (name == "title" and isinstance(item, str))}
        case list():
            return [_without_nulls(item) for item in value]
        case _:
            return value
