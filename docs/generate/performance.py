"""What was measured last and published by `make bench-publish`: the files in explanation/measured, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from docs.generate.markdown import NOTHING, code, table

_MEASURED: Final = Path(__file__).parents[1] / "explanation" / "measured"
_NONE: Final = "No run has been published yet: `make bench`, `make bench-growth`, then `make bench-publish`.\n"


def ratios() -> str:
    """Each ratio with its target, and on which machine it came to be."""
    if (run := _published("latest")) is None:
        return _NONE
    heading = ("ratio", "of", "by", "value", "by CPU", "floor", "aim", "reached")
    rows = [
        (
            code(name),
            *(code(target[side]) for side in ("of", "against")),
            f"{run['ratios'][name]:.2f}",
            _number(run["ratios_by_cpu"].get(name), 2),
            *(_number(target[mark]) for mark in ("floor", "aim")),
            target["reached"] or NOTHING,
        )
        for name, target in run["targets"].items()
    ]
    return f"{_where(run)}\n\n{table(heading, rows)}"


def figures() -> str:
    """The picture, and every series at every number of connections."""
    if (run := _published("latest")) is None:
        return _NONE
    heading = ("server", "work", "connections", "requests/s", "range", "p50 ms", "+p50 ms", "+p99 ms", "CPU µs", "MiB")
    rows = [
        (
            code(each["server"]),
            each["work"],
            str(each["connections"]),
            f"{each['requests_per_second']['median']:,.0f}{' *' if each['load_bound'] else ''}",
            "{low:,.0f} to {high:,.0f}".format_map(each["requests_per_second"]),
            f"{each['p50_ms']['median']:.2f}",
            *(_number(each[f"added_{quantile}_ms"], 2) for quantile in ("p50", "p99")),
            f"{each['cpu_us_per_request']['median']:.0f}",
            f"{each['server_mib']['median']:.0f}",
        )
        for each in run["series"]
    ]
    return f"![requests per second, a bar for each server](measured/latest.svg)\n\n{table(heading, rows)}"


def servers() -> str:
    """Who was measured, and who could not be."""
    if (run := _published("latest")) is None:
        return _NONE
    rows = [(code(name), about) for name, about in run["servers"].items()]
    missing = [(code(name), reason.strip().partition("\n")[0]) for name, reason in run["skipped"].items()]
    told = f"\nNot measured in that run:\n\n{table(('series or server', 'why'), missing)}" if missing else ""
    return table(("server", "what it is"), rows) + told


def growth() -> str:
    """The picture, and each curve with its points."""
    if (run := _published("growth")) is None:
        return _NONE
    heading = ("by", "what", "unit", "growth", "steepest", "amount: cost")
    rows = [
        (
            curve["question"],
            curve["name"],
            curve["unit"],
            f"{curve['growth']:.2f}",
            f"{curve['steepest']:.2f}",
            ", ".join(f"{amount:,}: {cost:.3g}" for amount, cost in curve["points"]),
        )
        for curve in run["curves"]
    ]
    return f"{_where(run)}\n\n![cost by amount, on two logarithmic axes](measured/growth.svg)\n\n{table(heading, rows)}"


def _published(name: str) -> dict[str, Any] | None:
    file = _MEASURED / f"{name}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def _where(run: dict[str, Any]) -> str:
    machine = run["machine"]
    return f"Measured {run['finished'][:10]} on {machine['cores']} cores: {machine['system']}, Python {machine['python']}."


def _number(value: float | None, places: int | None = None) -> str:
    if value is None:
        return NOTHING
    return f"{value:g}" if places is None else f"{value:.{places}f}"
