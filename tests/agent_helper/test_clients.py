"""The integrations with HTTP clients, before a server that keeps what it gets: which calls are numbered, and when anew."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from idemproxy.agent import (
    BadRequestError,
    NotSentError,
    OutcomeUnknownError,
    ProxyUnreachableError,
    UnprotectedCallWarning,
    Workflow,
)
from idemproxy.agent.calls import Call
from idemproxy.agent.httpx import async_client, client
from idemproxy.agent.requests import session
from tests.agent_helper.driving import DRIVERS, Answer, Open, Requests, Server, serving

ALL = pytest.mark.parametrize("opened", DRIVERS)
LOST = (httpx.TransportError, requests.ConnectionError, aiohttp.ClientError)
PROBLEM = (
    b'{"type":"not-sent","title":"The request was not sent","status":502,"detail":"Retry.","executed":"no","retry":"same_key"}'
)
NOT_SENT = Answer(502, {"Content-Type": "application/problem+json", "Proxy-Status": "idemproxy; error=dns_error"}, PROBLEM)


@pytest.fixture
def server() -> Iterator[Server]:
    """What stands in the place of the proxy."""
    with serving() as running:
        yield running


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    """A server that is not the proxy."""
    with serving() as running:
        yield running


@pytest.fixture
def trip(server: Server) -> Workflow:
    """A workflow of a tenant."""
    return Workflow("trip-1", proxy=server.url, headers={"X-Tenant": "ann"})


@ALL
def test_writes_are_numbered_in_call_order_and_reads_are_not(opened: Open, server: Server, trip: Workflow) -> None:
    """POST, PUT, PATCH and DELETE take the next number; GET, HEAD and OPTIONS none; every one has the fields of the scope."""
    with opened(trip) as driver:
        for method in ("POST", "GET", "PUT", "HEAD", "PATCH", "OPTIONS", "DELETE"):
            driver.send(method, "/things/1")

    assert ["1", None, "2", None, "3", None, "4"] == server.steps
    assert {"ann"} == {each.fields.get("x-tenant") for each in server.got}
    assert {("1", "trip-1"), ("2", "trip-1"), ("3", "trip-1"), ("4", "trip-1")} == {
        (each.step, each.fields["workflow-id"]) for each in server.got if each.step
    }


@ALL
def test_a_call_that_names_its_operation_itself_takes_no_number(opened: Open, server: Server, trip: Workflow) -> None:
    """With a key, or a step, of its own it gets the workflow's id alone; with another workflow's id nothing."""
    with opened(trip) as driver:
        driver.send("POST", "/", headers={"Idempotency-Key": "order-1"})
        driver.send("POST", "/", headers={"Workflow-Step": "charge"})
        driver.send("POST", "/", headers=trip.named_step("mail"))
        driver.send("POST", "/", headers={"Workflow-Id": "trip-2"})
        driver.send("POST", "/", headers={"Workflow-Action": "hold seat", "x-tenant": "bob"})

    names = ("workflow-id", "workflow-step", "workflow-action", "idempotency-key", "x-tenant")
    assert [
        ("trip-1", None, None, "order-1", "ann"),
        ("trip-1", "charge", None, None, "ann"),
        ("trip-1", "mail", None, None, "ann"),
        ("trip-2", None, None, None, "ann"),
        ("trip-1", "1", "hold seat", None, "bob"),
    ] == [tuple(each.fields.get(name) for name in names) for each in server.got]


@ALL
def test_calls_to_others_are_left_as_they_are(opened: Open, server: Server, elsewhere: Server, trip: Workflow) -> None:
    """Another port is another server, of which a write is warned of once; another name of loopback is the same."""
    with opened(trip) as driver:
        driver.send("GET", f"{elsewhere.url}/")
        with pytest.warns(UnprotectedCallWarning, match="a retry acts again"):
            driver.send("POST", f"{elsewhere.url}/")
        driver.send("POST", f"{elsewhere.url}/")
        driver.send("POST", f"{server.url}/".replace("127.0.0.1", "localhost"))

    assert ["1"] == server.steps
    assert [set()] * 3 == [{"workflow-id", "workflow-step", "x-tenant"} & each.fields.keys() for each in elsewhere.got]


@ALL
def test_a_call_that_got_no_answer_keeps_its_number(opened: Open, server: Server, trip: Workflow) -> None:
    """The same call again is the same step, and none with another number leaves before; once answered, it is a new step."""
    server.answers.append(Answer(0))
    with opened(trip) as driver:
        with pytest.raises(LOST):
            driver.send("POST", "/charges", {"amount": 1})
        with pytest.raises(OutcomeUnknownError, match="no answer came") as held:
            driver.send("POST", "/charges", {"amount": 1, "note": "the same in other words"})
        driver.send("POST", "/charges", {"amount": 1})
        driver.send("POST", "/mails", {"to": "ann"})
        driver.send("POST", "/charges", {"amount": 1})

    assert ("1", "unknown", "after_check") == (held.value.step, held.value.executed, held.value.retry)
    assert ["1", "1", "2", "3"] == server.steps


@ALL
def test_an_error_of_somebody_in_between_leaves_the_outcome_unknown(opened: Open, server: Server, trip: Workflow) -> None:
    """A 504 that does not say whose it is, such as a load balancer's, is given to the caller; no other number leaves then."""
    server.answers.append(Answer(504, {}))
    with opened(trip) as driver:
        got = driver.send("POST", "/charges", {"amount": 1})
        with pytest.raises(OutcomeUnknownError, match="504 from somebody who is not idemproxy"):
            driver.send("POST", "/charges", {"amount": 2})
        trip.go_on("1")
        driver.send("POST", "/charges", {"amount": 2})

    assert 504 == got.status
    assert ["1", "2"] == server.steps


