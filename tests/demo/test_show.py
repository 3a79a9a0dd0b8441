"""`idemproxy demo` as somebody runs it: what it prints, on what it depends, and what it leaves behind."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from idemproxy.demo.show import sum_up
from idemproxy.demo.timeline import Timeline
from idemproxy.demo.trip import EFFECTS, STEPS
from tests.servers import redis_server

SHOWN: Final = """\
An agent rebooks a cancelled flight in 20 steps; 11 of them have an effect.
It is killed right after step 12 (charge the card), and started again.

Without idemproxy
  steps  1 to 11  made case_1, hold_1, vch_1, bk_1
  step  12        charge the card: made ch_1
  killed          kill -9, before the agent could save what it was answered
  started again   its file has steps 1 to 11
  step  12        charge the card: made ch_2, a second time
  steps 13 to 20  made tkt_1, cxl_1, re_1, upg_1, bag_1, mail_1

With idemproxy between the agent and the API
  steps  1 to 11  made case_1, hold_1, vch_1, bk_1
  step  12        charge the card: made ch_1
  killed          kill -9, before the agent could save what it was answered
  started again   it knows nothing, and sends the same calls again
  steps  1 to 11  replayed case_1, hold_1, vch_1, bk_1
  step  12        charge the card: replayed ch_1
  steps 13 to 20  made tkt_1, cxl_1, re_1, upg_1, bag_1, mail_1

What has come to pass at the API       without   with idemproxy
  step  3  open a case                     1           1
  step  7  hold a seat                     1           1
  step  8  give a meal voucher             1           1
  step 10  book the seat                   1           1
  step 12  charge the card                 2           1
  step 13  issue the ticket                1           1
  step 14  cancel the old booking          1           1
  step 16  refund the fee                  1           1
  step 17  upgrade the ticket              1           1
  step 18  add the bags                    1           1
  step 20  mail the new itinerary          1           1

The card was charged 102.00 usd without idemproxy, and 51.00 usd with it.
With idemproxy: exactly one effect for each of 11 steps.
This took SECONDS s.
"""
"""All that is printed to a file or a pipe."""

COMMAND: Final = (sys.executable, "-W", "error", "-m", "idemproxy", "demo")
SECONDS: Final = 50
ROOT: Final = Path(__file__).parents[2]
_CONTROLS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PROGRESS = re.compile(r"\r\x1b\[K(?:  step [^\r\n]*(?=\r\x1b\[K))?")


def timeless(text: str) -> str:
    """What was printed, without how long it took."""
    return re.sub(r"took [0-9.]+ s", "took SECONDS s", text)


def show(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run it to its end: the exit status, what it printed, and its complaints."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, **environment}
    )
    return done.returncode, timeless(done.stdout), done.stderr


def on_a_terminal(**environment: str) -> str:
    """Run it on a terminal; all that this was sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **environment}) as process:
        os.close(theirs)
        sent = b""
        with suppress(OSError):  # which is how a terminal ends
            while more := os.read(ours, 65_536):
                sent += more
        os.close(ours)
    assert 0 == process.returncode
    return timeless(sent.decode().replace("\r\n", "\n"))


def section(shown: str, heading: str) -> list[str]:
    """The lines under a heading."""
    return shown.partition(f"\n{heading}\n")[2].partition("\n\n")[0].splitlines()


def test_it_shows_a_second_charge_and_none(tmp_path: Path) -> None:
    """To a pipe it prints the same lines each time, whatever is configured here; no program and no file is left."""
    assert (0, SHOWN, "") == show(IDEMPROXY_CONFIG="/nowhere", IDEMPROXY_LISTEN="nowhere", TMPDIR=str(tmp_path))
    assert [] == list(tmp_path.iterdir())


def test_it_shows_a_state_machine_on_any_store() -> None:
    """The agent goes on with its checkpoint; a store that has seen the demo before shows it again."""
    with redis_server() as server:
        arguments = ("--store", server.url, "--resume", "state-machine", "--kill-at", "7")
        first, second = show(*arguments), show(*arguments)

    assert [
        "  steps  1 to  6  made case_1",
        "  step   7        hold a seat: made hold_1",
        "  killed          kill -9, before the agent could save what it was answered",
        "  started again   it asks idemproxy, which has steps 1 to 7",
        "  steps  8 to 20  made vch_1, bk_1, ch_1, tkt_1, cxl_1, re_1, upg_1, bag_1, mail_1",
    ] == section(first[1], "With idemproxy between the agent and the API")
    assert "  step  7  hold a seat                     2           1\n" in first[1]
    assert (0, "") == (first[0], first[2])
    assert first == second


