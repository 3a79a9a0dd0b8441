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


def test_what_large_bodies_cost_is_a_table() -> None:
    """A row for each kind of body: how many there were, how long they took, and three times for each of two small requests."""
    words = ["-m", "bench.loop_delay", "--kib", "100", "--seconds", "0.3", "--only", "none", "--only", "objects"]

    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)
    heading, *rows = (line.split() for line in done.stdout.splitlines())
    assert ["body", "bodies", "ms", "livez", "p50", "p99", "max", "write", "p50", "p99", "max", "MiB"] == heading
    assert [["none", "0", "-"], ["objects"]] == [rows[0][:3], rows[1][:1]]
    assert [[True] * 7] * 2 == [[float(figure) > 0 for figure in row[3:]] for row in rows]


def test_the_stores_are_held_against_plain_redis_py(tmp_path: Path) -> None:
    """`make bench-store` gives, for each work and number at once, what each store did, and ours by what redis-py's pool did."""
    output, words = tmp_path / "store.json", ("-m", "bench.store_operations", "--quick", "--rounds", "1")

    done = subprocess.run(
        [sys.executable, *words, "--only", "ours", "--only", "redis-py pool", "--output", str(output)],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip

    assert (0, "") == (done.returncode, done.stderr)
    results: dict[str, Any] = json.loads(output.read_text())
    compared = {f"ours/{work}@{at_once}" for work in ("first", "replay", "read") for at_once in (1, 16, 64)}
    assert compared == results["ratios"].keys() == results["ratios_by_cpu"].keys()
    assert [["ours", "redis-py pool"]] * 9 == [[each["store"] for each in results["series"][n : n + 2]] for n in range(0, 18, 2)]
    assert all(each[name]["median"] > 0 for each in results["series"] for name in ("per_second", "p50_ms", "cpu_us"))


def test_what_a_record_costs_in_memory_is_a_table(tmp_path: Path) -> None:
    """`make bench-memory` gives bytes for each record by phase and length of body, and fewer where it is long and compressed."""
    words = ("-m", "bench.memory_per_record", "--records", "500", "--output", str(tmp_path / "memory.json"))

    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)
    rows = json.loads((tmp_path / "memory.json").read_text())["rows"]
    phases = [("in flight", None), ("expired", None), *(("completed", size) for size in (0, 500, 1024, 4096, 16_384, 65_536))]
    assert phases == [(row["phase"], row["body"]) for row in rows]
    assert [] == [row for row in rows if not row["plain"] > (row["body"] or 0)]
    assert [] == [row for row in rows[-3:] if not row["compressed"] < row["plain"] / 2]


def test_a_name_that_names_nothing_is_an_error() -> None:
    """A misspelt --only measures nothing, and the names that there are are told."""
    done = bench("--only", "sqlite/frist")

    assert 2 == done.returncode
    assert "no series is named 'sqlite/frist'; there are direct/write, " in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("bench.soak", "--store", "memory"), "argument --store: invalid choice: 'memory'"),
        (("bench.slow_senders", "--seconds", "40"), "--seconds between 1 and 20: the slow ones end after 30"),
    ],
)
def test_a_long_run_that_could_prove_nothing_is_not_begun(words: tuple[str, ...], told: str) -> None:
    """Arguments that make no sense end `make soak` and `make slow` at once; what they do is in tests/process."""
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False, capture_output=True, text=True)

    assert (2, "") == (done.returncode, done.stdout)
    assert told in done.stderr


def test_a_wrong_answer_ends_the_load(tmp_path: Path) -> None:
    """A first write that was not executed is no figure but a failure: here from the upstream, which knows no idempotency."""
    with closing(Stage(tmp_path, Cores.of_this_machine())) as stage:
        port, pid = stage.upstream
        plan = Plan(port, "first", connections=1, warm_up=0.1, seconds=0.1, server=pid, support=())

        words = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
        done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("HTTP/1.1 200 OK")
