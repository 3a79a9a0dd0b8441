"""What a probe can tell of an operation whose outcome is unknown, and that nothing is sent again before it is sure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final
from urllib.parse import parse_qs

import pytest

from tests.process.asking import LONGEST, Answer, ask, claims, configuration, counted, eventually, exchange, problem
from tests.process.gate import gate
from tests.process.points import RedisPlace
from tests.processes import Program, proxy
from tests.servers import redis_server
from tests.wire.bytestream import Message
from tests.wire.upstream import Line, Upstream

SETTLE: Final = 5.0
UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")
PROBE: Final = {
    "get": "/bookings?ref={key}",
    "found": "bookings[0]",
    "absent": "length(bookings) == `0`",
    "settle": f"{SETTLE:g}s",
}
MANY: Final = 12
FOUND: Final = b'{"bookings": [{"id": "b_1",  "seat": "12A"}]}'
FOUND_ANSWER: Final = b'{"id":"b_1","seat":"12A"}'
NONE: Final = b'{"bookings": []}'


class Bookings(Upstream):
    """Takes bookings: each POST is one, and loses its answer unless `answers`; `shown` is the answer to every GET."""

    def __init__(self) -> None:
        super().__init__()
        self._may_show = Event()
        self.start()

    def start(self) -> None:
        """Begin anew, with no request and nothing to show."""
        self.answers = False
        self.shown = 200, NONE
        self._may_show.set()
        self.plays(self._converse)

    def hold(self) -> None:
        """Keep the answer to every GET back."""
        self._may_show.clear()

    def let_go(self) -> None:
        """Give the answers that were kept back."""
        self._may_show.set()

    def of(self, method: bytes) -> list[Message]:
        """The requests with a method, in order."""
        return [message for message in self.requests if message.start.startswith(method)]

    def _converse(self, line: Line) -> None:
        while True:
            message = line.request()
            if message.start.startswith(b"GET"):
                self._may_show.wait(LONGEST)
                status, body = self.shown
                line.send(b"HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            elif self.answers:
                line.send(b"HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\nbooked")
            else:
                line.reset()
                return


@pytest.fixture(scope="module")
def bookings() -> Iterator[Bookings]:
    """The upstream of all proxies."""
    upstream = Bookings()
    yield upstream
    upstream.close()


@pytest.fixture(autouse=True)
def afresh(bookings: Bookings) -> None:
    """Every test begins with an upstream that has seen nothing."""
    bookings.start()


def arguments(directory: Path, url: str, store: str) -> tuple[str, ...]:
    """Of a proxy that probes, and stamps the key where the route says."""
    probed = {"upstream": "api", "on_unknown": "probe", "probe": PROBE}
    settings = {
        "upstreams": {"api": {"url": url}},
        "store": {"url": store},
        "routes": [
            {"name": "json", "match": {"path": "/json"}, **probed, "stamp": {"json": "/meta/ref"}},
            {"name": "form", "match": {"path": "/form"}, **probed, "stamp": {"form": "meta[ref]"}},
            {"name": "header", **probed, "stamp": {"header": "X-Ref"}},
        ],
    }
    return configuration(directory, settings)


@pytest.fixture(scope="module", name="pair")
def fixture_pair(bookings: Bookings, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Program]]:
    """Two proxies on one store."""
    run = arguments(tmp_path_factory.mktemp("proxy"), bookings.url, store_url)
    with proxy(*run) as one, proxy(*run) as two:
        yield [one, two]


def told(answer: Answer) -> tuple[int, str, bytes]:
    """Status, what became of the operation, and the body."""
    return answer.status, answer.told, answer.body


def test_what_is_found_is_the_answer_from_then_on(pair: list[Program], bookings: Bookings, key: str) -> None:
    """The answer was lost, the probe finds the operation: it is completed as recovered, for everyone, and is sent once."""
    lost = ask(pair[0].url, key)
    bookings.shown = 200, FOUND
    found, again = ask(pair[1].url, key), ask(pair[0].url, key)

    assert problem(502, "outcome-unknown", "unknown", "after_check") == lost.problem
    assert [(200, "recovered", FOUND_ANSWER)] * 2 == [told(found), told(again)]
    assert [None, "true"] == [found.field("Idempotent-Replayed"), again.field("Idempotent-Replayed")]
    assert [f"GET /bookings?ref={key} HTTP/1.1".encode()] == [message.start for message in bookings.of(b"GET")]
    assert [[key.encode()]] == [message.values("X-Ref") for message in bookings.of(b"POST")]


def test_an_absence_is_believed_only_after_settle(pair: list[Program], bookings: Bookings, key: str) -> None:
    """What is not there yet may still arrive: it is held, with a time to come again; then it is sent, and that is the answer."""
    ask(pair[0].url, key)
    lost_at = monotonic()
    held = ask(pair[0].url, key)
    bookings.answers = True
    sent = len(bookings.of(b"POST"))
    eventually(lambda: monotonic() > lost_at + SETTLE)
    answer, again = ask(pair[1].url, key), ask(pair[0].url, key)

    assert UNKNOWN == held.problem
    assert 1 <= int(held.field("Retry-After") or 0) <= SETTLE
    assert 1 == sent
    assert [(201, "executed", b"booked"), (201, "replayed", b"booked")] == [told(answer), told(again)]
    assert (2, 2) == (len(bookings.of(b"POST")), len(bookings.of(b"GET")))


@pytest.mark.parametrize(
    "shown",
    [(500, FOUND), (200, b"no JSON"), (200, b"{}"), (404, NONE), (200, b'{"bookings": [null]}')],
    ids=["an error", "no JSON", "neither found nor absent", "a status that says nothing", "nothing in what was found"],
)
def test_what_proves_nothing_holds(pair: list[Program], bookings: Bookings, key: str, shown: tuple[int, bytes]) -> None:
    """The outcome stays unknown, and nothing is sent; the next one who asks may learn more."""
    ask(pair[0].url, key)
    bookings.shown = shown
    held = [ask(each.url, key) for each in pair]
    bookings.shown = 200, FOUND
    found = ask(pair[0].url, key)

    assert [UNKNOWN] * 2 == [answer.problem for answer in held]
    assert (200, "recovered", FOUND_ANSWER) == told(found)
    assert (1, 3) == (len(bookings.of(b"POST")), len(bookings.of(b"GET")))


def test_many_retries_ask_once(pair: list[Program], bookings: Bookings, key: str) -> None:
    """Of those who come together, at both proxies, one probes; the others wait for what it finds."""
    ask(pair[0].url, key)
    bookings.shown = 200, FOUND
    bookings.hold()
    asked = sum(claims(each.admin) for each in pair)
    with ThreadPoolExecutor(MANY) as pool:
        retries = [pool.submit(ask, pair[number % 2].url, key) for number in range(MANY)]
        eventually(lambda: sum(claims(each.admin) for each in pair) >= asked + 2 * MANY)
        bookings.let_go()
        answers = [retry.result() for retry in retries]

    assert [(200, "recovered", FOUND_ANSWER)] * MANY == [told(answer) for answer in answers]
    assert (1, 1) == (len(bookings.of(b"POST")), len(bookings.of(b"GET")))


def test_those_who_waited_for_a_probe_do_not_ask_again(pair: list[Program], bookings: Bookings, key: str) -> None:
    """It has learned nothing, and that is told to all who waited for it."""
    ask(pair[0].url, key)
    bookings.hold()
    with ThreadPoolExecutor(MANY) as pool:
        first = pool.submit(ask, pair[0].url, key)
        eventually(lambda: bookings.of(b"GET"))
        asked = sum(claims(each.admin) for each in pair)
        others = [pool.submit(ask, pair[number % 2].url, key) for number in range(MANY - 1)]
        eventually(lambda: sum(claims(each.admin) for each in pair) >= asked + 2 * (MANY - 1))
        bookings.let_go()
        answers = [each.result() for each in (first, *others)]

    assert [UNKNOWN] * MANY == [answer.problem for answer in answers]
    assert (1, 1) == (len(bookings.of(b"POST")), len(bookings.of(b"GET")))


@pytest.mark.parametrize(
    ("route", "kind", "sent", "arrived"),
    [
        ("json", "application/json", b'{"meta": {}, "seat": "12A"}', {"meta": {"ref": "KEY"}, "seat": "12A"}),
        ("form", "application/x-www-form-urlencoded", b"seat=12A", {"seat": ["12A"], "meta[ref]": ["KEY"]}),
    ],
)
def test_a_stamp_in_the_body_arrives(
    pair: list[Program], bookings: Bookings, key: str, route: str, kind: str, sent: bytes, arrived: object
) -> None:
    """The upstream sees the key where it keeps it, and everything else as it was; the probe finds it by that."""
    head = f"POST /{route} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nContent-Type: {kind}\r\n"
    request = f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent
    lost = exchange(pair[0].url, request)
    bookings.shown = 200, FOUND
    found = exchange(pair[0].url, request)

    (message,) = bookings.of(b"POST")
    body = message.body.decode()
    seen = json.loads(body) if route == "json" else parse_qs(body)
    assert arrived == json.loads(json.dumps(seen).replace(key, "KEY"))
    assert ["unknown", "recovered"] == [lost.told, found.told]


def test_a_proxy_that_dies_while_it_probes_leaves_the_outcome_unknown(
    bookings: Bookings, store_url: str, key: str, tmp_path: Path
) -> None:
    """Its heir asks again: nothing is forwarded before a probe is answered."""
    run = (*arguments(tmp_path, bookings.url, store_url), "--spool", str(tmp_path / "spool"))
    with ThreadPoolExecutor(1) as pool:
        with proxy(*run) as running:
            ask(running.url, key)
            bookings.hold()
            lost = pool.submit(ask, running.url, key)
            eventually(lambda: len(bookings.of(b"GET")) == 1)
            running.kill()
            bookings.let_go()
        bookings.shown = 200, FOUND
        with proxy(*run) as heir:
            found = ask(heir.url, key, wait=30)

        assert isinstance(lost.exception(), ConnectionError)
    assert (200, "recovered", FOUND_ANSWER) == told(found)
    assert (1, 2) == (len(bookings.of(b"POST")), len(bookings.of(b"GET")))


def reads(program: Program) -> float:
    """How many records the proxy has read, without a wish to take them."""
    return counted(program.admin, "idemproxy_store_operations_total", operation="read", result="ok")


def test_a_reclaim_whose_reply_was_lost_frees_nothing(bookings: Bookings, key: str, tmp_path: Path) -> None:
    """The store does not answer the one who would probe: when it is back, the outcome is as unknown as it was."""
    with redis_server() as server, gate(server.port) as between:
        place = RedisPlace(server.port, between)
        with proxy(*arguments(tmp_path, bookings.url, place.url)) as running:
            (fence,) = re.findall('fence="?([0-9]+)', ask(running.url, key).field("Idempotency-Status") or "")
            looked = reads(running)
            place.stop_before(fence.encode())  # which the claim of the record names that the first claim has found
            refused = ask(running.url, key)
            place.go_on()
            bookings.answers = True
            eventually(lambda: reads(running) > looked)
            phase = place.phase(key)
            held = ask(running.url, key)

    assert UNKNOWN == refused.problem  # as the store had said before it was lost
    assert "unknown" == phase
    assert UNKNOWN == held.problem
    assert (1, 1) == (len(bookings.of(b"POST")), len(bookings.of(b"GET")))
