"""A probe asks what the client would ask, believes only what is said plainly, and takes nothing from a retry that may differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.fingerprint import FingerprintRule
from idemproxy.core.message import Answer, Fields, Request
from idemproxy.core.probe import (
    Done,
    NotDone,
    ProbeError,
    ProbeRule,
    Unclear,
    check_compared,
    check_probe,
    judge_probe,
    probe_request,
)

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)
RULE = ProbeRule(get="/seats?ref={key}", found="bookings[0]", absent="length(bookings) == `0`", absent_status=frozenset({404}))
ASKED = ((b"Accept", b"application/json"), (b"Accept-Encoding", b"identity"), (b"Cache-Control", b"no-cache"))


def asked(rule: ProbeRule, *fields: tuple[bytes, bytes], key: str = "k-1", body: bytes = b"{}") -> Request:
    """The probe that is asked for a POST with these fields and this body."""
    return probe_request(rule, Request("POST", b"/airline/seats?a=b", fields, body), key, b"idempotency-key")


def refused(rule: ProbeRule, *fields: tuple[bytes, bytes], key: str = "k-1", body: bytes = b"{}") -> str:
    """Why no probe can be asked for it."""
    with pytest.raises(ProbeError) as caught:
        asked(rule, *fields, key=key, body=body)
    return str(caught.value)


# The question


def test_a_probe_is_a_get_with_the_clients_fields() -> None:
    """Credentials, host and the client's own fields go along in their order; what speaks of body, key and wishes does not."""
    kept: Fields = ((b"Host", b"proxy"), (b"Authorization", b"Bearer a"), (b"x-tenant", b"t"), (b"Cookie", b"c=1"))
    dropped: Fields = (
        (b"Idempotency-KEY", b'"k-1"'),
        (b"Content-Type", b"application/json"),
        (b"content-length", b"2"),
        (b"Content-Digest", b"d"),
        (b"Digest", b"d"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Expect", b"100-continue"),
        (b"Prefer", b"wait=5"),
        (b"If-Match", b'"e"'),
        (b"Range", b"bytes=0-1"),
        (b"X-HTTP-Method-Override", b"DELETE"),
        (b"Accept", b"*/*"),
        (b"Accept-Encoding", b"gzip"),
        (b"Cache-Control", b"max-stale"),
    )

    assert Request("GET", b"/seats?ref=k-1", kept + ASKED) == asked(RULE, *kept[:2], *dropped, *kept[2:])


def test_a_client_that_accepts_some_json_keeps_its_accept() -> None:
    """Some APIs have their version in it."""
    accept = (b"accept", b"application/vnd.api.v2+JSON")

    assert (accept, *ASKED[1:]) == asked(RULE, accept).fields


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("a/b?c&d=e#f%20+{g}", b"/seats?ref=a%2Fb%3Fc%26d%3De%23f%2520%2B%7Bg%7D"),
        ("{key}", b"/seats?ref=%7Bkey%7D"),
        ("A-z_0.9~", b"/seats?ref=A-z_0.9~"),
        ("..", b"/seats?ref=.."),
    ],
)
def test_a_value_cannot_leave_its_place(key: str, target: bytes) -> None:
    """Whatever stands in a key is percent-encoded, so it is one value of the target and nothing else."""
    assert target == asked(RULE, key=key).target


def test_all_values_find_their_places() -> None:
    """Key, workflow, step, and values of the body, each as often as it is named."""
    rule = replace(RULE, get="/w/{workflow}/{step}/{ref}?k={key}&r={ref}&n={n}", from_request=(("ref", "a.ref"), ("n", "a.n[0]")))

    probe = asked(rule, (b"Workflow-Id", b'"flow/1"'), (b"workflow-step", b"12"), body=b'{"a":{"ref":"\xc3\xa9/","n":[7]}}')

    assert b"/w/flow%2F1/12/%C3%A9%2F?k=k-1&r=%C3%A9%2F&n=7" == probe.target


