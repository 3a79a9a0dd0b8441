"""What operators see of real requests: each counter moves as they did, and nothing that is secret is written anywhere."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from tests.process.asking import Answer, Series, ask, configuration, counted, eventually, page, samples
from tests.process.upstream import Upstream, upstream
from tests.processes import proxy

QUERY: Final = "confidential-query"
TOKEN: Final = "confidential-token"
BODY: Final = b'{"amount": 4200, "customer": "confidential-body"}'
OTHER: Final = b'{"amount": 1}'
SECRETS: Final = (QUERY, TOKEN, "confidential-body")

# Per request: what the log says of it, in order.
LOGGED: Final = [
    ("charges", "POST", "/charges", 201, "executed"),
    ("charges", "POST", "/charges", 201, "executed"),
    ("charges", "POST", "/charges", 201, "replayed"),
    ("charges", "POST", "/charges", 201, "replayed"),
    ("charges", "POST", "/charges", 201, "replayed"),
    ("charges", "POST", "/charges", 422, "refused"),
    ("charges", "POST", "/charges", 400, "refused"),
    ("-", "POST", "/nowhere", 404, "refused"),
    ("-", "-", "-", 400, "refused"),
    ("charges", "POST", "/charges", 201, "bypassed"),
    ("charges", "GET", "/charges", 201, "read"),
    ("charges", "POST", "/charges", 409, "in-progress"),
    ("charges", "POST", "/charges", 201, "executed"),
    ("charges", "POST", "/charges", 502, "unknown"),
    ("charges", "POST", "/charges", 409, "unknown"),
]

MOVED: Final = {
    "idemproxy_requests_total": {
        ("-", "refused"): 2,
        ("charges", "bypassed"): 1,
        ("charges", "executed"): 3,
        ("charges", "in-progress"): 1,
        ("charges", "read"): 1,
        ("charges", "refused"): 2,
        ("charges", "replayed"): 3,
        ("charges", "unknown"): 2,
    },
    "idemproxy_attempts_total": {("charges", "answered"): 3, ("charges", "unknown"): 1},
    "idemproxy_problems_total": {
        ("-", "bad-request"): 1,
        ("-", "no-route"): 1,
        ("charges", "in-progress"): 1,
        ("charges", "key-invalid"): 1,
        ("charges", "key-reused"): 1,
        ("charges", "outcome-unknown"): 2,
    },
    "idemproxy_attempt_seconds_count": {("charges",): 4},
    "idemproxy_unrecorded_total": {},
    "idemproxy_in_flight": {},
    "idemproxy_leases_lost_total": {},
}
"""By metric and the values of its labels; what is not named has not moved."""

# All but the read had a body; one was another one.
RECEIVED: Final = {("-",): len(BODY), ("charges",): 11 * len(BODY) + len(OTHER)}
SETTLED: Final = {("complete", "written"): 3, ("mark_unknown", "written"): 1}
CLAIMED: Final = {("claim", "ok"): 10, ("complete", "ok"): 3, ("mark_unknown", "ok"): 1}


@dataclass(frozen=True, slots=True)
class Run:
    """What a proxy left behind after one request of each kind."""

    keys: dict[str, str]
    answers: list[Answer]
    before: dict[Series, float]
    after: dict[Series, float]
    pages: dict[str, bytes]
    """All that it has written, by place."""

    def moved(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """By how much the samples of a metric moved that did, by the values of `labels`."""
        return {
            tuple(dict(has)[label] for label in labels): value - self.before[given, has]
            for (given, has), value in self.after.items()
            if given == name and value != self.before[given, has]
        }

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The access log."""
        return [json.loads(line) for line in self.pages["access log"].splitlines()]


