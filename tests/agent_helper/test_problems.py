"""Problem documents as exceptions: one for each slug, that can be pickled, and none for what is not ours."""

from __future__ import annotations

import json
import pickle

import pytest

from idemproxy import agent
from idemproxy.agent import IdemproxyError, InProgressError, raise_for_problem
from idemproxy.agent.problems import ERRORS
from idemproxy.core.problem import KINDS, Slug, problem

OURS = {"Content-Type": "application/problem+json", "Proxy-Status": "idemproxy; error=dns_error"}
DOCUMENT = json.dumps(problem(Slug.IN_PROGRESS, "Wait.", retry_after=3).document("urn:uuid:0"))


def test_every_slug_has_an_exception_of_its_own() -> None:
    """The table has all slugs of the proxy and no others; each class is its own and can be imported from the package."""
    assert set(Slug) == set(ERRORS)
    assert len(ERRORS) == len(set(ERRORS.values()))
    assert [] == [error for error in ERRORS.values() if getattr(agent, error.__name__, None) is not error]


@pytest.mark.parametrize("slug", Slug)
def test_an_exception_tells_what_the_document_tells(slug: Slug) -> None:
    """Status, detail, executed and retry are those of the document, and stay so when the exception is pickled."""
    kind = KINDS[slug]
    with pytest.raises(ERRORS[slug]) as caught:
        raise_for_problem(kind.status, OURS, json.dumps(problem(slug, "What to do.").document("urn:uuid:0")))

    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert (type(caught.value), str(caught.value)) == (type(error), str(error))
    assert (slug.value, kind.status, "What to do.", kind.executed.value, kind.retry.value, None) == (
        error.slug, error.status, error.detail, error.executed, error.retry, error.retry_after,
    )  # fmt: skip


def test_the_text_of_an_exception_says_what_to_do() -> None:
    """A model that gets no more than the text knows whether it happened, and how to go on."""
    with pytest.raises(InProgressError) as caught:
        raise_for_problem(409, OURS, DOCUMENT)

    assert "in-progress (409): Wait. [executed: in_progress, retry: same_key, retry_after: 3]" == str(caught.value)


def test_the_slug_of_a_later_proxy_is_an_exception_too() -> None:
    """An unknown slug is not passed over."""
    with pytest.raises(IdemproxyError) as caught:
        raise_for_problem(409, OURS, DOCUMENT.replace("in-progress", "not-yet-known"))

    assert (IdemproxyError, "not-yet-known") == (type(caught.value), caught.value.slug)


@pytest.mark.parametrize(
    "told",
    ["idemproxy", 'idemproxy; details="in-progress"', "idemproxy;error=dns_error, cdn.example", "cdn.example, idemproxy"],
)
def test_a_problem_is_ours_wherever_we_are_named(told: str) -> None:
    """Proxy-Status may have more members, of proxies on the way, and fields are named in any case."""
    with pytest.raises(InProgressError):
        raise_for_problem(409, {"content-type": "application/problem+json; charset=utf-8", "PROXY-STATUS": told}, DOCUMENT)


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"Content-Type": "application/problem+json"}, DOCUMENT),
        ({**OURS, "Proxy-Status": "not-idemproxy"}, DOCUMENT),
        ({**OURS, "Proxy-Status": "cdn.example; details=idemproxy"}, DOCUMENT),
        ({**OURS, "Content-Type": "application/json"}, DOCUMENT),
        (OURS, "not JSON"),
        (OURS, "[]"),
        (OURS, '{"type": "in-progress"}'),
    ],
)
def test_what_is_not_ours_raises_nothing(fields: dict[str, str], body: str) -> None:
    """Neither the API's own problem documents nor what only looks like ours."""
    raise_for_problem(409, fields, body)