@pytest.mark.parametrize(
    ("written", "target"),
    [
        (b'"x"', b"x"),
        (b"0", b"0"),
        (b"-12", b"-12"),
        (b"1.10", b"1.10"),
        (b"12345678901234567890", b"12345678901234567890"),
        (b"true", b"true"),
        (b"false", b"false"),
    ],
)
def test_a_scalar_of_the_body_is_told_as_it_was_written(written: bytes, target: bytes) -> None:
    """Numbers keep their spelling: an id of twenty digits is not rounded."""
    rule = replace(RULE, get="/{v}", from_request=(("v", "v"),))

    assert b"/" + target == asked(rule, body=b'{"v":%b}' % written).target


NOT_JSON = "the probe needs values of the request's body, and that is not JSON in plain UTF-8"
NO_SCALAR = "from_request.v finds a list or an object in the request's body, and a target holds text"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", "from_request.v finds nothing in the request's body"),
        (b'{"v":null}', "from_request.v finds nothing in the request's body"),
        (b'{"v":""}', "the value of {v} is empty"),
        (b'{"v":[1]}', NO_SCALAR),
        (b'{"v":{}}', NO_SCALAR),
        (b'{"v":"%b"}' % (b"x" * 1_001), "the value of {v} has more than 1000 characters"),
        (b'{"v":"\\ud800"}', "the value of {v} is no well-formed text"),
        (b'{"v":".."}', "a value would be . or .. in the path, which leads elsewhere"),
        (b"", NOT_JSON),
        (b"v=1", NOT_JSON),
        (b'{"v":1,"v":2}', NOT_JSON),
        (b'{"v":"\xff"}', NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
    ],
)
def test_a_value_that_is_no_value_is_not_asked_for(body: bytes, reason: str) -> None:
    """Without one sure value there is no question, and the reason repeats nothing of the body."""
    assert reason == refused(replace(RULE, get="/{v}/x", from_request=(("v", "v"),)), body=body)


def test_an_expression_that_fails_asks_nothing() -> None:
    """A function that is given the wrong type is a reason like another."""
    rule = replace(RULE, get="/{v}", from_request=(("v", "length(v)"),))

    assert "from_request.v fails on the request's body" == refused(rule, body=b'{"v":1}')


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((), "the request has no workflow-id, and the probe needs one"),
        (
            ((b"workflow-id", b"a"), (b"Workflow-Id", b"a")),
            "the fields of the workflow name no single one: the Workflow-Id is given 2 times, and one operation has one",
        ),
        (((b"workflow-id", b""),), "the fields of the workflow name no single one: the Workflow-Id is empty"),
        (
            ((b"workflow-id", b"caf\xe9"),),
            (
                "the fields of the workflow name no single one: "
                "the Workflow-Id holds a space, or another character that is not visible ASCII"
            ),
        ),
    ],
)
def test_a_workflow_that_has_no_single_name_is_not_asked_for(fields: Fields, reason: str) -> None:
    """`{workflow}` and `{step}` are one field line each."""
    assert reason == refused(replace(RULE, get="/{workflow}"), *fields)


@pytest.mark.parametrize("key", [".", ".."])
def test_a_key_does_not_change_the_path(key: str) -> None:
    """`/bookings/..` would be another resource to most servers, found or not."""
    assert "a value would be . or .. in the path, which leads elsewhere" == refused(replace(RULE, get="/bookings/{key}"), key=key)


@PROPERTY
@given(key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20))
def test_whatever_the_key_the_target_has_the_same_form(key: str) -> None:
    """No key adds a segment, a parameter or a fragment."""
    target = asked(replace(RULE, get="/a/x{key}/b?c={key}&d=1"), key=key).target

    assert [3, 1, 1, 0] == [target.count(separator) for separator in (b"/", b"?", b"&", b"#")]


# The verdict


def verdict(body: bytes, status: int = 200, **changes: Any) -> Done | NotDone | Unclear:  # noqa: ANN401 - any setting of a rule
    """What an answer with this body proves under the rule, with some settings changed."""
    return judge_probe(replace(RULE, **changes), status, body)


