"""The benchmark, in its shortest form: that it runs, and what it leaves to be read. What it measures is not judged here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from bench import memory, profile, profile_load
from bench.growth.curves import Curve
from bench.lineup import ALL, RATIOS, SERVERS, Series
from bench.load import Figures, Plan, WrongAnswerError, is_whole
from bench.machine import Cores
from bench.measure import Cell, Effort, Row, compared, row
from bench.memory import Amounts
from bench.picture import bars
from bench.report import Memory, document
from bench.stage import Stage
from bench.targets import Target
from bench.wire import ANSWER_BODY
from docs.generate.markdown import NOTHING

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmark reads /proc")

ROOT: Final = Path(__file__).parents[1]
CORES: Final = Cores(frozenset({1}), frozenset({0}), frozenset({0}))
FIGURES: Final = (
    "requests_per_second",
    "p50_ms",
    "p99_ms",
    "cpu_us_per_request",
    "kernel_us_per_request",
    "server_share",
    "generator_share",
    "load_share",
    "server_mib",
)


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m bench`, run to its end; `environment` is added to this process's own."""
    words, surroundings = [sys.executable, "-m", "bench", *arguments], os.environ | environment
    return subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True, env=surroundings)


def rows(**rates: tuple[int, ...]) -> dict[Cell, Row]:
    """Rows by server of first writes over 64 connections, of rounds in which so many requests were answered in a second."""
    cells: dict[Cell, tuple[int, ...]] = {(Series(name.replace("_", "-"), "first"), 64): rounds for name, rounds in rates.items()}
    return {cell: row(cell, [figures(rate) for rate in rounds], CORES) for cell, rounds in cells.items()}


def figures(requests: int) -> Figures:
    """So many requests in a second, of which the server worked half; the more there are, the longer each takes."""
    return Figures(requests, 1.0, requests / 1000, 3.0, 0.5, 0.1, 0.1, 0.1, 40.0)


def test_a_quick_run_leaves_ratios_and_ranges_as_json(tmp_path: Path) -> None:
    """The bench measures what it is asked for, at 1 and 64 connections, writes ratios and figures, and tells who is missing."""
    output, wanted = tmp_path / "results.json", ("passthrough/write", "redis/first", "express/first")
    words = [word for series in wanted for word in ("--only", series)]

    done = bench("--quick", "--rounds", "1", *words, "--output", str(output), PATH=str(tmp_path))

    assert (0, "") == (done.returncode, done.stderr)
    assert "not measured: express: no node in PATH" in done.stdout.splitlines()
    results: dict[str, Any] = json.loads(output.read_text())
    assert {"first_vs_passthrough"} == results["ratios"].keys() == results["ratios_by_cpu"].keys()
    assert {"express": "no node in PATH"} == results["skipped"]
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
    assert {"First writes: requests per second, 64 connections", "passthrough", "idemproxy, Redis"} <= set(
        re.findall(r">([^<]+)</text>", output.with_suffix(".svg").read_text())
    )


def test_ours_is_held_against_the_best_of_its_kind() -> None:
    """Of several peers the one with the most requests a second by the median counts, and one that was not measured does not."""
    (python,) = (ratio for ratio in RATIOS if ratio.name == "first_vs_python_peer")
    measured = rows(redis=(4000, 9000, 8000), idemkit=(500, 900, 1000), asgi_idempotency_header=(800, 5000, 700))
    assert python.target is not None

    (found,) = compared(measured, RATIOS).values()

    assert (8000 / 900, "idemkit/first", "floor") == (found.value, str(found.against), python.target.verdict(found.value))


def test_a_target_is_met_at_its_mark() -> None:
    """What is as good as the aim reaches it, what is as good as the floor that, and all else has missed; less may be better."""
    more, less = Target(2, 4), Target(2, 1.5, less_is_better=True)

    assert ["aim", "floor", "floor", "missed"] == [more.verdict(value) for value in (4, 3.9, 2, 1.9)]
    assert ["aim", "floor", "floor", "missed"] == [less.verdict(value) for value in (1.5, 1.6, 2, 2.1)]
    assert "wanted <= 2, aim <= 1.5: missed" == less.told(3)


