"""An answer's head has a limit, however its bytes come: what is over it cannot be told, and so the outcome is unknown."""

from __future__ import annotations

import pytest

from tests.wire.client import ask, new_key, problem, request, status
from tests.wire.conftest import Records
from tests.wire.upstream import Upstream, answers

KIB = 1024


def _answer(size: int, lines: int) -> bytes:
    """An answer whose fields have about `size` bytes, on so many lines."""
    fields = b"".join(b"X-%04d: %b\r\n" % (number, b"v" * (size // lines - 10)) for number in range(lines))
    return b"HTTP/1.1 200 OK\r\n" + fields + b"Content-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("keyed", [True, False], ids=["covered", "passed through"])
@pytest.mark.parametrize("lines", [1, 300])
@pytest.mark.parametrize("size", [200 * KIB, 300 * KIB, 1024 * KIB])
def test_a_head_over_the_limit_is_no_answer(
    upstream: Upstream, port: int, records: Records, size: int, lines: int, *, keyed: bool
) -> None:
    """Up to 256 KiB it is passed on; beyond, whether it comes at once or in pieces, the caller hears that nobody knows."""
    upstream.plays(answers(_answer(size, lines)))
    key = new_key()

    answer = ask(port, request("POST", "/x", body=b"1", key=key if keyed else None))

    if size < 256 * KIB:
        assert (200, lines, b"ok") == (status(answer), sum(line.startswith(b"X-") for line in answer.lines), answer.body)
    else:
        assert (502, "outcome-unknown", "unknown", "after_check") == problem(answer)
        error = b'idemproxy; error=http_response_header_section_size; details="outcome-unknown"'
        assert [error] == answer.values("proxy-status")
    assert (("completed" if size < 256 * KIB else "unknown") if keyed else None) == records.phase(key)
    assert 1 == len(upstream.requests)
