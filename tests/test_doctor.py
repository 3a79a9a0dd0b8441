"""The command `doctor`: a table that a person reads, and an exit status that a script reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from redis import Redis

from idemproxy.cli import main
from tests.servers import redis_server

FINE: Final = 0
UNFIT: Final = 1
WRONG: Final = 2


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal folds a line, and no setting comes from outside."""
    monkeypatch.setenv("COLUMNS", "1000")
    for name in ("IDEMPROXY_CONFIG", "IDEMPROXY_STORE", "IDEMPROXY_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)


def configured(directory: Path, store: dict[str, Any]) -> str:
    """A file that says what store there is."""
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump({"store": store, "upstreams": {"api": {"url": "http://127.0.0.1:9"}}}))
    return str(file)


def levels(printed: str) -> dict[str, str]:
    """The level of each finding, by what was looked at: the columns are two spaces apart."""
    rows = [[cell for cell in line.split("  ") if cell] for line in printed.splitlines()[:-1]]
    return {what.strip(): level.strip() for level, what, _ in rows}


def test_a_safe_server_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    """With the store alone to go by, every finding has a line, the last one sums up, and the exit status is 0."""
    with redis_server(appendonly=True) as server:
        status = main(["doctor", "--store", server.url])
    printed, complaints = capsys.readouterr()

    what = ["write", "version", "maxmemory-policy", "persistence", "replication", "clock"]
    assert (FINE, "") == (status, complaints)
    assert dict.fromkeys(what, "ok") == levels(printed)
    assert printed.endswith(f"\nredis://127.0.0.1:{server.port}/0: no errors\n")


def test_an_error_ends_with_1_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that may evict records is an error, with what follows from it and what to do."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        status = main(["doctor", "--store", server.url])
    printed = capsys.readouterr().out

    assert (UNFIT, "error") == (status, levels(printed)["maxmemory-policy"])
    assert "its retry would run it again; set maxmemory-policy to noeviction" in printed
    assert printed.endswith("/0: 1 error\n")


def test_an_accepted_risk_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `accept_risk: [eviction]` the same server is told as accepted, and the exit status is 0."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        status = main(["doctor", "--config", configured(tmp_path, {"url": server.url, "accept_risk": ["eviction"]})])

    assert (FINE, "accepted") == (status, levels(capsys.readouterr().out)["maxmemory-policy"])


def test_what_is_asked_of_a_write_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replicas that are asked for and are not there are told."""
    with redis_server(appendonly=True) as server:
        settings = {"url": server.url, "durability": {"replicas": 1, "timeout": "100ms"}}
        main(["doctor", "--config", configured(tmp_path, settings)])
    printed = capsys.readouterr().out

    assert "warning" == levels(printed)["replication"]
    assert "0 of the 1 replicas" in printed


def test_a_full_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that answers and takes no write is found out by a write, and the rest is looked at all the same."""
    with redis_server(appendonly=True) as server, Redis(port=server.port, protocol=2) as client:
        client.config_set("maxmemory", "1")
        status = main(["doctor", "--store", server.url])
    printed = capsys.readouterr().out

    assert (UNFIT, "error", "ok") == (status, levels(printed)["write"], levels(printed)["maxmemory-policy"])
    assert "raise maxmemory" in printed


def test_a_server_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be looked at there: that is the one error."""
    with redis_server() as server:
        url = server.url
    status = main(["doctor", "--store", url])
    printed = capsys.readouterr().out

    assert (UNFIT, {"write": "error"}) == (status, levels(printed))
    assert "see that the server runs" in printed


def test_a_password_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the table nor its last line holds what is secret in a URL."""
    with redis_server(appendonly=True, requirepass="open sesame") as server:
        status = main(["doctor", "--store", server.url])
    printed = capsys.readouterr().out

    assert (FINE, False) == (status, "sesame" in printed)


def test_a_file_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is there is opened as a run does."""
    url = f"sqlite:///{tmp_path}/records.db"
    (tmp_path / "records.db").touch(mode=0o600)
    status = main(["doctor", "--store", url])
    told = levels(capsys.readouterr().out)

    assert (FINE, "ok", "ok", "ok") == (status, told["write"], told["file"], told["journal"])


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever makes the file owns it, so that is left to the run."""
    status = main(["doctor", "--store", f"sqlite:///{tmp_path}/records.db"])

    assert (FINE, True) == (status, "is not there yet" in capsys.readouterr().out)
    assert [] == list(tmp_path.iterdir())


def test_a_file_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What keeps a run from starting is an error here too."""
    (tmp_path / "records.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    status = main(["doctor", "--store", f"sqlite:///{tmp_path}/records.db"])
    printed = capsys.readouterr().out

    assert (UNFIT, {"start": "error"}) == (status, levels(printed))
    assert "it is not a SQLite database" in printed


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file cannot be made where there is no directory: which one, and what to do, is told, and nothing is said of its disk."""
    status = main(["doctor", "--store", f"sqlite:///{tmp_path}/missing/records.db"])
    printed = capsys.readouterr().out

    assert (UNFIT, {"version": "ok", "file": "error"}) == (status, levels(printed))
    assert f"there is no directory {tmp_path}/missing: make it, or choose another place for the file in store.url\n" in printed


def test_a_store_in_memory_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """It is for tests, and no error."""
    status = main(["doctor", "--store", "memory://"])

    assert (FINE, {"write": "ok", "memory": "warning"}) == (status, levels(capsys.readouterr().out))


def test_a_wrong_configuration_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What no command could use is told on standard error, as every command does."""
    statuses = [
        main(["doctor", "--store", "bogus://"]),
        main(["doctor", "--config", configured(tmp_path, {"accept_risk": ["thunder"]})]),
    ]
    printed, complaints = capsys.readouterr()

    assert ([WRONG, WRONG], "") == (statuses, printed)
    assert "bogus" in complaints
    assert "store.accept_risk" in complaints


def test_a_terminal_gets_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Long texts are folded under their own column."""
    monkeypatch.setenv("COLUMNS", "80")
    with redis_server(maxmemory_policy="allkeys-lru") as server:
        main(["doctor", "--store", server.url])
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("error"))
    column = lines[at].index("allkeys-lru")

    assert [] == [line for line in lines[:-1] if len(line) > 80]
    assert (" " * column, True) == (lines[at + 1][:column], lines[at + 1][column] != " ")
