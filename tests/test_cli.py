"""The commands: what they print where, how they end, and what they do not import."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from idemproxy import __version__
from idemproxy.cli import main

EXAMPLE = Path(__file__).parents[1] / "config" / "every-key.yaml"
NO_UPSTREAM = "idemproxy: there is no upstream: give --upstream URL, or describe one under `upstreams` in a file\n"


class Admin(HTTPServer):
    """An admin listener whose answers are told beforehand; the last status stays. `asked` are the paths that were requested."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.statuses = list(statuses)
        self.text = b"the reason"
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Admin)
        self.server.asked.append(self.path)
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()
        self.wfile.write(self.server.text)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def admin() -> Iterator[Admin]:
    """A proxy that is alive, and ready at the third question."""
    with Admin(503, 503, 200) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens: it was free a moment ago."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return f"127.0.0.1:{server.server_port}"


def test_check_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A good file: one line on standard output, exit status 0."""
    assert 0 == main(["check", "--config", str(EXAMPLE)])
    assert ("the configuration is fine (upstreams: 2, routes: 4, store: sqlite)\n", "") == capsys.readouterr()


def test_check_warns_of_what_is_seldom_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning stands on standard error with its path; the configuration is fine all the same."""
    file = tmp_path / "idemproxy.yaml"
    file.write_text("upstreams: {a: {url: 'http://127.0.0.1:9'}}\nroutes: [{name: a, upstream: a, on_unknown: retry}]\n")

    assert 0 == main(["check", "--config", str(file)])
    told = capsys.readouterr()
    assert ("the configuration is fine", "warning: routes[0].on_unknown", 1) == (
        told.out.partition(" (")[0],
        told.err.partition(": forwards ")[0],
        told.err.count("\n"),
    )


@pytest.mark.parametrize("command", ["run", "check", "print-config"])
def test_problems_end_with_2_and_on_standard_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that needs a configuration tells its problems in the same way; nothing goes to standard output."""
    assert 2 == main([command])
    assert ("", NO_UPSTREAM) == capsys.readouterr()


@pytest.mark.parametrize("command", ["run", "check", "print-config"])
def test_a_store_that_run_cannot_have_is_a_problem_of_the_configuration(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the store itself has against its URL is told by each command, and no server is asked for it."""
    store = "redis://127.0.0.1:1/0?socket_timeout=abc"

    assert 2 == main([command, "--upstream", "http://127.0.0.1:9", "--store", store])
    assert ("", "--store: has options that are not known: socket_timeout\n") == capsys.readouterr()


