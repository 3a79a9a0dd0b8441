"""Fields that belong to one hop, and fields that are ours: neither crosses the proxy.

Sources: RFC 9110, section 7.6.1 (Connection and what it names), and RFC 9112 (framing is made anew for each connection).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from idemproxy.core.message import Fields, field_values, names_of

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields that speak to the neighbour only, whether or not `Connection` names them."""

FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
"""Where a body ends is decided anew on each side; a copied length is how requests are smuggled."""

OURS: Final = frozenset({b"idempotency-status", b"idempotent-replayed", b"proxy-status"})
"""What we say about an operation; from anyone else it would be a forgery, so it is removed in both directions."""

# Fields that a client may not have removed by naming them in Connection: dropping them would change what is asked, or of whom, or
# hide who asked and how it came here.
_NEVER_NAMED: Final = frozenset({b"host", b"authorization", b"content-type", b"content-encoding", b"via", b"x-request-id"})

_OF_CLIENTS: Final = frozenset({b"forwarded", b"x-real-ip"})
_OF_CLIENTS_KIND: Final = b"x-forwarded-"

_DECISIVE: Final = 32
"""More bytes than it takes to tell these names, or are in a usual value of Connection: what is longer is not to be remembered."""

_NONE: Final[frozenset[bytes]] = frozenset()

_DROPPED: Final = HOP_BY_HOP | FRAMING | OURS


def dropped_names(fields: Fields) -> frozenset[bytes]:
    """The lower-case names of the fields that do not go on: hop-by-hop, framing, ours, and what `Connection` may name."""
    named = named_by_connection(fields)
    return _DROPPED | named if named else _DROPPED


def named_by_connection(fields: Fields) -> frozenset[bytes]:
    """The lower-case names of the fields that are dropped only because `Connection` names them; as a rule there are none."""
    connection = field_values(fields, b"connection")
    if not connection:
        return _NONE
    listed = connection[0] if len(connection) == 1 else b",".join(connection)
    named = _listed(listed) if len(listed) <= _DECISIVE else _listed.__wrapped__(listed)
    return named.intersection(names_of(fields)) if named else named


@lru_cache(maxsize=256)
def _listed(connection: bytes) -> frozenset[bytes]:
    named = {token.strip().lower() for token in connection.split(b",")} - _NEVER_NAMED - _DROPPED
    return frozenset(name for name in named if not speaks_of_client(name))


def speaks_of_client(name: bytes) -> bool:
    """Whether a field, in any case, is one in which a proxy says on whose behalf it asks, and of what host, path or certificate.

    An underscore counts as a hyphen, since gateway interfaces (CGI, WSGI) make the same variable of both.
    """
    name = name[:_DECISIVE].lower().replace(b"_", b"-")
    return name in _OF_CLIENTS or name.startswith(_OF_CLIENTS_KIND)
