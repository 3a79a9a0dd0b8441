"""What becomes of an operation, asked by its key: within the caller's scope, and without a retry."""

from __future__ import annotations

import hashlib
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.process.asking import ask, counted, eventually, problem
from tests.wire.upstream import Line, answers
from tests.workflow.conftest import ANN, BOB, MADE, House, answer

UNKNOWN = problem(404, "key-unknown", "unknown", "same_key")
BAD = problem(400, "bad-request", "no", "new_key")


def hang_up(line: Line) -> None:
    """Take a request, and hang up without an answer."""
    line.request()


def test_a_completed_operation_is_told_whole(house: House) -> None:
    """Phase, outcome, times and the key's hash, as JSON that no cache keeps."""
    house.write(house.name)

    page = house.get(f"keys/{house.name}")

    told = page.document
    times = [told.pop(name) for name in ("claimed_at", "settled_at", "expires_at", "forget_at")]
    assert isinstance(told.pop("fence"), int)
    assert {
        "key": hashlib.sha256(house.name.encode()).hexdigest(),
        "upstream": "first",
        "route": "rest",
        "phase": "completed",
        "executed": "yes",
        "retry": "never",
        "status": 201,
        "source": "answered",
    } == told
    assert times == sorted(times)
    assert all(len(time) == len("2026-01-01T00:00:00.000000Z") and time.endswith("Z") for time in times)
    assert (200, "application/json", "no-store", "idemproxy", None) == (
        page.status,
        *map(page.field, ("Content-Type", "Cache-Control", "Proxy-Status", "Idempotency-Status")),
    )


def test_the_stored_answer_is_given_as_a_replay(house: House) -> None:
    """The bytes of the first answer, marked as a replay, and not to be cached; the upstream sees one request."""
    house.upstream.plays(answers(answer(201, b"\x00\xff", "Content-Type: x/y", "X-Made: 1", "Cache-Control: max-age=9")))
    first = house.write(house.name)

    again = house.get(f"keys/{house.name}/response")

    assert (201, b"\x00\xff", "x/y", "1") == (again.status, again.body, again.field("Content-Type"), again.field("X-Made"))
    assert ("executed", "replayed", "true") == (first.told, again.told, again.field("Idempotent-Replayed"))
    assert ("max-age=9, no-store", None) == (again.field("Cache-Control"), again.field("Proxy-Status"))
    assert 1 == len(house.upstream.requests)


@pytest.mark.parametrize("page", ["", "/response"])
@pytest.mark.parametrize("fields", [BOB, ()], ids=["another's", "nobody's"])
def test_a_key_of_another_scope_is_not_there(house: House, page: str, fields: tuple[tuple[str, str], ...]) -> None:
    """It is told exactly as a key that nobody has used."""
    house.write(house.name)

    foreign, unused = (house.get(f"keys/{key}{page}", fields) for key in (house.name, f"{house.name}-unused"))

    assert [UNKNOWN] * 2 == [foreign.problem, unused.problem]
    assert foreign.document["detail"] == unused.document["detail"]


def test_a_route_with_a_scope_of_its_own(house: House) -> None:
    """Its records are there for whoever sends the fields of that scope."""
    house.write(house.name, (*ANN, ("X-User", "1")), "/personal/x")

    assert ("personal", UNKNOWN) == (
        house.get(f"keys/{house.name}", (*ANN, ("X-User", "1"))).document["route"],
        house.get(f"keys/{house.name}").problem,
    )


def test_a_key_of_two_upstreams_is_told_apart_by_name(house: House) -> None:
    """Without `upstream` the refusal names those that have the key; with it one record is meant; others are not known."""
    house.write(house.name)
    house.write(house.name, target="/second/x")

    either = house.get(f"keys/{house.name}")
    chosen = [house.get(f"keys/{house.name}?upstream={name}").document["route"] for name in ("first", "second")]
    none = house.get(f"keys/{house.name}?upstream=third")

    assert (BAD, ["rest", "second"], BAD) == (either.problem, chosen, none.problem)
    assert either.document["detail"].endswith("of first, second.")
    assert none.document["detail"].endswith("one of first, second.")


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        ("{}", "%22{}%22"),
        ('"{}"', "{}"),
        ("{}/a%62", "{}%2Fa%2562"),
        ('"{},\\"x\\""', "%22{}%2C%5C%22x%5C%22%22"),
        ("{}?#", "{}%3f%23"),
    ],
)
def test_spellings_of_a_key(house: House, sent: str, asked: str) -> None:
    """Percent-encoding is undone once, and a quoted key is the bare one."""
    house.write(sent.format(house.name))

    assert ("completed", 201) == (
        house.get(f"keys/{asked.format(house.name)}").document["phase"],
        house.get(f"%6beys/{asked.format(house.name)}/r%65sponse").status,
    )


