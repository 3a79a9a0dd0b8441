"""Every metric, from a page of /metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from docs.generate.markdown import code, listed, table
from idemproxy.observe.metrics import Metrics

_HELP: Final = re.compile(r"# HELP (idemproxy_\S+) (.+)")
_TYPE: Final = re.compile(r"# TYPE (idemproxy_\S+) (\S+)")
_SAMPLE: Final = re.compile(r"(idemproxy_\w+)(?:\{(.*)\})? ")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

_OPEN: Final = ("route", "store")
"""The labels whose values the configuration gives; `le` is a histogram's own."""


@dataclass(slots=True)
class Family:
    """One metric: its type, its help, and the values of each label."""

    about: str
    kind: str = ""
    labels: dict[str, dict[str, None]] = field(default_factory=dict)


def families() -> dict[str, Family]:
    """The metrics of this program, by name, in the order of the page."""
    found: dict[str, Family] = {}
    for line in Metrics(["charges"], "sqlite").render()[0].decode().splitlines():
        if told := _HELP.match(line):
            found[told[1]] = Family(told[2])
        elif told := _TYPE.match(line):
            found[told[1]].kind = told[2]
        elif told := _SAMPLE.match(line):
            family = found[told[1] if told[1] in found else told[1].rpartition("_")[0]]
            for label, value in _LABEL.findall(told[2] or ""):
                if label != "le":
                    family.labels.setdefault(label, {})[value] = None
    return found


def metrics() -> str:
    """Name, type, labels and help of each."""
    rows = ([code(name), family.kind, listed(family.labels), family.about] for name, family in families().items())
    return table(("metric", "type", "labels", "meaning"), rows)


def labels() -> str:
    """The values of each label that this program gives, by the metrics that have them."""
    by_values: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, family in families().items():
        for label, values in family.labels.items():
            if label not in _OPEN:
                by_values.setdefault((label, tuple(values)), []).append(name)
    rows = ([code(label), listed(names), listed(values)] for (label, values), names in sorted(by_values.items()))
    return table(("label", "of", "values"), rows)
