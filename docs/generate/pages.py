"""The pages, and the generated parts in them: each stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from docs.generate import alerts, answers, command_line, fingerprint, machine, metrics, performance, profiles, settings, wire

DOCS: Final = Path(__file__).parents[1]

PARTS: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "admin-problems": answers.admin_problems,
        "alerts": alerts.alerts,
        "answer-limits": wire.answer_limits,
        "attempt-diagram": machine.attempt_diagram,
        "client-deadlines": wire.client_deadlines,
        "client-limits": wire.client_limits,
        "command-line": command_line.commands,
        "decision-diagram": machine.decision_diagram,
        "fingerprint-examples": fingerprint.examples,
        "metric-labels": metrics.labels,
        "metrics": metrics.metrics,
        "never-forwarded": answers.never_forwarded,
        "never-replayed": answers.never_replayed,
        "performance-figures": performance.figures,
        "performance-growth": performance.growth,
        "performance-profile": performance.profile,
        "performance-servers": performance.servers,
        "performance-targets": performance.targets,
        "phase-diagram": machine.phase_diagram,
        "problems": answers.problems,
        "profile-settings": profiles.settings,
        "profile-statuses": profiles.statuses,
        "profiles": profiles.profiles,
        "settings": settings.settings,
    }
)
"""Every generated part, by the name in its marks."""

_PART: Final = re.compile(r"<!-- generated: ([a-z-]+) -->\n.*?<!-- end of \1 -->", re.DOTALL)


def pages() -> list[Path]:
    """Every page of the documentation."""
    return sorted(DOCS.rglob("*.md"))


def parts_of(text: str) -> list[str]:
    """The names of the generated parts of a page."""
    return _PART.findall(text)


def filled_in(text: str) -> str:
    """The page with each generated part written anew. Raises KeyError for a name that is not one of PARTS."""
    return _PART.sub(lambda part: f"<!-- generated: {part[1]} -->\n\n{PARTS[part[1]]()}\n<!-- end of {part[1]} -->", text)
