"""What was measured last and published by `make bench-publish`: the files in explanation/measured, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias

from docs.generate.markdown import NOTHING, code, table

_MEASURED: Final = Path(__file__).parents[1] / "explanation" / "measured"
_NONE: Final = (
    "No run has been published yet: `make bench`, `make bench-growth`, `make bench-profile`, then `make bench-publish`.\n"
)
_REACHED: Final = {"aim": "met, aim", "floor": "met, floor", "missed": "missed"}

Row: TypeAlias = tuple[str, ...]


def targets() -> str:
    """Every figure of which something is wanted, and whether it was met; then the ratios of which nothing is."""
    latest, growth = _published("latest"), _published("growth")
    if latest is None:
        return _NONE
    rows: list[Row] = [
        (
            code(name),
            f"{code(target['of'])} by {code(target['against'])}",
            f"{latest['ratios'][name]:.2f}",
            _number(latest["ratios_by_cpu"].get(name)),
            *_wanted(target),
        )
        for name, target in latest["targets"].items()
    ]
    rows += [
        (code(f"memory_{name}"), f"resident, {each['of']}", f"{each['mib']:.0f} MiB", NOTHING, *_wanted(each))
        for name, each in latest["memory"].items()
    ]
    rows += [_of_curve(curve) for curve in (growth or {"curves": []})["curves"] if curve["reached"] is not None]
    heading = ("figure", "of what", "value", "by CPU", "floor", "aim", "reached")
    return f"{_where(latest)}\n\n{table(heading, rows)}{_told(latest['warnings'])}"


def _of_curve(curve: dict[str, Any]) -> Row:
    (least, _), *_, (most, _) = curve["points"]
    what = f"{curve['name']}: p50 of a claim at {most:,} by that at {least:,}"
    return code(f"growth_by_{curve['question']}"), what, f"{curve['growth']:.2f}", NOTHING, *_wanted(curve)


def _wanted(of: dict[str, Any]) -> Row:
    """Floor, aim, and what was reached."""
    if of["reached"] is None:
        return NOTHING, NOTHING, NOTHING
    sign = "≤" if of["less_is_better"] else "≥"
    return f"{sign} {of['floor']:g}", f"{sign} {of['aim']:g}", _REACHED[of["reached"]]


def _told(warnings: list[str]) -> str:
    """What the run itself says against its figures."""
    return "".join(f"\nNote: {warning}.\n" for warning in warnings)


def figures() -> str:
    """The picture, and every series at every number of connections."""
    if (run := _published("latest")) is None:
        return _NONE
    heading = ("server", "work", "conns", "requests/s", "range", "p50 ms", "+p50 ms", "+p99 ms", "CPU µs", "kernel µs", "MiB")
    rows = [
        (
            code(each["server"]),
            each["work"],
            str(each["connections"]),
            f"{each['requests_per_second']['median']:,.0f}{' *' if each['load_bound'] else ''}",
            "{low:,.0f} to {high:,.0f}".format_map(each["requests_per_second"]),
            f"{each['p50_ms']['median']:.2f}",
            *(_number(each[f"added_{quantile}_ms"]) for quantile in ("p50", "p99")),
            f"{each['cpu_us_per_request']['median']:.0f}",
            f"{each['kernel_us_per_request']['median']:.0f}",
            f"{each['server_mib']['median']:.0f}",
        )
        for each in run["series"]
    ]
    return f"![requests per second, a bar for each server; resident memory](measured/latest.svg)\n\n{table(heading, rows)}"


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


def profile() -> str:
    """Microseconds and calls by room of the house, the dearest functions, and what perf saw under load."""
    if (run := _published("profile")) is None:
        return _NONE
    kinds: dict[str, Any] = run["in_process"]
    parts = [
        _where(run),
        table(("room", *(f"{name}, {what}" for name in kinds for what in ("µs", "calls"))), _rooms(kinds)),
        "The functions in which most of a first write's time is spent, what they call in C with them:\n",
        table(("function", "share"), [(code(name), f"{share:.1%}") for name, share in kinds["first"]["top"].items()]),
        _under_load(run),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _rooms(kinds: dict[str, Any]) -> list[Row]:
    """A row for each room, and one for all of them."""
    rows = []
    for room in kinds["first"]["share"]:
        pairs = ((f"{kind['us'] * kind['share'][room]:.1f}", str(kind["calls"].get(room, 0))) for kind in kinds.values())
        rows.append((room, *(cell for pair in pairs for cell in pair)))
    totals = ((f"{kind['us']:.1f}", str(sum(kind["calls"].values()))) for kind in kinds.values())
    return [*rows, ("all", *(cell for pair in totals for cell in pair))]


def _under_load(run: dict[str, Any]) -> str:
    if not (loads := run["under_load"]):
        return f"Not measured under load: {run['not_measured'] or 'it was left out'}."
    names = next(iter(loads.values()))["share"]
    rows = [(name, *(f"{each['us'] * each['share'][name]:.1f}" for each in loads.values())) for name in names]
    rows.append(("all", *(f"{each['us']:.1f}" for each in loads.values())))
    return table(("under load on Redis, 64 connections", *(f"{work}, µs" for work in loads)), rows)


def _published(name: str) -> dict[str, Any] | None:
    file = _MEASURED / f"{name}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def _where(run: dict[str, Any]) -> str:
    machine = run["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items() if version)
    return (
        f"Measured {run['finished'][:10]} on {machine['cores']} cores of {machine['processor']}: {machine['system']}, "
        f"Python {machine['python']}, {libraries}."
    )


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"