def done(body: bytes, status: int = 200, reason: bytes = b"OK") -> Done:
    """The verdict that the operation happened, with this answer."""
    return Done(Answer(status, reason, ((b"Content-Type", b"application/json"),), body))


NEITHER = Unclear("the probe's answer is neither found nor absent")
BOTH = Unclear("the probe's answer is both found and absent")


def no_json(status: int = 200) -> Unclear:
    """The verdict on a body that cannot be read."""
    return Unclear(f"the probe was answered with {status} and a body that is not JSON")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"bookings": [{"id": 7}]}', done(b'{"id":7}')),
        (203, b'{"bookings": [{"id": 7}]}', done(b'{"id":7}')),
        (200, b'{"bookings": []}', NotDone()),
        (404, b"", NotDone()),
        (404, b'{"bookings": [{"id": 7}]}', NotDone()),
        (200, b'{"bookings": [null]}', NEITHER),
        (200, b"{}", Unclear("an expression fails on the probe's answer (JMESPathTypeError)")),
        (200, b'{"bookings": 5}', Unclear("an expression fails on the probe's answer (JMESPathTypeError)")),
        (200, b"", no_json()),
        (204, b"", no_json(204)),
        (200, b"<html>", no_json()),
        (200, b'\xef\xbb\xbf{"bookings": []}', no_json()),
        (200, b'{"bookings": [1], "bookings": []}', no_json()),
        (200, b'{"bookings": "\xff"}', no_json()),
        (200, b"[" * 100_000, no_json()),
        *(
            (status, b'{"bookings": []}', Unclear(f"the probe was answered with {status}"))
            for status in (101, 302, 401, 410, 429, 503)
        ),
    ],
)
def test_an_answer_proves_what_it_plainly_says(status: int, body: bytes, expected: Done | NotDone | Unclear) -> None:
    """Found and not absent is done, absent and not found is not done, and everything else is unclear."""
    assert expected == verdict(body, status)


@pytest.mark.parametrize(
    ("value", "is_true"),
    [
        (b"null", False),
        (b"false", False),
        (b'""', False),
        (b"[]", False),
        (b"{}", False),
        (b"0", True),
        (b"0.0", True),
        (b"true", True),
        (b'" "', True),
        (b"[null]", True),
        (b'{"a":null}', True),
    ],
)
def test_truth_is_that_of_jmespath(value: bytes, *, is_true: bool) -> None:
    """Null, false and what is empty are false; 0 is true."""
    body = b'{"v":%b}' % value

    assert (done(value) if is_true else NEITHER) == verdict(body, found="v", absent=None)
    assert (NotDone() if is_true else NEITHER) == verdict(body, found="none", absent="v")


def test_found_and_absent_at_once_is_unclear() -> None:
    """An answer that says both is believed in neither."""
    assert BOTH == verdict(b'{"a": 1, "b": 2}', found="a", absent="b")


def test_without_an_expression_for_absence_nothing_but_a_status_says_so() -> None:
    """What is merely not found may be late, filtered or on another page."""
    assert NEITHER == verdict(b'{"bookings": []}', absent=None)


@pytest.mark.parametrize("written", [b"12345678901234567890123", b"9007199254740993", b"1.10", b"1e400", b"-0.0", b"1E2"])
def test_numbers_are_given_as_the_upstream_wrote_them(written: bytes) -> None:
    """No number of the probe's answer is rounded or respelled on its way to the caller."""
    assert done(b'{"id":%b}' % written) == verdict(b'{"bookings": [ { "id" : %b } ]}' % written)


@pytest.mark.parametrize(
    ("written", "given"),
    [
        (b'"\\u00e9\\n\\"\xc3\xa9"', b'"\xc3\xa9\\n\\"\xc3\xa9"'),
        (b'"\\ud800"', b'"\\ud800"'),
        (b'["a", {"b": [true, false, null]}]', b'["a",{"b":[true,false,null]}]'),
        (b'{"z": 1, "a": 2}', b'{"z":1,"a":2}'),
    ],
)
def test_the_answer_is_compact_json_in_the_order_of_the_upstream(written: bytes, given: bytes) -> None:
    """White space goes, and nothing else that has a meaning."""
    assert done(given) == verdict(b'{"bookings": [%b]}' % written)


