"""What an upstream is told of the operation: its key in one spelling on every try, its stamp on each of them, no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.client import ask, new_key, outcome, problem, request, status
from tests.wire.upstream import Line, Upstream, answers
from tests.wire.watched import Watched, watched

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNKNOWN = (502, "outcome-unknown", "unknown", "after_check")


@pytest.fixture(scope="module")
def telling(scripted: Upstream) -> Iterator[Watched]:
    """A proxy in front of upstreams that know retries by the key, or that can be asked for a stamp."""
    probe = {"get": "/found?ref={key}", "found": "[0]", "absent": "length(@) == `0`", "settle": "1h"}
    settings = {
        "upstreams": {"api": {"url": scripted.url}},
        "routes": [
            {"name": "same", "match": {"host": "same"}, "upstream": "api", "forward_key": "same", "on_unknown": "retry"},
            {
                "name": "renamed",
                "match": {"host": "renamed"},
                "upstream": "api",
                "forward_key": "rename:X-Operation",
                "on_unknown": "retry",
            },
            {"name": "stamped", "upstream": "api", "stamp": {"header": "X-Ref"}, "on_unknown": "probe", "probe": probe},
        ],
    }
    with watched(settings) as running:
        yield running


def _loses_its_first_answer(upstream: Upstream) -> None:
    """Let the next request be carried out without an answer, and those after it with one."""

    def play(line: Line) -> None:
        line.request()
        if len(upstream.requests) > 1:
            line.send(OK)
            line.wait_for_end()

    upstream.plays(play)


@pytest.mark.parametrize(("host", "name"), [("same", "Idempotency-Key"), ("renamed", "X-Operation")])
@pytest.mark.parametrize("first", ['"{}"', "{}"], ids=["quoted first", "bare first"])
def test_a_retry_in_the_other_spelling_is_the_same_operation(
    upstream: Upstream, telling: Watched, host: str, name: str, first: str
) -> None:
    """For us both are one key, so the upstream, which may compare them as they stand, must not see two."""
    _loses_its_first_answer(upstream)
    key = new_key()
    spellings = (first.format(key), key if first != "{}" else f'"{key}"')

    lost, found = (
        ask(telling.port, request("POST", "/charges", f"Host: {host}", body=b"1", key=spelled)) for spelled in spellings
    )

    assert (UNKNOWN, (200, "executed")) == (problem(lost), (status(found), outcome(found)))
    assert [[key.encode()]] * 2 == [arrived.values(name) for arrived in upstream.requests]


@pytest.mark.parametrize(
    ("spelled", "forwarded"),
    [
        (r'"{}\""', r'"{}\""'),
        (r'"{},b"', r'"{},b"'),
        (r'"{}\\"', r"{}" + "\\"),
        (r'"{},\\"', r'"{},\\"'),
        (r"{}" + "\\", r"{}" + "\\"),
        ('"{};a=b"', "{};a=b"),
    ],
)
def test_a_key_is_quoted_where_it_must_be(upstream: Upstream, telling: Watched, spelled: str, forwarded: str) -> None:
    """A comma would make a list of it, and a quotation mark a damaged string; other keys go bare, as most clients write them."""
    upstream.plays(answers(OK))
    key = new_key()

    answer = ask(telling.port, request("POST", "/charges", "Host: same", body=b"1", key=spelled.format(key)))

    assert 200 == status(answer)
    assert [[forwarded.format(key).encode()]] == [arrived.values("idempotency-key") for arrived in upstream.requests]


@pytest.mark.parametrize("sent", [False, True], ids=["ours", "the client's"])
def test_a_client_cannot_take_the_stamp_from_the_upstream(upstream: Upstream, telling: Watched, *, sent: bool) -> None:
    """A stamp that `Connection` lists is forwarded all the same: without it the upstream would deny what it has done."""
    upstream.plays(answers(OK))
    key = new_key()
    own = [f"x-ref: {key}"] if sent else []

    answer = ask(
        telling.port, request("POST", "/charges", "Connection: close, X-Ref, X-Hop", "X-Hop: 1", *own, body=b"1", key=key)
    )

    (arrived,) = upstream.requests
    assert 200 == status(answer)
    assert ([key.encode()], []) == (arrived.values("x-ref"), arrived.values("x-hop"))


@pytest.mark.parametrize(
    ("method", "keyed", "expected"),
    [("POST", True, "executed"), ("POST", False, "bypassed"), ("GET", False, "")],
    ids=["covered", "passed through", "read"],
)
def test_what_an_agent_tells_of_its_work_stays_here(
    upstream: Upstream, port: int, method: str, expected: str, *, keyed: bool
) -> None:
    """The workflow's fields are for this proxy; an upstream that is a third party learns nothing of the agent."""
    upstream.plays(answers(OK))
    fields = ("Workflow-Id: booking-7", "A: 1", "workflow-action: charge", "X-Workflow-Id: theirs", "Baggage: a=1, Workflow-Id=b")

    answer = ask(port, request(method, "/x", *fields, body=b"1", key=new_key() if keyed else None))
    with_step = ask(port, request(method, "/x", *fields, f"WORKFLOW-STEP: {new_key()}", body=b"1"))

    told = [b"A: 1", b"X-Workflow-Id: theirs", b"Baggage: a=1"]
    assert (200, 200, expected) == (status(answer), status(with_step), outcome(answer))
    assert [told] * 2 == [arrived.lines_without("host", "content-length", "via", "x-request-id") for arrived in upstream.requests]


def test_what_a_workflow_asks_again_is_one_operation(upstream: Upstream, port: int) -> None:
    """On a route that derives keys: same workflow, same request; what a client counts up on every try has no part in it."""
    upstream.plays(answers(OK))
    flow = new_key()

    def tried(body: bytes, *fields: str, workflow: str = f"Workflow-Id: {flow}", host: str = "derived") -> str:
        head = (f"Host: {host}", workflow, "Content-Type: application/json", *fields)
        return outcome(ask(port, request("POST", "/x", *head, body=body)))

    assert ["executed", "replayed", "replayed"] == [
        tried(b'{"a": 1}', "X-Stainless-Retry-Count: 0"),
        tried(b'{"a":1.0}', "X-Stainless-Retry-Count: 1"),
        tried(b'{"a": 1}', workflow=f"baggage: workflow-id={flow}"),
    ]
    assert ["executed"] * 3 == [
        tried(b'{"a": 2}'),
        tried(b'{"a": 1}', workflow=f"Workflow-Id: {flow}2"),
        tried(b'{"a": 1}', host="derived-too"),
    ]
    assert ["executed", "executed", "bypassed"] == [
        tried(b'{"a": 1}', f"Workflow-Step: {flow}"),
        tried(b'{"a": 1}', f"Idempotency-Key: {flow}"),
        tried(b'{"a": 1}', workflow="A: 1"),
    ]
    derived = [arrived.values("idempotency-key") for arrived in upstream.requests[:3]]
    assert all(len(key) == len(b"derived-") + 64 and key.startswith(b"derived-") for (key,) in derived[:2])
    assert derived[0] != derived[1]
