"""What the store did not take waits in the spool: operators see it, and it is written when the store returns, by an heir too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from idemproxy.config.settings import StoreSettings
from idemproxy.store.choice import store_name
from tests.process.asking import LONGEST, Answer, ask, configuration, eventually, problem, samples
from tests.process.points import Place
from tests.processes import Program, proxy
from tests.wire.upstream import Line, Upstream

UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
PATIENCE: Final = 30
EVERYTHING: Final = b"EVALSHA"
ANSWERS: Final = {
    b"/completed": b"HTTP/1.1 201 Created\r\nLocation: /charges/1\r\nContent-Length: 8\r\n\r\ncharge_1",
    b"/refused": b"HTTP/1.1 429 Slow Down\r\nContent-Length: 8\r\n\r\nnot now!",
    b"/failed": b"HTTP/1.1 500 Oh\r\nContent-Length: 8\r\n\r\nwho ...?",
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A scripted upstream."""
    scripted = Upstream()
    yield scripted
    scripted.close()


@pytest.fixture(autouse=True)
def afresh(place: Place, upstream: Upstream) -> Iterator[None]:
    """Nobody is held when a test is over."""
    yield
    place.go_on()
    upstream.hang_up()


def arguments(directory: Path, upstream: Upstream, store: str) -> tuple[str, ...]:
    """Of a proxy with the shortest lease, whose spool outlives it."""
    settings = {"upstreams": {"api": {"url": upstream.url}}, "defaults": {"lease": "3s"}, "store": {"url": store}}
    return (*configuration(directory, settings), "--spool", str(directory / "spool"))


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


def is_unrecorded(answer: Answer) -> bool:
    """Whether the answer is marked as one that the store has not taken."""
    return (answer.field("Idempotency-Status") or "").endswith("; unrecorded")


def waiting(running: Program) -> tuple[float, float]:
    """How many endings wait in the spool, and how many bytes of answers."""
    found = samples(running.admin)
    return found["idemproxy_spool_entries", ()], found["idemproxy_spool_bytes", ()]


def spool_line(running: Program) -> str:
    """What `/readyz?verbose` says of the spool."""
    connection = HTTPConnection(running.admin.removeprefix("http://"), timeout=LONGEST)
    connection.request("GET", "/readyz?verbose")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(line for line in lines if " spool" in line)


def answers_when(away: threading.Event) -> Callable[[Line], None]:
    """An upstream that answers when the event has come."""

    def answers_late(line: Line) -> None:
        target = line.request().start.split()[1]
        away.wait(PATIENCE)
        line.send(ANSWERS[target])

    return answers_late


def out_of_store(place: Place, upstream: Upstream, running: Program, *asked: tuple[str, str]) -> list[Answer]:
    """The answers to requests, each a key and a target, whose store goes away while the upstream works on them."""
    upstream.plays(answers_when(away := threading.Event()))
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = [pool.submit(ask, running.url, key, target=target) for key, target in asked]
        upstream.wait_for_requests(len(asked))
        place.stop_before(EVERYTHING)
        away.set()
        return [answer.result() for answer in answers]


def test_every_ending_is_written_when_the_store_returns(place: Place, upstream: Upstream, key: str, tmp_path: Path) -> None:
    """The callers have real answers, marked; the spool shows; then one is replayed, one is unknown, one is free again."""
    keys = [f"{key}{target.decode().replace('/', '-')}" for target in ANSWERS]
    asked = list(zip(keys, [target.decode() for target in ANSWERS], strict=True))
    with proxy(*arguments(tmp_path, upstream, place.url)) as running:
        first = out_of_store(place, upstream, running, *asked)
        (entries, size), line = waiting(running), spool_line(running)
        place.go_on()
        eventually(lambda: waiting(running) == (0, 0))
        eventually(lambda: spool_line(running) == "[+] spool ok")  # what the checks have found stands for a second
        second = [ask(running.url, name, target=target) for name, target in asked]

    completed, refused, failed = first
    assert [(201, b"charge_1", True), (429, b"not now!", True), (500, b"who ...?", True)] == [
        (answer.status, answer.body, is_unrecorded(answer)) for answer in first
    ]
    assert ["executed", "unknown"] == [completed.told, failed.told]
    assert (3, True) == (entries, size > len(b"charge_1"))
    assert "[+] spool: endings that wait for the store: 3" == line
    replayed, freed, held = second
    assert ((201, "replayed", completed.body), "/charges/1") == (told(replayed), replayed.field("Location"))
    assert (429, refused.body) == (freed.status, freed.body)
    assert UNKNOWN == held.problem
    assert 4 == len(upstream.requests)


def test_an_heir_writes_what_its_predecessor_could_not(place: Place, upstream: Upstream, key: str, tmp_path: Path) -> None:
    """Killed with an answer in its spool; until the heir comes others see in progress, then unknown, and never a free key."""
    run = arguments(tmp_path, upstream, place.url)
    with proxy("--upstream", f"api={upstream.url}", "--store", place.aside) as stranger:
        with proxy(*run) as killed:
            (first,) = out_of_store(place, upstream, killed, (key, "/completed"))
            killed.kill()
        place.go_on()
        meanwhile = [ask(stranger.url, key, target="/completed", wait=wait) for wait in (0, PATIENCE)]
        with proxy(*run) as heir:
            eventually(lambda: ask(stranger.url, key, target="/completed").told == "replayed")
            after = [ask(each.url, key, target="/completed") for each in (heir, stranger)]
            eventually(lambda: waiting(heir) == (0, 0))

    assert ((201, "executed", b"charge_1"), True) == (told(first), is_unrecorded(first))
    assert {"in-progress", "unknown"} >= {answer.told for answer in meanwhile}
    assert UNKNOWN == meanwhile[-1].problem
    assert [((201, "replayed", b"charge_1"), "/charges/1")] * 2 == [(told(each), each.field("Location")) for each in after]
    assert 1 == len(upstream.requests)