def test_the_answer_is_mapped() -> None:
    """Status and body are those of the rule, so that callers get what the write would have told them."""
    body = b'{"bookings": [{"id": 7, "seat": "12A"}], "page": 1}'
    mapping = "{id: bookings[0].id, seats: bookings[*].seat}"

    assert done(b'{"id":7,"seats":["12A"]}', 201, b"Created") == verdict(body, answer_status=201, answer_body=mapping)
    assert done(b'{"id":7,"seat":"12A"}', 299, b"") == verdict(body, answer_status=299)


def test_a_mapping_that_finds_nothing_is_unclear() -> None:
    """A wrong mapping is mended in the configuration, not stored as the operation's answer for ever."""
    told = Unclear("the operation was found, but answer.body selects nothing of the probe's answer")

    assert told == verdict(b'{"bookings": [{"id": 7}]}', answer_body="booking")


@pytest.mark.parametrize("mapping", ["length(bookings[0].id)", "[&id]", "bookings[0].id.avg(@)"])
def test_a_mapping_that_fails_is_unclear(mapping: str) -> None:
    """Neither an error of the expression nor a result that is no JSON becomes an answer."""
    assert isinstance(verdict(b'{"bookings": [{"id": 7}]}', answer_body=mapping), Unclear)


@PROPERTY
@given(status=st.integers(100, 599), body=st.binary(max_size=30) | st.sampled_from([b'{"bookings":[1]}', b'{"bookings":[]}']))
def test_only_a_2xx_finds_and_only_a_listed_status_or_a_2xx_misses(status: int, body: bytes) -> None:
    """No body makes a refusal, a redirect or a failure of the upstream say anything of the operation."""
    found = verdict(body, status)

    assert isinstance(found, Unclear) or 200 <= status < 300 or (status == 404 and found == NotDone())


# What is wrong with a rule


def test_a_good_rule_has_no_problems() -> None:
    """The rule of these tests, and one with everything in it, are fine."""
    full = ProbeRule(
        "/a%20b/{key}/{workflow}/{step}?filter[x]={ref}", "@", "a", frozenset({204, 404, 410}), 5.0, (("ref", "a"),), 299, "b"
    )

    assert ([], []) == (check_probe(RULE), check_probe(full))


@pytest.mark.parametrize(
    ("get", "problem"),
    [
        ("seats/{key}", 'begin it with one slash, such as "/bookings?ref={key}"'),
        ("//seats/{key}", 'begin it with one slash, such as "/bookings?ref={key}"'),
        ("/seats", 'it asks the same for every operation: put a value of the request into it, such as "/bookings?ref={key}"'),
        ("/seats/{}", "nothing gives {} a value: there are key, workflow, step; add others to from_request"),
        ("/seats/{ref}/{ref}", "nothing gives {ref} a value: there are key, workflow, step; add others to from_request"),
        *(
            (f"/seats/{{key}}{text}", "a character, or a single brace, does not stand in a path or a query: percent-encode it")
            for text in ("#a", " ", "é", "{", "}", "%", "%2", '"', "\\", "\n")
        ),
        *(
            (f"/{text}/{{key}}", "a part of the path is . or .., which leads elsewhere: write the path that is meant")
            for text in (".", "..", "a/%2E%2e", "a/.%2e")
        ),
    ],
)
def test_a_target_that_cannot_be_asked_is_a_problem(get: str, problem: str) -> None:
    """Each is found before a request has to fail on it."""
    assert [(("get",), problem)] == check_probe(replace(RULE, get=get))


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"found": "a["}, ("found",)),
        ({"found": "nothing(a)"}, ("found",)),
        ({"absent": "a b"}, ("absent",)),
        ({"answer_body": "{"}, ("answer", "body")),
        ({"answer_status": 199}, ("answer", "status")),
        ({"answer_status": 204}, ("answer", "status")),
        ({"answer_status": 300}, ("answer", "status")),
        ({"settle": 4.999}, ("settle",)),
        ({"absent_status": frozenset({200})}, ("absent_status",)),
        ({"absent_status": frozenset({404, 429})}, ("absent_status",)),
        ({"from_request": (("ref", "a"),)}, ("from_request", "ref")),
        ({"get": "/{key}/{Ref}", "from_request": (("Ref", "a"),)}, ("from_request", "Ref")),
        ({"from_request": (("key", "a"),)}, ("from_request", "key")),
        ({"get": "/{key}/{ref}", "from_request": (("ref", "/a"),)}, ("from_request", "ref")),
    ],
)
def test_each_setting_is_checked(changes: dict[str, Any], setting: tuple[str, ...]) -> None:
    """The problem names its setting, once."""
    assert [setting] == [found for found, _ in check_probe(replace(RULE, **changes))]


