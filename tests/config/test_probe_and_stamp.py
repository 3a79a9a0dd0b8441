"""What is wrong with a probe or a stamp is told where it stands, and a right one arrives with its defaults."""

from __future__ import annotations

import pytest

from idemproxy.core.policy import OnUnknown
from idemproxy.core.probe import ProbeRule
from idemproxy.core.stamp import StampRule
from tests.config.conftest import Complaints, Load

UPSTREAM = "upstreams: {api: {url: 'http://127.0.0.1:9000', forward_key: 'rename:X-Their-Key'}}\n"
ROUTE = UPSTREAM + "routes:\n- name: one\n  upstream: api\n  %s\n"
PROBED = ROUTE % "on_unknown: probe\n  probe:\n    get: %s\n    found: seats\n    %s\n"
NOT_COMPARED = "so a retry could say something else there"
UNSEEN = (
    "asks for {key}, which the upstream never sees: it would find nothing, and where that absence is believed the write happens "
    "twice; write the key into the request with `stamp`, let it through with `forward_key: same`, or ask for a value of the body "
    "with `from_request`"
)

WRONG: dict[str, tuple[str, list[str]]] = {
    "a policy without a probe": (
        ROUTE % "on_unknown: probe",
        [
            (
                "5: routes[0].on_unknown: needs `probe`, which says how: add it, such as "
                'probe: {get: "/bookings?ref={key}", found: "bookings[0]"}'
            )
        ],
    ),
    "a probe without its policy": (
        ROUTE % "probe: {get: '/a/{key}', found: id}",
        ["5: routes[0].probe: is never asked: add `on_unknown: probe` to the route, or delete it"],
    ),
    "a probe under another policy": (
        ROUTE % "on_unknown: hold\n  probe: {get: '/a/{key}', found: id}",
        ["6: routes[0].probe: is never asked: add `on_unknown: probe` to the route, or delete it"],
    ),
    "a probe that does not say enough": (
        ROUTE % "on_unknown: probe\n  probe: {settle: 10s}",
        ["6: routes[0].probe.get: is missing: add it", "6: routes[0].probe.found: is missing: add it"],
    ),
    "a probe that is none": (
        ROUTE % "on_unknown: probe\n  probe: /a",
        ["6: routes[0].probe: must be a mapping"],
    ),
    "many problems of one probe": (
        PROBED
        % (
            "'/a?b={kye}'",
            (
                "foundd: a\n    absent: 'a['\n    absent_status: [404, 500]\n    settle: 1s\n    from_request: {key: a.b}\n"
                "    answer: {status: 404, body: nothing()}"
            ),
        ),
        [
            "7: routes[0].probe.get: nothing gives {kye} a value: there are key, workflow, step; add others to from_request",
            "9: routes[0].probe.foundd: unknown key (did you mean 'found'?)",
            '10: routes[0].probe.absent: "a[": it is no JMESPath expression: Invalid jmespath expression: Incomplete expression',
            "11: routes[0].probe.absent_status: 500 does not say that there is no such thing: only 204, 404 and 410 can",
            (
                "12: routes[0].probe.settle: 1s is too short: what a broken attempt has sent may still arrive and be acted on "
                "when its outcome is already unknown, so at least 5s"
            ),
            "13: routes[0].probe.from_request.key: {key} has a meaning of its own: choose another name",
            '14: routes[0].probe.answer.body: "nothing()": JMESPath has no function nothing()',
            (
                "14: routes[0].probe.answer.status: 404 does not fit: the operation happened, and its answer has a body; "
                "use 200 to 299, but not 204 and 205"
            ),
        ],
    ),
    "what a retry may say in another way": (
        PROBED % ("'/a/{workflow}/{at}'", "from_request: {at: sent.at}\n  fingerprint: {exclude: [/sent]}"),
        [
            (
                "7: routes[0].probe.get: a retry could say another {workflow} than the first request: "
                "add workflow-id to fingerprint.headers"
            ),
            f'9: routes[0].probe.from_request.at: "sent.at": fingerprint.exclude may leave it out, {NOT_COMPARED}',
        ],
    ),
    "a probe for a key that the upstream never sees": (
        (PROBED % ("'/a?ref={key}'", "")).replace("rename:X-Their-Key", "strip"),
        [f"7: routes[0].probe.get: {UNSEEN}"],
    ),
    "a probe for a key that the route keeps from the upstream": (
        PROBED % ("'/a?ref={key}'", "\n  forward_key: strip"),
        [f"7: routes[0].probe.get: {UNSEEN}"],
    ),
    "a stamp without a place": (
        ROUTE % "stamp: {}",
        ["5: routes[0].stamp: must name one place: {header: Name}, {json: /pointer} or {form: name}"],
    ),
    "a stamp in two places": (
        ROUTE % "stamp: {json: /a, form: a}",
        ["5: routes[0].stamp: must name one place: {header: Name}, {json: /pointer} or {form: name}"],
    ),
    "a stamp in no place that there is": (
        ROUTE % "stamp: {query: a}",
        [
            "5: routes[0].stamp.query: unknown key; known here: header, json, form",
            "5: routes[0].stamp: must name one place: {header: Name}, {json: /pointer} or {form: name}",
        ],
    ),
    "a stamp that is no pointer": (
        ROUTE % "stamp:\n    json: a.b",
        ["6: routes[0].stamp.json: 'a.b' is no JSON Pointer to a member: begin it with a slash, as in /metadata/ref (RFC 6901)"],
    ),
    "a stamp in a field that HTTP needs": (
        ROUTE % "stamp: {header: Content-Type}",
        ["5: routes[0].stamp.header: 'Content-Type' has a meaning of its own in every message: choose another field"],
    ),
    "a stamp where the key stands": (
        ROUTE % "stamp: {header: idempotency-key}",
        [
            (
                "5: routes[0].stamp.header: 'idempotency-key' is the field of the key itself, of which `forward_key` decides: "
                "choose another one"
            )
        ],
    ),
    "a stamp where the key is forwarded": (
        ROUTE % "stamp: {header: X-Their-Key}",
        [
            (
                "5: routes[0].stamp.header: 'X-Their-Key' is the field of the key itself, of which `forward_key` decides: "
                "choose another one"
            )
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_each_problem_is_told_where_it_stands(text: str, expected: list[str], complaints: Complaints) -> None:
    """A wrong probe or stamp is reported exactly so, with the line of the very value, and with nothing else."""
    assert [f"idemproxy.yaml:{line}" for line in expected] == complaints(text)


def test_a_short_probe_has_the_defaults_of_the_core(loaded: Load) -> None:
    """A probe that says only how to ask and what to find is the core's with its defaults."""
    [route] = loaded(ROUTE % "on_unknown: probe\n  probe: {get: '/a/{key}', found: id}").settings.routes

    assert (OnUnknown.PROBE, ProbeRule("/a/{key}", "id")) == (route.policy.on_unknown, route.policy.probe)


@pytest.mark.parametrize("compared", ["exclude: [/sent]", "include: [/order]", "headers: [Workflow-Id]"])
def test_what_the_fingerprint_compares_may_be_asked_for(compared: str, complaints: Complaints) -> None:
    """Values that a retry must repeat are fine, in whatever way the fingerprint compares them."""
    name = "{workflow}" if "headers" in compared else "{order}"
    more = "" if "headers" in compared else "from_request: {order: order.id}"

    assert [] == complaints(PROBED % (f"'/a/{name}'", f"{more}\n  fingerprint: {{{compared}}}"))


@pytest.mark.parametrize("more", ["stamp: {json: /ref}", "forward_key: same", "forward_key: 'rename:X-Ref'", "profile: native"])
def test_a_key_that_the_upstream_sees_may_be_asked_for(more: str, complaints: Complaints) -> None:
    """A stamp, a forwarded key, or a profile that forwards it: the probe can find what it asks for."""
    text = (PROBED % ("'/a?ref={key}'", f"\n  {more}")).replace(", forward_key: 'rename:X-Their-Key'", "")

    assert [] == complaints(text)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{header: X-Ref}", StampRule("header", "X-Ref")),
        ("{json: /a/ref}", StampRule("json", "/a/ref")),
        ("{form: 'metadata[ref]'}", StampRule("form", "metadata[ref]")),
    ],
)
def test_each_place_of_a_stamp_arrives(written: str, expected: StampRule, loaded: Load) -> None:
    """The one key of a stamp names its kind of place."""
    [route] = loaded(ROUTE % f"stamp: {written}").settings.routes

    assert expected == route.policy.stamp
