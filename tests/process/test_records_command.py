"""The command `records` against a running proxy: the ways out of an unknown outcome, and what it says where there is none."""

from __future__ import annotations

import getpass
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Final

import pytest

from idemproxy import cli_records
from idemproxy.cli import main
from tests.process.asking import Answer, ask, eventually, problem
from tests.processes import DemoApi, Program, demo_api, proxy

TOKEN: Final = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def ledger() -> Iterator[DemoApi]:
    """The sample upstream, which keeps a ledger."""
    with demo_api() as running:
        yield running


@pytest.fixture(scope="module", name="running")
def fixture_running(ledger: DemoApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A proxy on SQLite before two upstreams, which are one."""
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/records.db"
    with proxy("--upstream", f"one={ledger.url}", "--upstream", f"two={ledger.url}", "--store", store) as running:
        yield running


@pytest.fixture(autouse=True)
def default_admin(running: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's admin listener is the one that is asked, unless a flag says otherwise."""
    monkeypatch.setenv("IDEMPROXY_ADMIN_LISTEN", running.admin.removeprefix("http://"))
    monkeypatch.delenv("IDEMPROXY_ADMIN_TOKEN_FILE", raising=False)


def charge(running: Program, key: str, upstream: str = "one", fault: str = "") -> Answer:
    """A charge, which may meet a fault."""
    return ask(running.url, key, target=f"/{upstream}/charges", fields=[("Demo-Fault", fault)] if fault else [])


def hashed(key: str) -> str:
    """The hash under which a key's record is known."""
    return sha256(key.encode()).hexdigest()


def test_resolved_as_completed_is_replayed(
    running: Program, ledger: DemoApi, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer of 500 makes a record that is listed as unknown; resolved, its answer is what the client's retry gets."""
    charges = ledger.charges()
    failed, held = charge(running, key, fault="status_after=500"), charge(running, key)
    short = hashed(key)[:12]

    assert 0 == main(["records", "list"])
    heading, *rows = capsys.readouterr().out.splitlines()
    assert ["KEY", "PHASE", "SCOPE", "UPSTREAM", "ROUTE", "STATUS", "SINCE"] == heading.split()
    assert [[short, "unknown", "shared", "one", "one", "500"]] == [row.split()[:6] for row in rows if row.startswith(short)]

    answer = ["--status", "201", "--header", "Location: /charges/ch_1", "--header", "X-Note:a:b", "--body", '{"id": "ch_1"}']
    assert 0 == main(["records", "resolve", short, "--as", "completed", *answer, "--why", "seen in the ledger"])
    acted = capsys.readouterr()
    retried = charge(running, key)

    assert ((500, "unknown"), problem(409, "outcome-unknown", "unknown", "after_check")) == (
        (failed.status, failed.told),
        held.problem,
    )
    assert re.fullmatch(
        rf"shared/one/{hashed(key)}: unknown since \S+Z, fence [0-9]+\n"
        r"resolved: completed with status 201; that is what retries get\n",
        acted.out,
    )
    assert (201, "replayed", b'{"id": "ch_1"}') == (retried.status, retried.told, retried.body)
    assert ("/charges/ch_1", "a:b") == (retried.field("Location"), retried.field("X-Note"))
    assert charges + 1 == ledger.charges()


def test_resolved_as_not_executed_is_forwarded(
    running: Program, ledger: DemoApi, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the upstream did nothing, the record is released: the retry is carried out, and who decided stays known."""
    charges = ledger.charges()
    charge(running, key, fault="status_before=502")
    decision = ["--as", "not-executed", "--why", "not in the ledger", "--who", "ann"]

    assert 0 == main(["records", "resolve", hashed(key)[:8], *decision])
    retried, again = charge(running, key), charge(running, key)
    capsys.readouterr()
    assert 0 == main(["records", "show", hashed(key)])

    acts = capsys.readouterr().out.partition("\nacts")[2]
    assert "by ann: not in the ledger (was unknown, fence " in acts
    assert ((201, "executed"), (201, "replayed")) == ((retried.status, retried.told), (again.status, again.told))
    assert charges + 1 == ledger.charges()
    line = f"INFO resolve_not_executed shared/one/{hashed(key)} by ann: not in the ledger"
    eventually(lambda: [line] == [told.strip() for told in running.told if hashed(key) in told])


def test_a_forgotten_key_is_new(running: Program, ledger: DemoApi, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A forgotten record leaves its trail under its whole id, with the login name of the one who forgot it."""
    charges = ledger.charges()
    charge(running, key)

    assert 0 == main(["records", "forget", f"shared/one/{hashed(key)}", "--why", "a test"])
    capsys.readouterr()
    assert 0 == main(["records", "show", f"shared/one/{hashed(key)}"])
    shown = capsys.readouterr().out
    again = charge(running, key)

    assert f"id           shared/one/{hashed(key)}\nphase        absent\nacts         " == re.split(r"20[0-9]{2}-", shown)[0]
    assert f" forget by {getpass.getuser()}: a test (was completed, fence " in shown
    assert "executed" == again.told
    assert charges + 2 == ledger.charges()


def test_show_tells_all_and_steers_no_terminal(
    running: Program, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every fact has its line, the answer follows, and control characters in it are shown as escapes."""
    charge(running, key, fault="status_after=500")
    body = tmp_path / "body"
    body.write_bytes(b"first\r\n\x1b[2Jsecond\n")
    answer = ["--as", "completed", "--status", "299", "--header", "X-A: 1", "--header", "X-A: 2", "--body-file", str(body)]
    assert 0 == main(["records", "resolve", hashed(key), *answer, "--why", "a test"])
    capsys.readouterr()

    assert 0 == main(["records", "show", hashed(key)])

    lines = capsys.readouterr().out.splitlines()
    labels = [line[:13].strip() for line in lines]
    assert ["id", "phase", "route", "fence", "status", "source", "claimed_at", "settled_at", "expires_at", "forget_at"] == labels[
        :10
    ]
    assert ["answer", "", "", "", "", "", "acts"] == labels[10:]
    assert ["299", "X-A: 1", "X-A: 2", "", "first\\r", "\\x1b[2Jsecond"] == [line[13:] for line in lines[10:16]]


def test_json_has_one_object_a_line(
    running: Program, key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For programs, every record of every page is one JSON object, as the admin API has it."""
    for number in range(3):
        charge(running, f"{key}-{number}")
    monkeypatch.setattr(cli_records, "_PAGE", 1)

    assert 0 == main(["records", "list", "--phase", "completed", "--json"])

    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {hashed(f"{key}-{number}") for number in range(3)} <= {record["key"] for record in records}
    assert {"completed"} == {record["phase"] for record in records}


class Repeating(BaseHTTPRequestHandler):
    """An admin listener whose second page repeats the record of the first one, as a store may while it changes."""

    def do_GET(self) -> None:
        """Give one of the two pages."""
        record = {"id": "shared/one/k", "key": "k", "claimed_at": "2026-01-01T12:00:00.000000Z"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"records": [record], "next": None if "cursor=1" in self.path else "1"}).encode())

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


def test_a_record_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A record that a store lists twice is one record."""
    with HTTPServer(("127.0.0.1", 0), Repeating) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        status = main(["records", "list", "--json", "--admin", f"127.0.0.1:{server.server_port}"])
        server.shutdown()
        thread.join()

    assert (0, ["shared/one/k"]) == (status, [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()])


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to list is no failure, and nothing that a program would read as a record."""
    assert 0 == main(["records", "list", "--phase", "expired"])
    assert ("", "no record is expired\n") == capsys.readouterr()


def test_a_fence_of_before_changes_nothing(running: Program, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --fence the act is on what was seen then; the refusal tells the present phase and fence."""
    charge(running, key, fault="status_after=500")

    assert 1 == main(["records", "resolve", hashed(key), "--as", "not-executed", "--why", "a test", "--fence", "1"])

    expected = (
        r"The record has another fence: its phase is now unknown and its fence [0-9]+, so look at it again before you act\.\n"
    )
    printed = capsys.readouterr()
    assert "" == printed.out
    assert re.fullmatch(expected, printed.err)


def test_an_ambiguous_name_is_not_guessed(running: Program, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One key at two upstreams has one hash: both ids are named, and the whole id decides."""
    for upstream in ("one", "two"):
        charge(running, key, upstream, "status_after=500")
    decision = ["--as", "not-executed", "--why", "a test"]

    assert 1 == main(["records", "resolve", hashed(key), *decision])
    expected = [
        f"2 records have a key whose hash begins with {hashed(key)}: give the whole id",
        f"  shared/one/{hashed(key)}",
        f"  shared/two/{hashed(key)}",
    ]
    assert expected == capsys.readouterr().err.splitlines()
    assert 0 == main(["records", "resolve", f"shared/two/{hashed(key)}", *decision])


@pytest.mark.parametrize("verb", ["show", "resolve", "forget"])
def test_a_name_of_nothing_fails(verb: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a beginning nor a whole id of no record is an act on something else."""
    how = {"show": [], "resolve": ["--as", "not-executed", "--why", "a test"], "forget": ["--why", "a test"]}[verb]
    which = "unknown record" if verb == "resolve" else "record"

    assert 1 == main(["records", verb, hashed(key)[:20], *how])
    assert (
        f"there is no {which} whose key's hash begins with {hashed(key)[:20]}: see `idemproxy records list --phase all`\n"
        == capsys.readouterr().err
    )
    assert 1 == main(["records", verb, f"shared/one/{hashed(key)}", *how])
    assert "There is no record of this id, and no act on one: its key is free.\n" == capsys.readouterr().err


def test_a_token_is_asked_for(ledger: DemoApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the proxy has a token, the command fails without it, says how to give it, and works with it."""
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text(f"{TOKEN}\n")
    wrong.write_text(TOKEN[::-1])
    store = f"sqlite:///{tmp_path}/records.db"
    with proxy("--upstream", ledger.url, "--store", store, "--admin-token-file", str(token)) as guarded:
        listing = ["records", "list", "--phase", "all", "--admin", guarded.admin]
        statuses = [
            main([*listing, *flag]) for flag in ([], ["--admin-token-file", str(wrong)], ["--admin-token-file", str(token)])
        ]

    assert [1, 1, 0] == statuses
    assert [
        "Send the token of admin.token_file, as Authorization: Bearer TOKEN. Here: --admin-token-file FILE.",
        "This token is not the one of admin.token_file. Here: --admin-token-file FILE.",
        "there are no records",
    ] == capsys.readouterr().err.splitlines()


def test_nobody_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """An address at which nobody listens: exit status 1, and which flag to look at."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        nobody = f"127.0.0.1:{server.server_port}"

    assert 1 == main(["records", "list", "--admin", nobody])
    assert (
        f"http://{nobody} does not answer: [Errno 111] Connection refused; --admin names the proxy's admin listener\n"
        == capsys.readouterr().err
    )


def test_another_server_is_told(running: Program, ledger: DemoApi, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is no admin listener is not believed."""
    assert 1 == main(["records", "list", "--admin", ledger.url])
    assert f"{ledger.url} is not the admin listener of a proxy (status 404): see --admin\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: VERB"),
        (["drop"], "invalid choice: 'drop'"),
        (["list", "--phase", "lost"], "invalid choice: 'lost'"),
        (["show", "abc"], "'abc' is neither scope/upstream/hash nor 8 or more characters of a key's hash"),
        (["show", "shared//abc"], "'shared//abc' is neither"),
        (["forget", "0123456789"], "required: --why"),
        (["resolve", "0123456789", "--why", "x"], "required: --as"),
        (["resolve", "0123456789", "--why", "x", "--as", "completed"], "--as completed needs --status"),
        (["resolve", "0123456789", "--why", "x", "--as", "not-executed", "--body", ""], "--body goes with --as completed only"),
        (
            ["resolve", "0123456789", "--why", "x", "--as", "completed", "--status", "200", "--header", "X"],
            "'X' is not 'Name: value'",
        ),
        (
            ["resolve", "0123456789", "--why", "x", "--as", "completed", "--body", "a", "--body-file", __file__],
            "not allowed with",
        ),
        (["list", "--admin-token-file", "/nowhere/token"], "/nowhere/token cannot be read: No such file or directory"),
        (["list", "--admin-token-file", __file__], "does not hold one token"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be meant is told before anyone is asked."""
    with pytest.raises(SystemExit) as caught:
        main(["records", *arguments])

    printed = capsys.readouterr()
    assert (2, "", True) == (caught.value.code, printed.out, said in printed.err)


def test_the_command_imports_nothing_heavy() -> None:
    """It starts neither a web framework nor a validator, nor any library beside Python's own."""
    program = (
        "import sys; from idemproxy.cli import main; main(sys.argv[1:]); "
        "print(*sorted({'aiohttp', 'asyncio', 'orjson', 'pydantic', 'redis', 'yaml'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "records", "list"], capture_output=True, text=True, check=True, timeout=30
    )

    assert "" == done.stdout.splitlines()[-1]