# What a retry may be asked


@pytest.mark.parametrize(
    ("text", "exclude", "include"),
    [
        ("a", (), ()),
        ("a.b", ("/a/c",), ()),
        ("a.b", ("/b", "c.a.b"), ()),
        ("a[0]", ("/a/1",), ()),
        ("a[0]", ("a[1]",), ()),
        ("a.b", (), ("/a/b",)),
        ("a.b", (), ("/x", "a")),
        ("a.b[0]", (), ("/a/b/0",)),
        ("a.b[-1]", (), ("a.b",)),
        ("a || b", (), ()),
        ("a || b", (), ("a || b",)),
        ("a || b", (), ("",)),
    ],
)
def test_what_is_compared_may_be_asked(text: str, exclude: tuple[str, ...], include: tuple[str, ...]) -> None:
    """A part of the body that the fingerprint compares is the same in every retry."""
    rule = replace(RULE, get="/{v}", from_request=(("v", text),))

    assert [] == check_compared(rule, FingerprintRule(include=include, exclude=exclude))


@pytest.mark.parametrize(
    ("text", "exclude", "include"),
    [
        ("a", ("/a",), ()),
        ("a.b", ("/a",), ()),
        ("a", ("/a/b",), ()),
        ("a[0]", ("/a/0",), ()),
        ("a[0]", ("a[-1]",), ()),
        ("a[-1]", ("/a/3",), ()),
        ("a[0].b", ("a[*].b",), ()),
        ("a.b", ("*.b",), ()),
        ("a.b", ("a[].b",), ()),
        ("a.b.c", ("a[].b.c",), ()),
        ("a || b", ("/c",), ()),
        ("a", (), ("/b",)),
        ("a", (), ("/a/b",)),
        ("a[0]", (), ("a[*]",)),
        ("a[0]", (), ("a[1]",)),
        ("a || b", (), ("/a", "/b")),
        ("a", (), ("length(a)",)),
    ],
)
def test_what_may_differ_in_a_retry_is_not_asked(text: str, exclude: tuple[str, ...], include: tuple[str, ...]) -> None:
    """A value that the fingerprint may leave out could name another operation; a doubtful case counts as such."""
    rule = replace(RULE, get="/{v}", from_request=(("v", text),))

    assert [("from_request", "v")] == [
        setting for setting, _ in check_compared(rule, FingerprintRule(include=include, exclude=exclude))
    ]


@pytest.mark.parametrize(("headers", "expected"), [((), 2), (("workflow-id",), 1), (("workflow-step", "workflow-id"), 0)])
def test_workflow_and_step_must_be_compared(headers: tuple[str, ...], expected: int) -> None:
    """They are fields, and a fingerprint has only the fields that it is told to have."""
    rule = replace(RULE, get="/{workflow}/{step}/{workflow}")

    assert expected == len(check_compared(rule, FingerprintRule(headers=headers)))