@pytest.fixture(scope="module")
def run(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One proxy's life, on each store."""
    directory = tmp_path_factory.mktemp("run")
    keys = {name: f"confidential-key-{name}" for name in ("first", "second", "slow", "lost")}
    with upstream() as api:
        settings = {
            "upstreams": {"api": {"url": api.url}},
            "routes": [{"name": "charges", "match": {"path": "/charges"}, "upstream": "api"}],
        }
        with proxy(*configuration(directory, settings), "--store", store_url, log=directory / "log") as running:
            before = samples(running.admin)
            answers = one_of_each(running.url, api, keys)
            # A request is counted when its last byte has been handed over, which its client may notice first.
            eventually(lambda: counted(running.admin, "idemproxy_requests_total") == len(LOGGED))
            after = samples(running.admin)
            pages = {"metrics": page(f"{running.admin}/metrics")[1].encode()}
        pages |= {
            "access log": (directory / "log").read_bytes(),
            "standard error": "".join(running.told).encode(),
            "store": stored(store_url),
        }
    return Run(keys, answers, before, after, pages)


def one_of_each(url: str, api: Upstream, keys: dict[str, str]) -> list[Answer]:
    """The requests of LOGGED, in their order; the answers to all but the one that another has to wait for."""

    def send(key: str | None, **how: Any) -> Answer:  # noqa: ANN401 - as `ask` takes them
        given = {"target": f"/charges?note={QUERY}", "body": BODY, "fields": [("Authorization", TOKEN)]}
        return ask(url, key, **{**given, **how})

    answers = [send(keys[name]) for name in ("first", "second", "first", "first", "first")]
    answers += [send(keys["first"], body=OTHER), send(f"{keys['first']}, {keys['second']}")]
    answers.append(send(keys["first"], target=f"/nowhere?note={QUERY}"))
    answers.append(send(keys["first"], fields=[("Authorization", f"{TOKEN}\x01")]))  # which cannot be read
    answers += [send(None), send(None, method="GET", body=b"")]
    api.hold()
    with ThreadPoolExecutor(1) as pool:
        arrived = len(api.arrived)
        slow = pool.submit(send, keys["slow"])
        eventually(lambda: len(api.arrived) > arrived)
        answers.append(send(keys["slow"], wait=0))
        api.let_go()
        answers.append(slow.result())
    api.answers = False
    return [*answers, send(keys["lost"]), send(keys["lost"])]


def stored(url: str) -> bytes:
    """All that a store holds, as it stands in its files or on its server."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    held = []
    with Redis.from_url(url, protocol=2) as client:
        for name in client.scan_iter():
            fields = client.hgetall(name) if client.type(name) == b"hash" else {b"": client.get(name) or b""}
            held += [name, *fields.keys(), *fields.values()]
    return b"\n".join(held)


def test_each_counter_moves_as_the_requests_did(run: Run) -> None:
    """Every metric about requests counts what was sent here, no more and no less, by route and outcome."""
    labels = {
        "idemproxy_requests_total": ("route", "outcome"),
        "idemproxy_attempts_total": ("route", "result"),
        "idemproxy_problems_total": ("route", "result"),
        "idemproxy_in_flight": (),
        "idemproxy_leases_lost_total": (),
    }

    assert MOVED == {name: run.moved(name, *labels.get(name, ("route",))) for name in MOVED}


def test_bytes_are_counted_as_they_came_and_went(run: Run) -> None:
    """Bodies of requests count whether they were covered, passed through or refused; bodies of answers as clients got them."""
    sent = sum(len(answer.body) for answer in run.answers)

    assert RECEIVED == run.moved("idemproxy_request_bytes_total", "route")
    assert sent == sum(run.moved("idemproxy_response_bytes_total", "route").values())


def test_each_counter_of_the_store_moves_as_its_operations_did(run: Run) -> None:
    """Claims, settlements and what became of them are counted as they were carried out."""
    operations = run.moved("idemproxy_store_operations_total", "operation", "result")

    assert SETTLED == run.moved("idemproxy_settlements_total", "operation", "result")
    assert CLAIMED == {labels: value for labels, value in operations.items() if labels[0] not in {"check", "renew"}}
    assert {1} == {value for (name, _), value in run.after.items() if name == "idemproxy_store_up"}


def test_every_series_is_there_from_the_start(run: Run) -> None:
    """Nothing that happens makes a new series: what has not happened yet is 0 and not absent."""
    assert run.before.keys() == run.after.keys()


def test_the_log_has_one_line_for_each_request(run: Run) -> None:
    """In the order in which they ended, with what the client was told, and of the key its hash alone."""
    said = [tuple(line[name] for name in ("route", "method", "path", "status", "outcome")) for line in run.lines]
    named = {line["key"] for line in run.lines if "key" in line}

    assert LOGGED == said
    assert [answer.status for answer in run.answers] == [line["status"] for line in run.lines]
    assert {sha256(key.encode()).hexdigest() for key in run.keys.values()} == named


@pytest.mark.parametrize("place", ["access log", "standard error", "metrics", "store"])
def test_nothing_secret_is_written(place: str, run: Run) -> None:
    """No plain key, query, credential or body of a request stands in the log, on standard error, in /metrics or in the store."""
    written = run.pages[place].decode("latin-1")
    told_by_hash = place in {"access log", "store"}  # which shows, too, that this is where to look

    assert told_by_hash is (sha256(run.keys["first"].encode()).hexdigest() in written)
    assert [] == [secret for secret in (*SECRETS, *run.keys.values()) if secret in written]