def test_a_terminal_has_colours_and_progress() -> None:
    """The lines are those of a pipe; among them are colours, and the step that is being done, which is written over."""
    sent = on_a_terminal(TERM="xterm", NO_COLOR="")
    progress = [STEPS[number].action for number in range(len(STEPS)) if f"\x1b[K  step {number + 1:2}: " in sent]

    assert [step.action for step in STEPS] == progress
    assert "  step  12        \x1b[31mcharge the card: made ch_2, a second time\x1b[0m\n" in sent
    assert SHOWN == _CONTROLS.sub("", _PROGRESS.sub("", sent))


class Terminal(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.parametrize(
    ("environment", "sent"),
    [
        ({"TERM": "xterm", "NO_COLOR": ""}, "\r\x1b[K\n\r\x1b[K\x1b[1mBoth\x1b[0m\n\r\x1b[K  step 12: charge the card"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "\r\x1b[K\n\r\x1b[KBoth\n\r\x1b[K  step 12: charge the card"),
        ({"TERM": "dumb", "NO_COLOR": ""}, "\nBoth\n"),
    ],
    ids=["of our time", "without colours", "dumb"],
)
def test_a_terminal_is_sent_what_it_takes(environment: dict[str, str], sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR takes the colours away and nothing else; a terminal that only knows text gets nothing but text."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    timeline = Timeline(out, 12)
    timeline.heading("Both")
    timeline.step({"step": 12, "how": "written", "output": {"id": "ch_1"}})

    assert sent == out.getvalue()


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the children of a process are found in /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 1), (signal.SIGHUP, 129)])
def test_a_signal_leaves_nothing_behind(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """Ctrl-C, or a terminal that is closed, ends the demo, its programs, and the directory of its own."""
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as demo:
        assert demo.stdout is not None
        assert b"rebooks" in demo.stdout.readline()
        started = children(demo.pid)
        demo.send_signal(number)
        complaints = demo.communicate(timeout=SECONDS)[1]

    assert (status, b"") == (demo.returncode, complaints)
    assert 2 <= len(started)
    assert [] == [child for child in started if Path(f"/proc/{child}").exists()]
    assert [] == list(tmp_path.iterdir())


def test_a_store_that_is_not_there_is_told() -> None:
    """What the proxy says of it is passed on before anything is shown, and the exit status is 1."""
    status, shown, complaints = show("--store", "nonsense://")

    assert (1, "") == (status, shown)
    assert complaints.startswith("demo: idemproxy does not start:\n")
    assert "nonsense" in complaints


@pytest.mark.parametrize(
    ("kinds", "status", "words"),
    [
        (EFFECTS, 0, "exactly one effect for each of 11 steps"),
        ((*EFFECTS, "mail"), 1, "NOT exactly one effect for each step"),
        (EFFECTS[1:], 1, "NOT exactly one effect for each step"),
    ],
    ids=["each once", "one twice", "one never"],
)
def test_the_exit_status_is_the_ledgers_word(kinds: tuple[str, ...], status: int, words: str) -> None:
    """Anything but one effect for each step, with the proxy, is a failure."""
    out = io.StringIO()
    effects = [{"kind": kind, "resource": {"amount": 5100}} for kind in kinds]

    assert status == sum_up(Timeline(out, 12), [], effects, 1.0)
    assert f"With idemproxy: {words}.\n" in out.getvalue()


@pytest.mark.parametrize("step", ["0", "21", "charge"])
def test_the_step_must_be_one_of_the_trip(step: str) -> None:
    """A wrong `--kill-at` is a wrong argument, and nothing is started."""
    status, shown, complaints = show("--kill-at", step)

    assert (2, "") == (status, shown)
    assert complaints.endswith(f"argument --kill-at: {step!r} is not a step: 1 to 20\n")


def test_an_agent_starts_with_little() -> None:
    """What an agent imports is the standard library, without asyncio, and idemproxy.agent: it starts in well under 0.1 s."""
    listing = "import sys, idemproxy.demo.agent; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-S", "-c", listing]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True)
    imported = set(done.stdout.split())

    assert set() == imported - sys.stdlib_module_names - {"__main__", "idemproxy"}
    assert not imported & {"asyncio", "sqlite3", "unittest"}


def test_a_reader_that_has_seen_enough_is_no_news() -> None:
    """As with `| head -1`: exit status 1, and silence."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        complaints = running.stderr.read()

    assert (1, b"") == (running.returncode, complaints)


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (">/dev/full", "standard output cannot be written: No space left on device\n"),
        (">&-", "standard output is closed: there is nowhere to show it\n"),
    ],
)
def test_an_output_that_takes_nothing_is_told(output: str, complaint: str) -> None:
    """One line, exit status 1, no traceback."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {output}', "sh", *COMMAND], stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False
    )

    assert (1, complaint) == (done.returncode, done.stderr)