@pytest.mark.parametrize("store", ["redis://127.0.0.1:1/0", "unix:///nowhere/redis.sock"])
def test_check_does_not_reach_for_the_store(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration is right or wrong wherever it is looked at, also where the store is not."""
    assert 0 == main(["check", "--upstream", "http://127.0.0.1:9", "--store", store])
    assert "" == capsys.readouterr().err


def test_check_looks_for_the_directory_of_the_stores_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A SQLite file that could not be made is a problem, told where it is said; nothing is made for the look."""
    nowhere = tmp_path / "nowhere"

    assert 2 == main(["check", "--upstream", "http://127.0.0.1:9", "--store", f"sqlite:///{nowhere}/file.db"])
    told = f"--store: there is no directory {nowhere}: make it, or choose another place for the file\n"
    assert (("", told), []) == (capsys.readouterr(), list(tmp_path.iterdir()))


def test_check_looks_for_the_place_of_the_spool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A spool that could not be made is a warning, as it is of `run`; one that could be made is fine, and is not made."""
    file = tmp_path / "file"
    file.touch()
    flags = ["check", "--upstream", "http://127.0.0.1:9", "--store", f"sqlite:///{tmp_path}/file.db", "--spool"]

    assert (0, 0) == (main([*flags, str(file / "spool")]), main([*flags, str(tmp_path / "new" / "spool")]))
    lost = "without one, an answer that the store does not take is lost"
    told = f"warning: spool.directory: {file} is no directory: choose another place; {lost}\n"
    assert (told, [file]) == (capsys.readouterr().err, list(tmp_path.iterdir()))


def test_run_tells_the_same_warnings(tmp_path: Path) -> None:
    """What `check` warns of stands among the lines of a start."""
    file = tmp_path / "idemproxy.yaml"
    file.write_text(
        f"listen: 127.0.0.1:0\nadmin: {{listen: 127.0.0.1:0}}\nstore: {{url: 'memory://'}}\nspool: {{directory: '{tmp_path}'}}\n"
        "upstreams: {a: {url: 'http://127.0.0.1:9'}}\nroutes: [{name: a, upstream: a, on_unknown: retry}]\n"
    )
    command = [sys.executable, "-m", "idemproxy", "run", "--config", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        told = next((line for line in run.stderr if "routes[0].on_unknown" in line), "")
        run.terminate()

    assert ("WARNING", 1) == (
        next((word for word in told.split() if word.isupper()), ""),
        told.count("routes[0].on_unknown: forwards"),
    )


def test_flags_reach_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """Each flag of a command stands in the configuration that it prints."""
    flags = "--upstream a=http://127.0.0.1:1 --upstream b=http://127.0.0.1:2 --listen 127.0.0.1:3 --admin-listen 127.0.0.1:4"

    flags += " --store sqlite:///a.db --spool kept --workers 3 --access-log off --log-format json"

    assert 0 == main(["print-config", *flags.split()])

    printed = yaml.safe_load(capsys.readouterr().out)
    assert (["a", "b"], "127.0.0.1:3", "127.0.0.1:4", "sqlite:///a.db", "kept", 3, False, "json") == (
        list(printed["upstreams"]),
        printed["listen"],
        printed["admin"]["listen"],
        printed["store"]["url"],
        printed["spool"]["directory"],
        printed["workers"],
        printed["access_log"],
        printed["log_format"],
    )


def test_the_environment_reaches_the_configuration(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a flag, its variable is read."""
    monkeypatch.setenv("IDEMPROXY_CONFIG", str(EXAMPLE))

    assert 0 == main(["check"])
    assert "the configuration is fine" == capsys.readouterr().out.partition(" (")[0]


def test_schema_is_the_committed_one(capsys: pytest.CaptureFixture[str]) -> None:
    """What the command prints is what editors are pointed to."""
    assert 0 == main(["schema"])
    assert EXAMPLE.with_name("schema.json").read_text("utf-8") == capsys.readouterr().out


@pytest.mark.parametrize("spelling", ["version", "--version"])
def test_version_is_the_packages(spelling: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The version comes from the package itself, whether it is asked for as a command or as a flag."""
    assert 0 == main([spelling])
    assert f"idemproxy {__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["serve"], ["run", "--listn", "x"], ["wait", "--timeout", "30"], ["wait", "--admin", "x"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No command, an unknown one, an unknown flag or an impossible value: usage on standard error, exit status 2."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert (2, "usage: idemproxy") == (caught.value.code, capsys.readouterr().err[:16])


def test_wait_returns_when_the_proxy_is_ready(admin: Admin) -> None:
    """It asks until the answer is 200, and then no more."""
    assert 0 == main(["wait", "--admin", f"http://{admin.address}/", "--timeout", "50s"])
    assert ["/readyz", "/readyz", "/readyz"] == admin.asked


def test_wait_tells_the_last_reason_at_the_deadline(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not ready in time: exit status 1 and the proxy's own reason."""
    assert 1 == main(["wait", "--admin", admin.address, "--timeout", "0s"])
    assert ("", f"not ready: http://{admin.address}/readyz: 503 the reason\n") == capsys.readouterr()


def test_wait_gives_up_on_nobody(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listening is a reason like another."""
    assert 1 == main(["wait", "--admin", nobody, "--timeout", "0s"])
    assert f"not ready: http://{nobody}/readyz: [Errno 111] Connection refused\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["wait", "--timeout", "0s"], "not ready: http://a..b:80/readyz: 'a..b' is not the name of a host\n"),
        (["healthcheck"], "not healthy: http://a..b:80/livez: 'a..b' is not the name of a host\n"),
        (["records", "list"], "http://a..b:80: 'a..b' is not the name of a host; see --admin\n"),
    ],
    ids=["wait", "healthcheck", "records"],
)
def test_what_is_no_host_is_told_in_a_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that cannot be looked up at all is a reason like another."""
    assert 1 == main([*arguments, "--admin", "a..b:80"])
    assert ("", told) == capsys.readouterr()


@pytest.mark.parametrize("command", ["wait", "healthcheck"])
def test_an_admin_listener_with_tls_is_wrong_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """https:// is not taken for a host's name: the listener has no TLS."""
    with pytest.raises(SystemExit) as caught:
        main([command, "--admin", "https://127.0.0.1:8081"])

    reason = "'https://127.0.0.1:8081': the admin listener speaks HTTP without TLS: write http://host:port"
    assert (2, f"idemproxy {command}: error: argument --admin: {reason}") == (
        caught.value.code,
        capsys.readouterr().err.splitlines()[-1],
    )


@pytest.mark.parametrize("is_watched", [True, False])
def test_wait_shows_its_progress_to_a_person(is_watched: bool, nobody: str) -> None:  # noqa: FBT001 - a case of two
    """On a terminal the reason stands there while it waits, once; in a script there is the last word only."""
    ours, theirs = pty.openpty() if is_watched else os.pipe()
    with open(ours, "rb", buffering=0) as shown, open(theirs, "wb", buffering=0) as standard_error:  # noqa: PTH123 - descriptors
        command = [sys.executable, "-m", "idemproxy", "wait", "--timeout", "300ms", "--admin", nobody]
        done = subprocess.run(command, stderr=standard_error, check=False, timeout=30)
        told = shown.read(10_000).decode().replace("\r\n", "\n")

    reason = f"http://{nobody}/readyz: [Errno 111] Connection refused\n"
    assert (1, f"waiting: {reason}" * is_watched + f"not ready: {reason}") == (done.returncode, told)


@pytest.mark.parametrize(
    "command", ["version", "schema", "check --config", "print-config --config", "records list --json --admin"]
)
def test_a_full_disk_under_standard_output_is_told(command: str, admin: Admin) -> None:
    """What could not be written was not done: one line, exit status 1, no traceback."""
    admin.statuses, admin.text = [200], b'{"records": [{"id": "shared/payments/00"}], "next": null}'
    last = {"--config": [str(EXAMPLE)], "--admin": [admin.address]}.get(command.rsplit(maxsplit=1)[-1], [])
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "idemproxy", *command.split(), *last],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=30,
        )  # fmt: skip

    assert (1, "standard output cannot be written: No space left on device\n") == (done.returncode, done.stderr)


def test_a_reader_that_has_seen_enough_is_no_news() -> None:
    """As with `idemproxy schema | head`: exit status 1, and silence."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as pipe:  # noqa: PTH123 - a descriptor
        done = subprocess.run(
            [sys.executable, "-m", "idemproxy", "schema"], stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=30
        )

    assert (1, b"") == (done.returncode, done.stderr)


def test_healthcheck_asks_once_whether_the_proxy_lives(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One question to the address that the environment gives the proxy, which on loopback is also that of 0.0.0.0."""
    monkeypatch.setenv("IDEMPROXY_ADMIN_LISTEN", admin.address.replace("127.0.0.1", "0.0.0.0"))  # noqa: S104

    assert 1 == main(["healthcheck"])
    assert ["/livez"] == admin.asked
    assert f"not healthy: http://{admin.address}/livez: 503 the reason\n" == capsys.readouterr().err


def test_healthcheck_finds_the_proxy_of_a_file(
    admin: Admin, nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address stands in the file that the environment names, with its variables; the variable for the address comes first."""
    admin.statuses = [200]
    host, _, port = admin.address.partition(":")
    (tmp_path / "idemproxy.yaml").write_text(f"admin: {{listen: '{host}:${{ADMIN_PORT:-1}}'}}")
    monkeypatch.setenv("IDEMPROXY_CONFIG", str(tmp_path / "idemproxy.yaml"))
    monkeypatch.setenv("ADMIN_PORT", port)

    found = main(["healthcheck"])
    monkeypatch.setenv("IDEMPROXY_ADMIN_LISTEN", nobody)

    assert (0, 1, ["/livez"]) == (found, main(["healthcheck"]), admin.asked)


@pytest.mark.parametrize("command", ["healthcheck", "wait --timeout 0s", "records list"])
def test_a_configuration_that_cannot_be_read_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other proxy is asked in place of the one that was meant."""
    file = tmp_path / "missing.yaml"
    monkeypatch.setenv("IDEMPROXY_CONFIG", str(file))

    with pytest.raises(SystemExit) as ended:
        main(command.split())

    assert 2 == ended.value.code
    assert f"IDEMPROXY_CONFIG tells no address: {file}:1: there is no such file: check the path" in capsys.readouterr().err


def test_healthcheck_is_fine_with_200(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """A living proxy: silence and exit status 0."""
    admin.statuses = [200]

    assert 0 == main(["healthcheck", "--admin", admin.address])
    assert ("", "") == capsys.readouterr()


def test_healthcheck_fails_without_a_proxy(nobody: str) -> None:
    """Nobody there: exit status 1."""
    assert 1 == main(["healthcheck", "--admin", nobody])


@pytest.mark.parametrize("command", ["version", "healthcheck", "wait --timeout 0s"])
def test_small_commands_import_nothing_heavy(command: str, nobody: str) -> None:
    """What an orchestrator runs every few seconds starts neither a web framework nor a validator."""
    program = (
        "import sys; from idemproxy.cli import main; main(sys.argv[1:]); "
        "print(*sorted({'aiohttp', 'asyncio', 'pydantic', 'redis', 'yaml'} & set(sys.modules)))"
    )
    admin = [] if command == "version" else ["--admin", nobody]

    done = subprocess.run(
        [sys.executable, "-c", program, *command.split(), *admin], capture_output=True, text=True, check=True, timeout=30
    )

    assert "" == done.stdout.splitlines()[-1]


def test_demo_api_has_its_own_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample upstream's flags are passed on to it."""
    with pytest.raises(SystemExit) as caught:
        main(["demo-api", "--help"])

    assert 0 == caught.value.code
    assert (
        "usage: idemproxy demo-api [-h] [--listen HOST:PORT] [--ledger FILE]\n"
        == capsys.readouterr().out.partition("\n\n")[0] + "\n"
    )