def test_bodies_that_stream_are_not_held_in_memory(tmp_path: Path) -> None:
    """Memory is told idle, while bodies stream either way, and with requests in flight; what streams is not all there at once."""
    with closing(Stage(tmp_path, Cores.of_this_machine())) as stage:
        found = memory.measure(stage, Amounts(requests=20, bodies=2, body_mib=32))

    assert memory.TARGETS.keys() == found.keys()
    assert [] == [name for name, mib in found.items() if not 20 < mib < found["idle"] + 32]


def test_a_profile_gives_calls_and_time_by_room(tmp_path: Path) -> None:
    """`python -m bench.profile` tells, for each kind of request, calls and time by room; a read has no fingerprint taken."""
    output, words = tmp_path / "profile.json", ("-m", "bench.profile", "--in-process", "--seconds", "0.1")

    done = subprocess.run(
        [sys.executable, *words, "--output", str(output)], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert (0, "") == (done.returncode, done.stderr)
    kinds = json.loads(output.read_text())["in_process"]
    assert {"first": 1.0, "replay": 1.0, "read": 1.0} == {
        name: round(sum(each["share"].values()), 6) for name, each in kinds.items()
    }
    assert [True, True, False] == [bool(each["calls"].get("fingerprint")) for each in kinds.values()]
    assert sum(kinds["first"]["calls"].values()) > sum(kinds["replay"]["calls"].values()) > sum(kinds["read"]["calls"].values())


def test_what_perf_saw_is_put_into_parts() -> None:
    """Each function is counted once, in the part where it belongs; shares are of what perf saw of the process."""
    report = """
 30.00% |libpython3.11.so.1.0  |[.] _PyEval_EvalFrameDefault
 10.00% |python3.12            |[.] gc_collect_main
 20.00% |libpython3.11.so.1.0  |[.] _PyObject_Malloc
 20.00% |[kernel.kallsyms]     |[k] tcp_sendmsg_locked
"""

    found = profile_load.parts(report)

    expected = {"running bytecode": 0.375, "collecting garbage": 0.125, "making and freeing objects": 0.25, "kernel": 0.25}
    assert expected == {re.sub("^interpreter: |: sockets.*", "", name): share for name, share in found.items() if share}


def made_up(results: Path) -> None:
    """Results of a bench, a growth and a profile that nobody measured, as they write them."""
    rates = {(series, connections): 1000 + place for connections in (1, 64) for place, series in enumerate(ALL)}
    found = {cell: row(cell, [figures(rate), figures(rate + 9)], CORES) for cell, rate in rates.items()}
    resident = Memory(Amounts(), {"embedded": 42.0, "idle": 44.0, "sent": 100.0, "answered": 70.0, "in_flight": 170.0})
    effort, skipped = Effort(2, (1, 64), 0.1, 1.0), {"express": "no node in PATH"}
    latest = document(effort, CORES, found, compared(found, RATIOS), resident, skipped, SERVERS)
    claims = Curve("records", "Redis, a new key", "ms", ((0, 0.1), (1_000_000, 0.12)), Target(1.3, 1.1, less_is_better=True))
    growth = {"finished": latest["finished"], "machine": latest["machine"], "curves": [claims.values()]}
    kind = profile.Kind(200.0, dict.fromkeys(profile.ROOMS, 80), dict.fromkeys(profile.ROOMS, 0.1), {"a.py: f": 0.03})
    under = profile_load.Under(150.0, dict.fromkeys(profile_load.PARTS, 0.125))
    parts = profile.document({"first": kind, "replay": kind, "read": kind}, {"first": under}, None)
    results.mkdir(parents=True)
    for name, values in (("latest", latest), ("growth", growth), ("profile", parts)):
        (results / f"{name}.json").write_text(json.dumps(values))
    for name in ("latest", "growth"):
        (results / f"{name}.svg").write_text(bars(found, resident))


def test_results_are_published_as_a_page(tmp_path: Path) -> None:
    """`make bench-publish` puts results into the page: targets with what was reached, figures, pictures, growth and profile."""
    for name in ("docs", "deploy/helm", "deploy/prometheus"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.rmtree(tmp_path / "docs/explanation/measured", ignore_errors=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "requirements/dev.txt", "installed"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "idemproxy").symlink_to(ROOT / "idemproxy")
    made_up(tmp_path / "bench" / "results")

    words = ["make", "bench-publish", "STAMP=installed", f"BIN={Path(sys.executable).parent}"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True, env=kept)

    assert (0, "") == (done.returncode, done.stderr)
    page = (tmp_path / "docs/explanation/performance.md").read_text()
    lines = page.splitlines()
    assert "No run has been published" not in page
    assert f"| `memory_idle` | resident, idle on Redis | 44 MiB | {NOTHING} | ≤ 60 | ≤ 45 | met, aim |" in lines
    assert f"| `memory_in_flight` | resident, 1,000 in flight | 170 MiB | {NOTHING} | ≤ 150 | ≤ 100 | missed |" in lines
    claims = "Redis, a new key: p50 of a claim at 1,000,000 by that at 0"
    assert f"| `growth_by_records` | {claims} | 1.20 | {NOTHING} | ≤ 1.3 | ≤ 1.1 | met, floor |" in lines
    assert {ratio.name for ratio in RATIOS} <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert "| `express` | no node in PATH |" in lines
    assert "| fingerprint | 20.0 | 80 | 20.0 | 80 | 20.0 | 80 |" in lines
    assert "| kernel: sockets, epoll, scheduling | 18.8 |" in lines
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page)
    assert ["measured/latest.svg", "measured/growth.svg"] == pictures
    assert [True, True] == [(tmp_path / "docs/explanation" / each).exists() for each in pictures]


def test_a_body_in_one_chunk_is_the_same_answer() -> None:
    """An answer is whole with its last byte, by length or in one chunk; what carries the sign of the other kind is wrong."""
    head, chunked = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", b"1f4\r\n" + ANSWER_BODY + b"\r\n0\r\n\r\n"

    for body in (ANSWER_BODY, chunked):
        assert [False, True] == [is_whole(head + part, b"", b"replayed") for part in (body[:-1], body)]
    with pytest.raises(WrongAnswerError):
        is_whole(head + ANSWER_BODY, b"", b"A: b")


def test_growth_is_a_table_and_its_steepness_known(tmp_path: Path) -> None:
    """`make bench-growth` gives a curve for each store and kind of claim, with as many points as there were amounts."""
    output, words = tmp_path / "growth.json", ("--only", "records", "--most", "1000", "--seconds", "0.02")

    done = subprocess.run(
        [sys.executable, "-m", "bench.growth", *words, "--output", str(output)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (0, "") == (done.returncode, done.stderr)
    curves = json.loads(output.read_text())["curves"]
    names = [f"{store}, {what}" for store in ("Redis", "SQLite") for what in ("a new key", "an answer")]
    assert [(name, [0, 1000]) for name in names] == [(each["name"], [amount for amount, _ in each["points"]]) for each in curves]
    assert output.with_suffix(".svg").exists()


def test_steeper_than_linear_is_seen() -> None:
    """The steepest step of a curve is the exponent of its growth, and what is too small to be more than noise is none."""
    square, linear, noise = (
        Curve("", "", "ms", ((0, 1.0), (10, costs[0]), (100, costs[1]))) for costs in ((2.0, 200.0), (1.0, 10.0), (1.0, 1.01))
    )

    assert [2.0, 1.0, 0.0] == [round(curve.steepest, 1) for curve in (square, linear, noise)]


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
        plan = Plan(port, "first", connections=1, warm_up=0.1, seconds=0.1, server=(pid,), support=())

        words = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
        done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("HTTP/1.1 200 OK")