@pytest.mark.parametrize(
    ("target", "slug", "word"),
    [
        ("keys/a%2", "bad-request", "percent"),
        ("keys/%zz/response", "bad-request", "percent"),
        ("keys/", "key-invalid", "empty"),
        ("keys/a,b", "key-invalid", "comma"),
        ("keys/%00", "key-invalid", "visible"),
        ("keys/%22a", "key-invalid", "quoted"),
        (f"keys/{'a' * 256}", "key-invalid", "255"),
        ("workflows/%C3%A9", "key-invalid", "workflow's id"),
        ("keys/a?wiat=1", "bad-request", "'wiat': it has upstream and wait"),
        ("workflows/a?wait=1", "bad-request", "'wait': it has none"),
        ("keys/a?wait=121", "bad-request", "0 to 120"),
        ("keys/a?wait=-1", "bad-request", "0 to 120"),
        ("keys/a?wait=", "bad-request", "0 to 120"),
        ("keys/a?wait=1&wait=2", "bad-request", "'wait' stands there twice"),
    ],
)
def test_what_cannot_be_asked(house: House, target: str, slug: str, word: str) -> None:
    """A name that is none, and a parameter that is not known, not valid or there twice: 400, with what is wrong."""
    found = house.get(target)

    assert problem(400, slug, "no", "new_key") == found.problem
    assert word in found.document["detail"]


@pytest.mark.parametrize(
    ("target", "method", "allow"),
    [
        ("keys/a", "POST", "GET, HEAD"),
        ("keys/a/response", "DELETE", "GET, HEAD"),
        ("workflows/a", "PUT", "GET, HEAD"),
        ("workflows/a/memory", "PATCH", "GET, PUT, HEAD"),
        ("workflows/a/memory", "OPTIONS", "GET, PUT, HEAD"),
    ],
)
def test_methods_that_a_page_does_not_have(house: House, target: str, method: str, allow: str) -> None:
    """405, and `Allow` names those that it has."""
    found = house.get(target, method=method)

    assert (problem(405, "method-not-allowed", "no", "never"), allow) == (found.problem, found.field("Allow"))


@pytest.mark.parametrize(
    "target", ["", "keys", "keys/a/", "keys/a/response/", "keys/a/b", "workflows", "workflows/a/steps", "Keys/a"]
)
def test_pages_that_are_not_there(house: House, target: str) -> None:
    """404 no-route, which no upstream sees."""
    assert problem(404, "no-route", "no", "never") == house.get(target).problem
    assert [] == house.upstream.requests


@pytest.mark.parametrize("target", ["keys/{}", "keys/{}/response", "workflows/{}"])
def test_head_is_taken_as_get(house: House, target: str) -> None:
    """The same head, without the body."""
    house.step("1", key=house.name)
    target = target.format(house.name)

    heads = [house.get(target, method=method) for method in ("GET", "HEAD")]

    assert heads[0].fields == heads[1].fields
    assert (True, b"") == (bool(heads[0].body), heads[1].body)


def test_a_body_that_nobody_reads_ends_the_connection(house: House) -> None:
    """What stands behind a request's head is not taken for the next request."""
    found = house.get(f"keys/{house.name}", (*ANN, ("Content-Length", "9")))

    assert (404, "close") == (found.status, found.field("Connection"))


