"""The proxy's own answers: the table of the contract, section 8, and the two forms in which a row is told."""

from __future__ import annotations

from typing import Final

import pytest

from idemproxy.core.problem import KINDS, Executed, Retry, Slug, problem
from tests.core.structured_field import Bare, read_item

# slug, usual status, executed, retry, RFC 9209 error type
TABLE: Final = [
    ("key-missing", 400, "no", "new_key", "http_request_error"),
    ("key-invalid", 400, "no", "new_key", "http_request_error"),
    ("bad-request", 400, "no", "new_key", "http_request_error"),
    ("key-reused", 422, "no", "new_key", "http_request_denied"),
    ("in-progress", 409, "in_progress", "same_key", None),
    ("outcome-unknown", 409, "unknown", "after_check", None),
    ("response-unavailable", 409, "yes", "never", None),
    ("key-expired", 410, "yes", "after_check", None),
    ("not-sent", 502, "no", "same_key", "destination_unavailable"),
    ("store-unavailable", 503, "no", "same_key", "proxy_internal_error"),
    # Beyond the contract's table: it may have happened before.
    ("records-lost", 503, "unknown", "after_check", "proxy_internal_error"),
    # For these the contract leaves `retry` open: a request that will never fit says never, a proxy that goes says same_key.
    ("body-too-large", 413, "no", "never", "http_request_denied"),
    ("no-route", 404, "no", "never", "http_request_denied"),
    ("draining", 503, "no", "same_key", "proxy_internal_error"),
    # Of the pages that an agent asks: what is not there may have been once, and a retry with the same key is safe.
    ("workflow-unknown", 404, "unknown", "same_key", None),
    ("key-unknown", 404, "unknown", "same_key", None),
    ("memory-changed", 412, "no", "after_check", None),
    ("method-not-allowed", 405, "no", "never", "http_request_denied"),
]
SLUGS: Final = [slug for slug, *_ in TABLE]

# RFC 9209, section 2.3
ERROR_TYPES: Final = {
    "dns_timeout",
    "dns_error",
    "destination_not_found",
    "destination_unavailable",
    "destination_ip_prohibited",
    "destination_ip_unroutable",
    "connection_refused",
    "connection_terminated",
    "connection_timeout",
    "connection_read_timeout",
    "connection_write_timeout",
    "connection_limit_reached",
    "tls_protocol_error",
    "tls_certificate_error",
    "tls_alert_received",
    "http_request_error",
    "http_request_denied",
    "http_response_incomplete",
    "http_response_header_section_size",
    "http_response_header_size",
    "http_response_body_size",
    "http_response_trailer_section_size",
    "http_response_trailer_size",
    "http_response_transfer_coding",
    "http_response_content_coding",
    "http_response_timeout",
    "http_upgrade_failed",
    "http_protocol_error",
    "proxy_internal_response",
    "proxy_internal_error",
    "proxy_configuration_error",
    "proxy_loop_detected",
}


@pytest.mark.parametrize(("slug", "status", "executed", "retry", "error"), TABLE, ids=SLUGS)
def test_rows(slug: str, status: int, executed: str, retry: str, error: str | None) -> None:
    """Each slug has the status, the `executed` and the `retry` of the contract, and an error type that fits."""
    kind = KINDS[Slug(slug)]
    assert (status, executed, retry, error) == (kind.status, kind.executed.value, kind.retry.value, kind.error)


def test_every_slug_has_a_row() -> None:
    """The slugs are those of the contract, each with one row."""
    assert (sorted(SLUGS), set(Slug)) == (sorted(slug.value for slug in Slug), set(KINDS))


def test_vocabularies() -> None:
    """`executed` and `retry` have the values that the contract documents, and no others."""
    expected = ({"yes", "no", "unknown", "in_progress"}, {"same_key", "new_key", "after_check", "never"})
    assert expected == ({value.value for value in Executed}, {value.value for value in Retry})


def test_nothing_executed_may_be_sent_anew() -> None:
    """Only where the operation surely was not executed is a new key advised."""
    assert {"no"} == {kind.executed.value for kind in KINDS.values() if kind.retry is Retry.NEW_KEY}


@pytest.mark.parametrize(("slug", "status", "executed", "retry"), [row[:4] for row in TABLE], ids=SLUGS)
def test_document(slug: str, status: int, executed: str, retry: str) -> None:
    """A document has the members of RFC 9457 and ours, as plain texts and numbers, and nothing else."""
    document = problem(Slug(slug), "What happened, and what to do.").document("urn:uuid:1")
    expected = {
        "type": slug,
        "title": KINDS[Slug(slug)].title,
        "status": status,
        "detail": "What happened, and what to do.",
        "instance": "urn:uuid:1",
        "executed": executed,
        "retry": retry,
    }
    assert (expected, {str, int}) == (document, {type(member) for member in document.values()})


def test_titles() -> None:
    """Each slug has a title of its own, so that a reader is not left with the slug alone."""
    assert len(TABLE) == len({kind.title for kind in KINDS.values() if kind.title})


@pytest.mark.parametrize("retry_after", [0, 1, 30])
def test_retry_after(retry_after: int) -> None:
    """`retry_after` is told in seconds where it is known, a zero too."""
    found = problem(Slug.STORE_UNAVAILABLE, "why", retry_after=retry_after)
    assert (retry_after, retry_after) == (found.retry_after, found.document("urn:uuid:1")["retry_after"])


@pytest.mark.parametrize(
    ("slug", "status"), [(Slug.OUTCOME_UNKNOWN, 502), (Slug.OUTCOME_UNKNOWN, 504), (Slug.NOT_SENT, 503), (Slug.NOT_SENT, 504)]
)
def test_another_status(slug: Slug, status: int) -> None:
    """An attempt's own status stands in the place of the usual one, in the answer and in its document."""
    found = problem(slug, "why", status=status)
    assert (status, status) == (found.status, found.document("urn:uuid:1")["status"])


@pytest.mark.parametrize(("slug", "error"), [(row[0], row[4]) for row in TABLE], ids=SLUGS)
def test_proxy_status(slug: str, error: str | None) -> None:
    """`Proxy-Status` (RFC 9209) names this proxy, the error type where one fits, and the slug."""
    parameters: dict[str, Bare] = {"details": slug} if error is None else {"error": error, "details": slug}
    assert ("idemproxy", parameters) == read_item(problem(Slug(slug), "why").proxy_status().decode("ascii"))


def test_error_of_the_attempt() -> None:
    """An attempt's own error type stands in the place of the usual one."""
    found = problem(Slug.NOT_SENT, "why", error="dns_error")
    assert ("idemproxy", {"error": "dns_error", "details": "not-sent"}) == read_item(found.proxy_status().decode("ascii"))


def test_error_types_are_registered() -> None:
    """Every error type is one that RFC 9209 defines, so that a program can know it."""
    assert set() == {kind.error for kind in KINDS.values() if kind.error} - ERROR_TYPES
