"""The limits of what comes on the wire, as tables: of clients, and of upstreams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from docs.generate.markdown import NOTHING, table
from idemproxy.core.policy import KIB
from idemproxy.listening import HANDSHAKE_SECONDS
from idemproxy.proxy.answer_reader import MAX_HEAD, MAX_INTERIM
from idemproxy.proxy.dialing import MAX_PROXY_HEAD
from idemproxy.server.framing import ClientLimits

_CLIENT: Final = ClientLimits()
_UNKNOWN: Final = "the outcome is `unknown`"


def client_limits() -> str:
    """What a client may send, and the status beyond that."""
    return table(("of a client", "limit", "beyond it"), _of_clients())


def _of_clients() -> Iterator[list[str]]:
    yield ["request line", _size(_CLIENT.line), "414"]
    yield ["one field, name and value", _size(_CLIENT.field), "431"]
    yield ["fields of a head", f"{_CLIENT.fields} lines", "431"]
    yield ["head, all of it", _size(_CLIENT.head), "431"]
    yield ["line that begins a chunk; line of a trailer", _size(_CLIENT.line), "400"]
    yield ["trailer", f"{_CLIENT.fields} lines", "400"]
    yield ["body of a covered request", "`max_request_body`", "413 `body-too-large`"]
    yield ["body that passes through", "none", NOTHING]


def answer_limits() -> str:
    """What an upstream may answer, and what follows beyond that."""
    rows = (
        ["head, with those of its interim answers", _size(MAX_HEAD), _UNKNOWN],
        ["interim answers", str(MAX_INTERIM), _UNKNOWN],
        ["trailer; what is said of a chunk beside its bytes", _size(MAX_HEAD), _UNKNOWN],
        ["body of a covered request's answer", "`max_stored_body`", "it is relayed as it comes, and only the fact is kept"],
        ["body of an answer that passes through", "none", NOTHING],
        ["head with which an egress proxy answers", _size(MAX_PROXY_HEAD), "nothing was sent: `not-sent`"],
    )
    return table(("of an upstream", "limit", "beyond it"), rows)


def client_deadlines() -> str:
    """How long a client may take, in seconds."""
    rows = (
        ["the handshake of TLS", _seconds(HANDSHAKE_SECONDS), "the end"],
        [
            "the first head, from the beginning of the connection",
            _seconds(_CLIENT.head_seconds),
            "408; the end, where nothing came",
        ],
        ["a later head, from its first byte", _seconds(_CLIENT.head_seconds), "408"],
        ["a kept connection without a request", _seconds(_CLIENT.idle_seconds), "its end"],
        ["a pause in a body", "the upstream's `timeouts.idle`", "408; where it is not covered, the attempt is broken off"],
        ["a body, beyond one such pause", f"{_CLIENT.min_rate} bytes/s on average", "the same"],
        ["a pause in taking the answer", "the upstream's `timeouts.idle`", "its end"],
        ["to take it, beyond one such pause", f"{_CLIENT.min_rate} bytes/s on average", "the same"],
        ["to take a covered answer that streams, all waiting together", "ten times `timeouts.idle`", "the same"],
        ["to go on sending after a refusal", _seconds(_CLIENT.linger_seconds), "its end"],
    )
    return table(("what", "limit", "beyond it"), rows)


def _size(count: int) -> str:
    return f"{count // KIB} KiB"


def _seconds(count: float) -> str:
    return f"{count:g} s"
