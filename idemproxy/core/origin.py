"""Who asked: what the upstream is told of the client and of the way here, and whose word on that is believed.

Sources: RFC 9110, section 7.6.3 (Via), RFC 7239 (Forwarded), and the custom of `X-Forwarded-*` and `X-Request-Id`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

from idemproxy.core.hop import speaks_of_client
from idemproxy.core.message import Fields, Indexed, Request, Shape, field_values, indexed
from idemproxy.core.policy import Forwarded, Route
from idemproxy.core.visible import tells

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


NAME: Final = b"idemproxy"
"""What this proxy calls itself in `Via`, and in the `by` of `Forwarded`."""

MAX_REQUEST_ID: Final = 128

_REQUEST_ID: Final = b"x-request-id"
_PASSED: Final = (b"Via",)
_PASSED_AND_NAMED: Final = (b"Via", b"X-Request-Id")
_BY: Final = b" " + NAME
_VISIBLE = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_REQUEST_ID)
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2
_TO_ESCAPE = re.compile(rb'["\\]')


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a request came in.

    `peer`: the IP address of who is connected, "" where it is not known or there is none. `request_id`: a new name for the
    request, should it have none. `version`: the HTTP version that the peer spoke, `1.1` or `1.0`.
    """

    peer: str
    is_secure: bool
    is_trusted: bool
    request_id: bytes
    version: bytes = b"1.1"


def believed(fields: Indexed, arrival: Arrival) -> Indexed:
    """The fields without what the peer says of others, unless that is trusted: nobody else can speak for a client."""
    spoken = fields.shape.ask(_speaking)
    return fields if arrival.is_trusted or not spoken else fields.without(spoken)


def _speaking(shape: Shape) -> frozenset[bytes]:
    return frozenset(filter(speaks_of_client, shape.places))


def with_origin(request: Request, route: Route, arrival: Arrival) -> Request:
    """The request with the fields that tell of its origin as they go on; those that it has are `believed`.

    It gets a line of `Via` and, if it has none, an `X-Request-Id`, at the end of its fields; on a route whose keys or stamps
    stand in that field, none is made.
    """
    fields = request.fields
    match route.forwarded:
        case Forwarded.NONE:
            pass
        case Forwarded.X_FORWARDED:
            fields = _x_forwarded(fields, arrival)
        case Forwarded.FORWARDED:
            fields = _appended(fields, b"Forwarded", _element(fields, arrival))
    fields = indexed(fields)
    if route.names_operations or _REQUEST_ID in fields.shape.places:
        fields = fields.followed_by(_PASSED, (arrival.version + _BY,))
    else:
        fields = fields.followed_by(_PASSED_AND_NAMED, (arrival.version + _BY, arrival.request_id))
    return Request(request.method, request.target, fields, request.body)


def request_id_of(fields: Fields, route: Route, arrival: Arrival, keys: Collection[bytes] = ()) -> str | None:
    """The name of a request with these fields, for the log: its first `X-Request-Id`, or the one that it gets.

    None where it is not at most MAX_REQUEST_ID visible ASCII characters, where it tells one of the request's plain `keys`, and
    where that field holds keys: a key is never logged.
    """
    if route.names_operations:
        return None
    values = field_values(fields, _REQUEST_ID)
    if not values:
        return arrival.request_id.decode("ascii")
    if not _VISIBLE.fullmatch(values[0]) or tells(values[0], keys):
        return None
    return values[0].decode("ascii")


def is_trusted(peer: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    """Whether a peer's address is in one of the networks; an IPv4 address in IPv6 form counts as IPv4."""
    address = _address(peer)
    return address is not None and any(address in network for network in networks)


@lru_cache(maxsize=4096)
def _address(peer: str) -> IPv4Address | IPv6Address | None:
    """The address that a peer has, without the zone that only this machine knows; None when that is none."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _x_forwarded(fields: Fields, arrival: Arrival) -> Fields:
    address = _address(arrival.peer)
    if address is not None:
        fields = _appended(fields, b"X-Forwarded-For", str(address).encode("ascii"))
    hosts = field_values(fields, b"host")[:1]
    asked = [*((b"X-Forwarded-Host", host) for host in hosts), (b"X-Forwarded-Proto", _protocol(arrival))]
    return fields + tuple((name, value) for name, value in asked if not field_values(fields, name.lower()))


def _element(fields: Fields, arrival: Arrival) -> bytes:
    """One element of `Forwarded` (RFC 7239, section 4): for whom, what was asked of, how, and by us under an obscured name."""
    match _address(arrival.peer):
        case IPv6Address() as address:
            node = f"[{address}]".encode("ascii")
        case IPv4Address() as address:
            node = str(address).encode("ascii")
        case _:
            node = b"unknown"
    pairs = [(b"for", node), *((b"host", host) for host in field_values(fields, b"host")[:1])]
    pairs += [(b"proto", _protocol(arrival)), (b"by", b"_" + NAME)]
    return b";".join(b"%b=%b" % (name, _quoted(value)) for name, value in pairs)


def _protocol(arrival: Arrival) -> bytes:
    return b"https" if arrival.is_secure else b"http"


def _quoted(value: bytes) -> bytes:
    """A value as a token, or as a quoted string where it is none, as with a port or an IPv6 address (RFC 7239, section 6)."""
    return value if _TOKEN.fullmatch(value) else b'"%b"' % _TO_ESCAPE.sub(rb"\\\g<0>", value)


def _appended(fields: Fields, name: bytes, element: bytes) -> Fields:
    """The fields with an element at the end of the list `name`: one line, at the place of its last, or a new one."""
    lowered = name.lower()
    places = [place for place, (found, _) in enumerate(fields) if found.lower() == lowered]
    if not places:
        return (*fields, (name, element))
    *_, last = places
    joined = b", ".join([value for value in field_values(fields, lowered) if value] + [element])
    before = tuple(pair for pair in fields[:last] if pair[0].lower() != lowered)
    return (*before, (fields[last][0], joined), *fields[last + 1 :])