@pytest.mark.parametrize(
    ("target", "play", "phase", "executed", "retry", "refusal"),
    [
        ("/charges", hang_up, "unknown", "unknown", "after_check", (409, "outcome-unknown")),
        ("/charges", answers(answer(500, b"")), "unknown", "unknown", "after_check", (409, "outcome-unknown")),
        ("/brief/x", answers(MADE), "expired", "yes", "after_check", (410, "key-expired")),
        ("/small/x", answers(MADE), "completed", "yes", "never", (409, "response-unavailable")),
    ],
    ids=["unknown", "unknown with an answer", "expired", "too long"],
)
def test_operations_without_an_answer_to_give(
    house: House, target: str, play: object, phase: str, executed: str, retry: str, refusal: tuple[int, str]
) -> None:
    """The record says what is known of it; its answer is refused as a retry's would be."""
    house.upstream.plays(play)  # type: ignore[arg-type] # of the table
    house.write(house.name, target=target)
    eventually(lambda: house.get(f"keys/{house.name}").document["phase"] == phase)

    told, found = house.get(f"keys/{house.name}").document, house.get(f"keys/{house.name}/response")

    assert (phase, executed, retry) == (told["phase"], told["executed"], told["retry"])
    assert problem(*refusal, executed, retry) == found.problem
    assert "no-store" == found.field("Cache-Control")


def test_a_key_that_was_released_is_free(house: House) -> None:
    """The upstream refused it, and nothing is kept."""
    house.upstream.plays(answers(answer(429, b"")))
    house.write(house.name)

    assert UNKNOWN == house.get(f"keys/{house.name}").problem


def test_an_error_that_was_stored_is_no_new_operations_licence(house: House) -> None:
    """A declined charge was carried out, as far as the proxy can know: look before you ask under another key."""
    house.upstream.plays(answers(answer(402, b"no")))
    house.write(house.name)

    told, found = house.get(f"keys/{house.name}").document, house.get(f"keys/{house.name}/response")

    assert ("completed", "yes", "after_check", 402) == (told["phase"], told["executed"], told["retry"], told["status"])
    assert (402, b"no") == (found.status, found.body)


def test_who_waits_is_told_when_it_is_settled(house: House) -> None:
    """In flight it says so at once, and with `wait` not before its end; a wait that is over tells what there is."""

    def held(line: Line) -> None:
        line.request()
        line.wait_for_end()

    house.upstream.plays(held)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(house.write, house.name)
        [line] = house.upstream.wait_for_lines(1)
        house.upstream.wait_for_requests(1)
        at_once = [house.get(f"keys/{house.name}{page}") for page in ("", "?wait=1", "/response")]
        waiting = [threads.submit(house.get, f"keys/{house.name}{page}?wait=30") for page in ("", "/response")]
        line.send(MADE)
        settled, given = (each.result() for each in waiting)

    assert ["in_flight", "in_flight"] == [each.document["phase"] for each in at_once[:2]]
    assert (problem(409, "in-progress", "in_progress", "same_key"), "1") == (at_once[2].problem, at_once[2].field("Retry-After"))
    assert ("completed", 201, first.result().body) == (settled.document["phase"], given.status, given.body)
    assert 1 == len(house.upstream.requests)


def test_a_page_is_logged_and_counted_as_own(house: House) -> None:
    """Under one route's name, without the key, and with the slug where it was refused."""
    first, last = (f"/_idemproxy/{uuid.uuid4()}" for _ in range(2))
    counted_before = counted(house.proxy.program.admin, "idemproxy_requests_total", route="_idemproxy", outcome="own")
    ask(house.proxy.program.url, method="GET", target=first, body=b"")
    house.write(house.name)
    house.get(f"keys/{house.name}")
    house.get(f"keys/{house.name}/response")
    house.get(f"keys/{house.name}?upstream={house.name}")
    house.step("1")
    house.get(f"workflows/{house.name}/memory")
    ask(house.proxy.program.url, method="GET", target=last, body=b"")

    house.proxy.told(last)
    lines = house.proxy.lines()
    paths = [line["path"] for line in lines]
    lines = lines[paths.index(first) + 1 : paths.index(last)]
    own = [line for line in lines if line["route"] == "_idemproxy"]

    assert [("own", 200, None), ("own", 201, None), ("own", 400, "bad-request"), ("own", 404, "workflow-unknown")] == [
        (line["outcome"], line["status"], line.get("slug")) for line in own
    ]
    assert ["/_idemproxy/keys/*"] * 3 + ["/_idemproxy/workflows/*"] == [line["path"] for line in own]
    assert 6 == counted(house.proxy.program.admin, "idemproxy_requests_total", route="_idemproxy", outcome="own") - counted_before
    assert house.name not in house.proxy.log.read_text()
    assert house.name not in "".join(house.proxy.program.told)
