"""The benchmark, in its shortest form: that it runs, and what it leaves to be read. What it measures is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from bench.load import Plan
from bench.machine import Cores
from bench.stage import Stage

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmark reads /proc")

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = (
    "requests_per_second",
    "p50_ms",
    "p99_ms",
    "cpu_us_per_request",
    "server_share",
    "generator_share",
    "load_share",
    "server_mib",
)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m bench`, run to its end."""
    return subprocess.run([sys.executable, "-m", "bench", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)


def test_a_quick_run_leaves_ratios_and_ranges_as_json(tmp_path: Path) -> None:
    """The bench command measures what it is asked for, at 1 and at 64 connections, and writes the promised ratios and figures."""
    output = tmp_path / "results.json"

    done = bench("--quick", "--rounds", "1", "--only", "passthrough/write", "--only", "redis/first", "--output", str(output))

    assert (0, "") == (done.returncode, done.stderr)
    results: dict[str, Any] = json.loads(output.read_text())
    assert {"first_vs_passthrough"} == results["ratios"].keys() == results["ratios_by_cpu"].keys()
    assert {"passthrough/write@1", "passthrough/write@64", "redis/first@1", "redis/first@64"} == results["added_p50_ms"].keys()
    measured = [(series["server"], series["work"], series["connections"]) for series in results["series"]]
    servers = (("direct", "write"), ("passthrough", "write"), ("redis", "first"))
    assert [(*server, connections) for connections in (1, 64) for server in servers] == measured
    assert [] == [
        (series, name)
        for series in results["series"]
        for name in FIGURES
        if not 0 <= series[name]["low"] <= series[name]["median"] <= series[name]["high"]
    ]


def test_a_name_that_names_nothing_is_an_error() -> None:
    """A misspelt --only measures nothing, and the names that there are are told."""
    done = bench("--only", "sqlite/frist")

    assert 2 == done.returncode
    assert "no series is named 'sqlite/frist'; there are direct/write, " in done.stderr


def test_a_wrong_answer_ends_the_load(tmp_path: Path) -> None:
    """A first write that was not executed is no figure but a failure: here from the upstream, which knows no idempotency."""
    with closing(Stage(tmp_path, Cores.of_this_machine())) as stage:
        port, pid = stage.upstream
        plan = Plan(port, "first", connections=1, warm_up=0.1, seconds=0.1, server=pid, support=())

        words = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
        done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("HTTP/1.1 200 OK")