@ALL
def test_a_call_that_was_not_carried_out_keeps_its_number(opened: Open, server: Server, trip: Workflow) -> None:
    """After what the upstream has refused, such as a 429, the same call again is the same step: a replay finds it there."""
    server.answers.append(Answer(429, {"Idempotency-Status": 'refused; key="00"'}))
    with opened(trip) as driver:
        for _ in range(3):
            driver.send("POST", "/charges", {"amount": 1})

    assert ["1", "1", "2"] == server.steps


@ALL
def test_what_aiohttp_and_others_retry_themselves_is_one_call(opened: Open, server: Server, trip: Workflow) -> None:
    """A PUT on a connection that was kept may be sent again by the client: with the same number."""
    server.answers += [Answer(), Answer(0)]
    with opened(trip) as driver:
        driver.send("POST", "/", {"n": 1})
        try:
            driver.send("PUT", "/", {"n": 2})
        except LOST:
            driver.send("PUT", "/", {"n": 2})
        driver.send("POST", "/", {"n": 3})

    assert ["1", "2", "2", "3"] == server.steps


@ALL
def test_a_redirect_is_the_same_call(opened: Open, server: Server, trip: Workflow) -> None:
    """307 keeps the method, and the step; 303 becomes a read; the next call has the next number."""
    server.answers += [
        Answer(307, {"Location": "/there", "Idempotency-Status": "executed"}),
        Answer(),
        Answer(303, {"Location": "/seen", "Idempotency-Status": "executed"}),
    ]
    with opened(trip) as driver:
        driver.send("POST", "/here", {"n": 1})
        driver.send("POST", "/here", {"n": 2})
        driver.send("POST", "/here", {"n": 3})

    assert [("POST", "/here"), ("POST", "/there"), ("POST", "/here"), ("GET", "/seen"), ("POST", "/here")] == [
        (each.method, each.path) for each in server.got
    ]
    assert ["1", "1", "2", "3"] == [each.step for each in server.got if each.method == "POST"]


@ALL
def test_a_write_that_is_redirected_to_a_read_is_over(opened: Open, server: Server, trip: Workflow) -> None:
    """Of the read the proxy says nothing; the same write once more is another one, whatever the read got."""
    for read in (Answer(200, {}), NOT_SENT, Answer(200, {})):
        server.answers += [Answer(303, {"Location": "/seen", "Idempotency-Status": "executed"}), read]
    with opened(trip) as driver:
        driver.send("POST", "/here", {"n": 1})
        with pytest.raises(NotSentError):
            driver.send("POST", "/here", {"n": 1})
        driver.send("POST", "/here", {"n": 1})

    assert ["1", "2", "3"] == [each.step for each in server.got if each.method == "POST"]


