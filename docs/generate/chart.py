"""The schema of the chart's values: written by hand, but for the proxy's configuration, which is taken from the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from idemproxy.config.show import json_schema

SCHEMA: Final = Path(__file__).parents[2] / "deploy/helm/idemproxy/values.schema.json"


def with_configuration(text: str) -> str:
    """The schema `text` with everything anew to which its `config` refers. Raises JSONDecodeError for what is no JSON."""
    schema: dict[str, Any] = json.loads(text)
    configuration: dict[str, Any] = json.loads(json_schema())
    definitions: dict[str, Any] = configuration.pop("$defs")
    del configuration["$schema"]
    return json.dumps(schema | {"$defs": {"Configuration": configuration, **definitions}}, indent=2) + "\n"
