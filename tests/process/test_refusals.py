"""What is refused, and how it is told: each problem as the contract has it, and that nothing of it reaches the upstream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.process.asking import (
    CHARGE,
    CUSTOMER,
    Answer,
    ask,
    claims,
    configuration,
    eventually,
    exchange,
    problem,
    request_bytes,
)
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy
from tests.servers import free_port

LIMIT: Final = 64
LARGE: Final = CHARGE.ljust(2 * LIMIT)

ROUTES: Final = [
    {"name": "required", "match": {"path": "/required"}, "upstream": "api", "key": "required"},
    {"name": "charges", "match": {"path": "/charges/**"}, "upstream": "api"},
    {"name": "unkept", "match": {"path": "/unkept"}, "upstream": "api", "max_stored_body": "0B"},
    {"name": "brief", "match": {"path": "/brief"}, "upstream": "api", "retention": "0.001ms"},
    {"name": "nowhere", "match": {"path": "/nowhere"}, "upstream": "nowhere"},
]

MEMBERS: Final = {"type", "title", "status", "detail", "instance", "executed", "retry"}
KEY_INVALID: Final = problem(400, "key-invalid", "no", "new_key")
TOO_LARGE: Final = problem(413, "body-too-large", "no", "never")
REUSED: Final = problem(422, "key-reused", "no", "new_key")
UNKNOWN: Final = problem(409, "outcome-unknown", "unknown", "after_check")


def chunked(key: str) -> bytes:
    """A request that does not say how long its body is, in three chunks."""
    head = request_bytes(key, body=b"", fields=[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
    third = len(LARGE) // 3
    pieces = [LARGE[:third], LARGE[third : 2 * third], LARGE[2 * third :], b""]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


# What is refused before the store is asked: a request for a key, and how it is refused.
AT_ONCE: Final[dict[str, tuple[Callable[[str], bytes], tuple[int, str, str, str, str]]]] = {
    "no key": (lambda _: request_bytes(target="/required"), problem(400, "key-missing", "no", "new_key")),
    "two key lines": (lambda key: request_bytes(key, fields=[("Idempotency-Key", key)]), KEY_INVALID),
    "a list of keys": (lambda key: request_bytes(f"{key}, {key}"), KEY_INVALID),
    "a list of quoted keys": (lambda key: request_bytes(f'"{key}", "{key}"'), KEY_INVALID),
    "an empty key": (lambda _: request_bytes(""), KEY_INVALID),
    "an empty quoted key": (lambda _: request_bytes('""'), KEY_INVALID),
    "an open quote": (lambda key: request_bytes(f'"{key}'), KEY_INVALID),
    "256 characters": (lambda key: request_bytes(key.ljust(256, "x")), KEY_INVALID),
    "256 quoted characters": (lambda key: request_bytes(f'"{key:x<256}"'), KEY_INVALID),
    "a space within": (lambda key: request_bytes(f"{key} 2"), KEY_INVALID),
    "a Latin-1 key": (lambda key: request_bytes(f"{key}-\xfc"), KEY_INVALID),
    "a UTF-8 key": (lambda key: request_bytes(f"{key}-\xc3\xbc"), KEY_INVALID),
    "a long body": (lambda key: request_bytes(key, body=LARGE), TOO_LARGE),
    "a long body to come": (lambda key: request_bytes(key, body=b"", fields=[("Content-Length", "1000000")]), TOO_LARGE),
    "a long body in chunks": (chunked, TOO_LARGE),
    "an unknown path": (lambda key: request_bytes(key, target=f"/{key}"), problem(404, "no-route", "no", "never")),
    "no path": (lambda key: request_bytes(key, target=f"http://{key}/charges"), problem(400, "bad-request", "no", "new_key")),
}

# Another request under the key of a charge.
OTHERS: Final[dict[str, Callable[[str], bytes]]] = {
    "body": lambda key: request_bytes(key, body=CHARGE.replace(b"4200", b"4201")),
    "path": lambda key: request_bytes(key, target="/charges/other"),
    "query": lambda key: request_bytes(key, target="/charges?customer=ann"),
    "method": lambda key: request_bytes(key, method="PUT"),
    "media type": lambda key: request_bytes(key).replace(b"application/json", b"text/plain"),
}


@pytest.fixture(scope="module")
def api() -> Iterator[Upstream]:
    """An upstream that notes what arrives."""
    with upstream() as server:
        yield server


@pytest.fixture(scope="module")
def front(api: Upstream, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The proxy with a route for each kind of refusal, on each store."""
    settings = {
        "upstreams": {"api": {"url": api.url}, "nowhere": {"url": f"http://127.0.0.1:{free_port()}"}},
        "defaults": {"max_request_body": f"{LIMIT}B"},
        "routes": ROUTES,
    }
    with proxy(*configuration(tmp_path_factory.mktemp("refusals"), settings), "--store", store_url) as running:
        yield running