@ALL
def test_a_redirect_after_which_nobody_knows_is_raised(opened: Open, server: Server, trip: Workflow) -> None:
    """Also where the read behind it has been answered; the same call again is the same step."""
    server.answers += [Answer(303, {"Location": "/seen", "Idempotency-Status": "unknown"}), Answer(200, {})]
    with opened(trip) as driver:
        with suppress(OutcomeUnknownError):
            driver.send("POST", "/here", {"n": 1})
            pytest.fail("nothing was raised")
        with pytest.raises(OutcomeUnknownError, match="This call was not sent"):
            driver.send("POST", "/here", {"n": 2})
        driver.send("POST", "/here", {"n": 1})

    assert ["1", "1"] == [each.step for each in server.got if each.method == "POST"]


@ALL
def test_a_call_that_is_lost_behind_a_redirect_keeps_its_number(opened: Open, server: Server, trip: Workflow) -> None:
    """Made again from where it began, it is the same step."""
    redirected = Answer(307, {"Location": "/there", "Idempotency-Status": "executed"})
    server.answers += [redirected, Answer(0), redirected, Answer(429, {"Idempotency-Status": "refused"}), redirected]
    with opened(trip) as driver:
        with pytest.raises(LOST):
            driver.send("POST", "/here", {"n": 1})
        for _ in range(2):
            driver.send("POST", "/here", {"n": 1})
        driver.send("POST", "/here", {"n": 1})

    assert ["/here", "/there", "/here", "/there", "/here", "/there", "/here"] == [each.path for each in server.got]
    assert [*["1"] * 6, "2"] == server.steps


@ALL
def test_nothing_of_ours_follows_a_redirect_to_others(opened: Open, server: Server, elsewhere: Server, trip: Workflow) -> None:
    """Neither the workflow nor the fields of the scope are told to another server."""
    server.answers.append(Answer(307, {"Location": f"{elsewhere.url}/", "Idempotency-Status": "executed"}))
    with opened(trip) as driver, pytest.warns(UnprotectedCallWarning, match="does not go through the proxy"):
        driver.send("POST", "/", {"n": 1})

    assert ["1"] == server.steps
    assert [set()] == [{"workflow-id", "workflow-step", "x-tenant"} & each.fields.keys() for each in elsewhere.got]


def test_hooks_that_are_set_later_let_nothing_of_ours_follow_either(server: Server, elsewhere: Server, trip: Workflow) -> None:
    """A client's hooks may be replaced, as a whole or one kind of them; the caller's list stays its own."""
    hooks: list[Callable[[httpx.Request], None]] = []
    with client(trip, follow_redirects=True) as http:
        for _ in range(2):
            server.answers.append(Answer(307, {"Location": f"{elsewhere.url}/", "Idempotency-Status": "executed"}))
        http.event_hooks = {}
        with pytest.warns(UnprotectedCallWarning):
            http.post("/", json={"n": 1})
        http.event_hooks["request"] = hooks
        http.post("/", json={"n": 2})

    assert ["1", "2"] == server.steps
    assert [set()] * 2 == [{"workflow-id", "workflow-step", "x-tenant"} & each.fields.keys() for each in elsewhere.got]
    assert [] == hooks


@ALL
def test_problems_are_raised_and_tell_their_call(opened: Open, server: Server, trip: Workflow) -> None:
    """The exception is the slug's, with a note of the step, also after pickling; the step's number stays for the same call."""
    server.answers.append(NOT_SENT)
    with opened(trip) as driver:
        with pytest.raises(NotSentError) as caught:
            driver.send("POST", "/charges", {"amount": 1})
        driver.send("POST", "/charges", {"amount": 1})

    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert ("no", "same_key", 502) == (error.executed, error.retry, error.status)
    assert [f"step 1 of workflow trip-1: POST {server.url}/charges"] == error.__notes__
    assert ["1", "1"] == server.steps


@ALL
def test_problems_of_reads_are_raised_too(opened: Open, server: Server, trip: Workflow) -> None:
    """A read that the proxy refuses is no answer of the API either."""
    server.answers.append(Answer(400, NOT_SENT.fields, PROBLEM.replace(b"not-sent", b"bad-request")))
    with opened(trip) as driver, pytest.raises(BadRequestError):
        driver.send("GET", "/charges")


@ALL
def test_problems_of_the_api_are_left_to_the_caller(opened: Open, server: Server, trip: Workflow) -> None:
    """A problem document without our Proxy-Status is an answer like any other."""
    server.answers.append(Answer(422, {"Content-Type": "application/problem+json", "Idempotency-Status": "executed"}, PROBLEM))
    with opened(trip) as driver:
        assert 422 == driver.send("POST", "/charges", {"amount": 1}).status


