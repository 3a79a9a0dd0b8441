"""Every alert, from the rules that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from docs.generate.markdown import code, table

RULES: Final = Path(__file__).parents[2] / "deploy/prometheus/rules.yml"


def alerts() -> str:
    """Name with its runbook, severity, how long it must hold, and what is wrong."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    rows = (
        [
            f"[{code(rule['alert'])}](../{rule['annotations']['runbook_url'].removeprefix('docs/')})",
            rule["labels"]["severity"],
            rule.get("for", "0m"),
            rule["annotations"]["description"],
        ]
        for rule in rules
    )
    return table(("alert", "severity", "for", "it means"), rows)