def check(answer: Answer, told: str, *secrets: str, retry_after: str | None = None) -> None:
    """A refusal is a whole problem document, is marked as the proxy's own, and gives nothing of a request away."""
    members = answer.document
    assert MEMBERS | ({"retry_after"} if retry_after else set()) == members.keys()
    assert answer.status == members["status"]
    assert retry_after == answer.field("Retry-After")
    assert retry_after is None or int(retry_after) == members["retry_after"]
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", members["instance"])
    assert re.fullmatch(r"[A-Z][^.\n]{5,60}", members["title"])
    assert re.fullmatch(r"[A-Z][^\n]{20,300}\.", members["detail"])
    assert told == answer.told
    assert (answer.field("Proxy-Status") or "").startswith("idemproxy; ")
    assert f'details="{members["type"]}"' in (answer.field("Proxy-Status") or "")
    everything = f"{answer.fields} {answer.body.decode()}"
    assert [] == [secret for secret in (CUSTOMER, *secrets) if secret in everything]


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_bad_request_is_refused_at_once(name: str, front: Program, api: Upstream, key: str) -> None:
    """The answer says why, nothing was sent or asked of the store, and the key is as free as before."""
    make, expected = AT_ONCE[name]
    arrived, asked = len(api.arrived), claims(front.admin)

    answer = exchange(front.url, make(key))

    assert expected == answer.problem
    check(answer, "refused", key)
    assert (arrived, asked) == (len(api.arrived), claims(front.admin))
    assert "executed" == ask(front.url, key).told


def test_each_refusal_is_an_occurrence_of_its_own(front: Program) -> None:
    """Two refusals for the same reason differ in `instance` alone, so that each can be talked about."""
    one, two = (exchange(front.url, request_bytes("")).document for _ in range(2))

    assert one.pop("instance") != two.pop("instance")
    assert one == two


@pytest.mark.parametrize("spelling", ["{}", '"{}"'], ids=["bare", "quoted"])
def test_the_longest_key_is_a_key(spelling: str, front: Program, key: str) -> None:
    """255 characters are taken, without the quotes."""
    assert "executed" == ask(front.url, spelling.format(key.ljust(255, "x"))).told


@pytest.mark.parametrize("what", OTHERS)
def test_the_key_of_another_operation_is_refused(what: str, front: Program, api: Upstream, key: str) -> None:
    """The same key with another body, path, query, method or media type is 422, and the first operation stands."""
    first = ask(front.url, key)
    arrived = len(api.arrived)

    refused, again = exchange(front.url, OTHERS[what](key)), ask(front.url, key)

    assert REUSED == refused.problem
    check(refused, "refused", key, str(first.document["id"]))
    assert ("replayed", first.body) == (again.told, again.body)
    assert arrived == len(api.arrived)


def test_an_operation_under_way_is_in_progress(front: Program, api: Upstream, key: str) -> None:
    """Who does not wait is told when to come again, and another request under the key is refused without waiting."""
    arrived = len(api.arrived)
    api.hold()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, front.url, key)
        eventually(lambda: len(api.arrived) > arrived)
        second = ask(front.url, key, wait=0)
        other = ask(front.url, key, body=CHARGE.replace(b"4200", b"4201"))
        api.let_go()

    assert problem(409, "in-progress", "in_progress", "same_key") == second.problem
    check(second, "in-progress", key, retry_after="1")
    assert REUSED == other.problem
    check(other, "refused", key)
    assert "executed" == first.result().told
    assert arrived + 1 == len(api.arrived)


def test_a_lost_answer_leaves_the_outcome_unknown(front: Program, api: Upstream, key: str) -> None:
    """When the upstream acts and its answer does not come, the first caller gets 502, every later one 409, and none is sent."""
    arrived = len(api.arrived)
    api.answers = False
    try:
        first = ask(front.url, key)
    finally:
        api.answers = True
    again = ask(front.url, key)

    assert problem(502, "outcome-unknown", "unknown", "after_check") == first.problem
    assert UNKNOWN == again.problem
    check(first, "unknown", key)
    check(again, "unknown", key)
    assert arrived + 1 == len(api.arrived)


def test_an_answer_that_was_not_kept_is_said_to_have_been(front: Program, api: Upstream, key: str) -> None:
    """Where answers are too long to be kept, a retry learns that the operation was carried out."""
    arrived = len(api.arrived)

    first, again = (ask(front.url, key, target="/unkept") for _ in range(2))

    assert (201, "executed") == (first.status, first.told)
    assert problem(409, "response-unavailable", "yes", "never") == again.problem
    check(again, "refused", key)
    assert "status 201" in again.document["detail"]
    assert arrived + 1 == len(api.arrived)


def test_an_expired_key_is_said_to_be(front: Program, api: Upstream, key: str) -> None:
    """After the retention a retry learns that the operation was carried out, and when."""
    arrived = len(api.arrived)

    first, again = (ask(front.url, key, target="/brief") for _ in range(2))

    assert (201, "executed") == (first.status, first.told)
    assert problem(410, "key-expired", "yes", "after_check") == again.problem
    check(again, "refused", key)
    assert arrived + 1 == len(api.arrived)


def test_what_was_not_sent_can_be_tried_again(front: Program, key: str) -> None:
    """When the upstream cannot be reached, the same key may be used again, and is."""
    first, again = (ask(front.url, key, target="/nowhere") for _ in range(2))

    assert [problem(502, "not-sent", "no", "same_key")] * 2 == [first.problem, again.problem]
    check(first, "refused", key)
    check(again, "refused", key)