def test_retries_of_urllib3_are_one_call(server: Server, trip: Workflow) -> None:
    """An adapter with retries may be mounted in a session; what it sends again has the same number."""
    server.answers += [Answer(503, {}), Answer(0), Answer()]
    with Requests(trip) as driver:
        retry = Retry(3, status_forcelist=[503], allowed_methods=None, backoff_factor=0)
        driver.session.mount("http://", HTTPAdapter(max_retries=retry))
        driver.send("POST", "/charges", {"amount": 1})
        driver.send("POST", "/charges", {"amount": 2})

    assert ["1", "1", "1", "2"] == server.steps


def test_a_flow_of_authentication_is_one_call(server: Server, trip: Workflow) -> None:
    """What is sent a second time, with an answer to a challenge, has the same number; the caller's hooks are asked as ever."""
    challenge = {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"', "Idempotency-Status": "refused"}
    server.answers.append(Answer(401, challenge))
    seen: list[str] = []

    def hook(request: httpx.Request) -> None:
        seen.append(request.headers["Workflow-Step"])

    with client(trip, auth=httpx.DigestAuth("ann", "secret"), event_hooks={"request": [hook]}) as http:
        http.post("/charges", json={"amount": 1})
        http.post("/charges", json={"amount": 1})

    assert ["1", "1", "2"] == server.steps == seen


def test_a_prepared_request_that_is_sent_again_is_the_same_call(server: Server, trip: Workflow) -> None:
    """A loop that sends one request object until it works has one step; the same content later is another."""
    server.answers.append(Answer(0))
    with client(trip) as http:
        request = http.build_request("POST", "/charges", json={"amount": 1})
        with pytest.raises(httpx.TransportError):
            http.send(request)
        http.send(request)
        http.post("/charges", json={"amount": 1})

    assert ["1", "1", "2"] == server.steps


def test_bodies_that_cannot_be_compared_are_new_calls(server: Server, trip: Workflow) -> None:
    """Of a stream nobody knows whether it is the same again: it takes a number each time, unless it is given one."""
    server.answers += [Answer(429, {"Idempotency-Status": "refused"})] * 2
    fields = trip.named_step("upload")
    with client(trip) as http:
        for _ in range(2):
            http.post("/files", content=iter([b"a", b"b"]))
        for _ in range(2):
            http.post("/files", content=iter([b"a", b"b"]), headers=fields)

    assert ["1", "2", "upload", "upload"] == server.steps


def _begun(trip: Workflow, body: bytes = b"{}", url: str = "/charges") -> Call:
    call = trip.calls.begin("POST", trip.proxy + url, {"Content-Type": "application/json"}, body, numbered=True)
    assert call is not None
    return call


def test_two_equal_calls_that_were_lost_side_by_side_keep_their_numbers(trip: Workflow) -> None:
    """Each is made again under one of the two."""
    for call in [_begun(trip) for _ in range(2)]:
        call.lost(OSError())
    again = [_begun(trip) for _ in range(2)]
    for call in again:
        call.answered(201, {"Idempotency-Status": "executed"}, None, None)

    assert ["1", "2", "3"] == [call.headers["Workflow-Step"] for call in [*again, _begun(trip)]]


def test_of_two_equal_calls_the_one_in_doubt_is_made_again_first(trip: Workflow) -> None:
    """The other one could not leave before."""
    refused, lost = (_begun(trip) for _ in range(2))
    refused.answered(429, {"Idempotency-Status": "refused"}, None, None)
    lost.lost(OSError())

    assert "2" == _begun(trip).headers["Workflow-Step"]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (b'{"amount": 1, "to": {"a": "x", "b": null}}', b'{"to":{"b":null,"a":"\\u0078"},"amount":1}', True),
        (b'{"amount": 1}', b'{"amount": "1"}', False),
        (b'{"amount": 1}', b'{"amount": true}', False),
        (b"[1, 2]", b"[2, 1]", False),
        (b'{"a": 1, "a": 2}', b'{"a":1,"a":2}', False),
        (b"no JSON", b"no JSON", True),
        (b"[" * 100_000, b"[" * 100_000, True),
        (b"[1e999]", b"[2e999]", False),
    ],
    ids=lambda value: None if isinstance(value, bool) else repr(value[:30]),
)
def test_json_of_one_value_is_the_same_call(first: bytes, second: bytes, *, is_same: bool, trip: Workflow) -> None:
    """As it is for the proxy, in whatever order and spelling a loop makes it anew."""
    _begun(trip, first).answered(429, {"Idempotency-Status": "refused"}, None, None)

    assert ("1" if is_same else "2") == _begun(trip, second).headers["Workflow-Step"]


