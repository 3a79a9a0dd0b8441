"""The request as the upstream gets it: the bytes of its head.

Order, case and repeats are the client's. What changes: `Host` is the upstream's, unless the route preserves the client's; what is
for this proxy or this hop goes; and what is told anew, the key and the framing, stands where the client's stood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

from idemproxy.core.hop import FRAMING, dropped_names, named_by_connection
from idemproxy.core.key import spell_key
from idemproxy.core.message import Indexed, Request, Shape, has_any, indexed
from idemproxy.core.policy import Crossing, Route, Upstream, without_prefix
from idemproxy.core.workflow import BAGGAGE, without_workflow

# What is told anew stands behind the values of the request's fields, and is counted from the end.
_METHOD, _BASE, _TARGET, _HOST, _KEY, _FRAMING, _OFFER = range(-7, 0)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The lines of a head, without their values: the same for all requests of one shape that cross in the same way.

    `form` takes the values that `choose` takes from all that there are. In the places `baggage` the whole line is a value, since
    it may be none.
    """

    form: bytes
    choose: Callable[[list[bytes]], tuple[bytes, ...]]
    host: int | None
    baggage: tuple[int, ...]


def request_head(
    request: Request,
    route: Route,
    upstream: Upstream,
    framing: bytes | None,
    key: str | None = None,
    *,
    upgrade: bytes | None = None,
) -> bytes:
    """The request line and fields for the upstream, with the empty line.

    `framing`: one field line without CRLF, or None where there is no body. `key`: the plain key of a covered request. `upgrade`:
    the protocols that the upstream is offered, as a value of `Upgrade`; without it no upgrade is asked for (RFC 9110, 7.8).
    """
    fields = indexed(request.fields)
    told_key = b"" if key is None or route.crossing.key_name is None else spell_key(key)
    plan = _plan(fields, route.crossing, tells_key=told_key != b"")
    values = [
        *fields.values,
        request.method.encode("ascii"),
        upstream.base_path,
        without_prefix(request.target, route.strip_prefix) if route.strip_prefix else request.target,
        fields.values[plan.host] if route.preserve_host and plan.host is not None else upstream.authority,
        told_key,
        b"" if framing is None else framing + b"\r\n",
        b"" if upgrade is None else b"Connection: Upgrade\r\nUpgrade: %b\r\n" % upgrade,
    ]
    for place in plan.baggage:
        others = without_workflow(values[place])
        values[place] = b"%b: %b\r\n" % (fields[place][0], others) if others or others == values[place] else b""
    return plan.form % plan.choose(values)


def whole_body_framing(request: Request) -> bytes | None:
    """The framing of a request whose body is known: its length, unless the client announced no body and sent none."""
    announced = has_any(request.fields, FRAMING)
    return b"Content-Length: %d" % len(request.body) if request.body or announced else None


def _plan(fields: Indexed, crossing: Crossing, *, tells_key: bool) -> _Plan:
    named = named_by_connection(fields)
    if named:
        return _planned(fields.shape, dropped_names(fields), crossing, tells_key=tells_key)
    plans = fields.shape.ask(_plans)
    plan = plans.get((crossing, tells_key))
    if plan is None:
        plan = plans[crossing, tells_key] = _planned(fields.shape, dropped_names(fields), crossing, tells_key=tells_key)
    return plan


def _plans(_: Shape) -> dict[tuple[Crossing, bool], _Plan]:
    """The plans for requests of a shape, as they are made: as many as there are kinds of routes."""
    return {}


def _planned(shape: Shape, dropped: frozenset[bytes], crossing: Crossing, *, tells_key: bool) -> _Plan:
    dropped = (dropped - crossing.goes) | crossing.stays
    told = {b"host": _HOST, b"upgrade": _OFFER} | dict.fromkeys(FRAMING, _FRAMING)
    due = {_HOST: _line(b"Host")}
    if tells_key and crossing.key_name is not None:
        told[crossing.key_field] = _KEY
        due[_KEY] = _line(crossing.key_name)
    due |= {_FRAMING: b"%b", _OFFER: b"%b"}
    lines: list[tuple[bytes, int]] = []
    baggage = []
    for place, name in enumerate(shape.names):
        lowered, line = name.lower(), _line(name)
        if lowered in told:  # it takes the place of the first, and the others go
            ours = due.pop(told[lowered], None)
            if ours is not None:
                lines.append((line if ours.lower() == line.lower() else ours, told[lowered]))
        elif lowered not in dropped:
            is_mixed = lowered == BAGGAGE and not crossing.with_workflow
            lines.append((b"%b" if is_mixed else line, place))
            baggage += [place] if is_mixed else []
    # An HTTP/1.0 client may leave out Host, which HTTP/1.1 needs; and the operation may be named by other fields than the key's.
    first = [(due[slot], slot) for slot in (_HOST, _KEY) if slot in due]
    last = [(due[slot], slot) for slot in (_FRAMING, _OFFER) if slot in due]
    lines = [*first, *lines, *last]
    form = b"".join([b"%b %b%b HTTP/1.1\r\n", *(line for line, _ in lines), b"\r\n"])
    host = shape.places.get(b"host")
    return _Plan(form, itemgetter(_METHOD, _BASE, _TARGET, *(at for _, at in lines)), host[0] if host else None, tuple(baggage))


def _line(name: bytes) -> bytes:
    """The form of a field line."""
    return name.replace(b"%", b"%%") + b": %b\r\n"