def test_one_heir_writes_what_two_could_not(place: Place, upstream: Upstream, key: str, tmp_path: Path) -> None:
    """Two proxies on one spool are killed, each with an answer in its slot: the one that starts again writes both."""
    run = arguments(tmp_path, upstream, place.url)
    keys = [f"{key}-0", f"{key}-1"]
    upstream.plays(answers_when(away := threading.Event()))
    with proxy(*run) as one, proxy(*run) as two, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, each.url, name, target="/completed") for each, name in zip((one, two), keys, strict=True)]
        upstream.wait_for_requests(2)
        place.stop_before(EVERYTHING)
        away.set()
        first = [answer.result() for answer in asked]
        one.kill()
        two.kill()
    place.go_on()
    with proxy(*run) as heir:
        eventually(lambda: {"replayed"} == {ask(heir.url, name, target="/completed", wait=0).told for name in keys})
        eventually(lambda: waiting(heir) == (0, 0))
        after = [ask(heir.url, name, target="/completed") for name in keys]

    assert [((201, "executed", b"charge_1"), True)] * 2 == [(told(each), is_unrecorded(each)) for each in first]
    assert [(201, "replayed", b"charge_1")] * 2 == [told(each) for each in after]
    assert 2 == len(upstream.requests)


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_neighbour_writes_what_a_killed_one_could_not(place: Place, upstream: Upstream, key: str, tmp_path: Path) -> None:
    """Of two proxies on one spool one is killed with an answer in its slot: the other, which lives on, writes it."""
    run = arguments(tmp_path, upstream, place.url)
    with proxy(*run) as neighbour:
        with proxy(*run) as killed:
            (first,) = out_of_store(place, upstream, killed, (key, "/completed"))
            killed.kill()
        place.go_on()
        eventually(lambda: ask(neighbour.url, key, target="/completed", wait=0).told == "replayed")
        after = ask(neighbour.url, key, target="/completed")

    assert ((201, "executed", b"charge_1"), True) == (told(first), is_unrecorded(first))
    assert (201, "replayed", b"charge_1") == told(after)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://cache", "redis://user:secret@CACHE:6379/0", True),
        ("redis://cache/3", "redis://cache:6379/?db=3", True),
        ("redis://cache/3", "redis://cache/0?db=3", True),  # the query counts, for the client as well
        ("redis://cache", "redis://cache/1", False),
        ("redis://cache", "redis://cache:6380", False),
        ("unix:///run/redis", "unix:///run/redis?db=0", True),
        ("unix:///run/redis", "unix:///run/redis?db=1", False),
        ("sqlite:///records.db", f"sqlite:///{Path.cwd()}/records.db", True),
        ("sqlite:///records.db", "sqlite:///other.db", False),
    ],
)
def test_one_store_has_one_name(one: str, other: str, *, same: bool) -> None:
    """Proxies of one store are each other's heirs however its URL is spelled, and never those of another store's."""
    assert same == (store_name(StoreSettings(one, "prefix:")) == store_name(StoreSettings(other, "prefix:")))


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_run_that_ends_without_its_store_leaves_its_heir_the_rest(
    place: Place, upstream: Upstream, key: str, tmp_path: Path
) -> None:
    """An orderly end does not wait for a store that is away: the answer lies in the spool, and the heir writes it."""
    run = arguments(tmp_path, upstream, place.url)
    with proxy(*run) as ended:
        (first,) = out_of_store(place, upstream, ended, (key, "/completed"))
        code = ended.stop()
    place.go_on()
    with proxy(*run) as heir:
        eventually(lambda: ask(heir.url, key, target="/completed", wait=0).told == "replayed")
        after = ask(heir.url, key, target="/completed")

    assert (0, (201, "executed", b"charge_1")) == (code, told(first))
    assert (201, "replayed", b"charge_1") == told(after)
    assert 1 == len(upstream.requests)


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_claim_whose_reply_was_lost_is_given_back(place: Place, upstream: Upstream, key: str, tmp_path: Path) -> None:
    """The caller is told that nothing was sent; when the store returns the key is free, made or not."""
    upstream.plays(lambda line: line.send(ANSWERS[line.request().start.split()[1]]))
    with proxy(*arguments(tmp_path, upstream, place.url)) as running:
        place.stop_before(EVERYTHING)
        refused = ask(running.url, key, target="/completed")
        sent = len(upstream.lines)
        place.let_pass()
        eventually(lambda: ask(running.url, key, target="/completed", wait=0).told == "executed")
        after = ask(running.url, key, target="/completed")

    assert problem(503, "store-unavailable", "no", "same_key") == refused.problem
    assert 0 == sent
    assert (201, "replayed", b"charge_1") == told(after)
    assert 1 == len(upstream.requests)