def test_a_text_that_could_be_json_is_compared_as_it_is(trip: Workflow) -> None:
    """As the proxy does, which looks at the content type."""
    for body in (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}'):
        call = trip.calls.begin("POST", trip.proxy, {"Content-Type": "text/plain"}, body, numbered=True)
        assert call is not None
        call.answered(429, {"Idempotency-Status": "refused"}, None, None)

    assert 2 == trip.position


@ALL
def test_an_action_that_no_header_can_carry_is_refused(opened: Open, server: Server, trip: Workflow) -> None:
    """It is told before anything is sent, and takes no number."""
    with opened(trip) as driver:
        with pytest.raises(ValueError, match=r"an action is|ordinal not in range"):
            driver.send("POST", "/seats", {"seat": 1}, {"Workflow-Action": "Sitz wählen"})
        driver.send("POST", "/seats", {"seat": 1}, {"Workflow-Action": "choose a seat"})

    assert ["1"] == server.steps


@pytest.mark.parametrize("opened", [client, async_client, session])
@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9", "https://api.example.com/v1", ""])
def test_a_base_url_that_is_not_the_proxy_is_refused(opened: Callable[..., object], base_url: str, trip: Workflow) -> None:
    """A client whose calls would go past the proxy is not made."""
    with pytest.raises(ValueError, match="base_url is at the proxy"):
        opened(trip, base_url=base_url)


def test_a_base_url_of_an_upstream_is_put_before_paths(server: Server, trip: Workflow) -> None:
    """With several upstreams behind the proxy a client may be one's."""
    with client(trip, base_url=f"{server.url}/payments") as http, session(trip, base_url=f"{server.url}/payments") as kept:
        http.post("/charges")
        kept.post("/charges")
        kept.post("charges")
        kept.post(f"{server.url}/mail/messages")

    assert [*["/payments/charges"] * 3, "/mail/messages"] == [each.path for each in server.got]
    assert ["1", "2", "3", "4"] == server.steps


def test_a_session_waits_for_longer_than_the_proxy_takes(server: Server, trip: Workflow) -> None:
    """130 seconds as with httpx, unless the session, or the call, has another timeout."""
    seen: list[object] = []

    class Watching(HTTPAdapter):
        def send(self, *arguments: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401  # the keywords are the adapter's
            seen.append(kwargs["timeout"])
            return super().send(*arguments, **kwargs)

    for kept in (session(trip), session(trip, timeout=7)):
        with kept:
            kept.mount("http://", Watching())
            kept.post("/")
            kept.post("/", timeout=3)

    with client(trip) as http:
        assert httpx.Timeout(130) == http.timeout
    assert [130, 3, 7, 3] == seen


def test_a_page_that_is_too_deep_is_told_as_no_proxys(server: Server, trip: Workflow) -> None:
    """What cannot be read is an exception that can be caught, and no RecursionError."""
    deep = b"[" * 100_000 + b"]" * 100_000
    server.answers.append(Answer(200, {"Proxy-Status": "idemproxy"}, deep))
    with pytest.raises(ProxyUnreachableError):
        trip.checkpoint()
    server.answers.append(Answer(502, NOT_SENT.fields, deep))
    with pytest.raises(ProxyUnreachableError):
        trip.checkpoint()


@pytest.mark.parametrize("fields", [{}, {"Proxy-Status": "idemproxy"}])
def test_somebody_who_answers_other_json_is_no_proxy(fields: dict[str, str], server: Server, trip: Workflow) -> None:
    """A 200 of any server, or of a proxy that has other pages, is told as an exception that can be caught."""
    server.answers += [Answer(200, fields, body) for body in (b'{"hello": 1}', b"[]", b"null")]
    for _ in range(3):
        with pytest.raises(ProxyUnreachableError, match="is not an idemproxy"):
            trip.checkpoint()


def test_what_somebody_else_answers_is_no_memory(server: Server, trip: Workflow) -> None:
    """JSON that is not said to be the proxy's is not taken for what was saved."""
    server.answers.append(Answer(200, {"ETag": '"1"'}, b'{"hello": 1}'))
    with pytest.raises(ProxyUnreachableError, match="is not an idemproxy with this page"):
        trip.load_memory()
