"""The airline of the sample upstream: a flight that was cancelled, others that fly, and what can be done about a booking.

What can be looked up never changes, so that an agent that looks again decides the same. What is done is done again by every call,
whatever key it carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from idemproxy.demo.api import Read, Write
from idemproxy.demo.making import making

_FLIGHTS: Final[dict[str, dict[str, Any]]] = {
    "ID417": {"flight": "ID417", "from": "LIS", "to": "BER", "status": "cancelled", "reason": "no crew"},
    "ID419": {"flight": "ID419", "from": "LIS", "to": "BER", "status": "on time", "departs": "18:05"},
    "ID421": {"flight": "ID421", "from": "LIS", "to": "BER", "status": "on time", "departs": "21:40"},
}


def _itinerary(asked: Mapping[str, str]) -> dict[str, Any]:
    """What anybody had booked: the flight that was cancelled."""
    customer = asked["customer"]
    return {"customer": customer, "mail": f"{customer}@example.com", "booking": "old_417", "flight": "ID417"}


def _flight(asked: Mapping[str, str]) -> dict[str, Any]:
    if asked["flight"] not in _FLIGHTS:
        raise web.HTTPNotFound(text=f"no flight {asked['flight']!r}")
    return _FLIGHTS[asked["flight"]]


def _flights(asked: Mapping[str, str]) -> dict[str, Any]:
    """Those that fly; `from` and `to` pick."""
    wanted = {"status": "on time", **{name: asked[name] for name in ("from", "to") if name in asked}}
    return {"flights": [flight for flight in _FLIGHTS.values() if wanted.items() <= flight.items()]}


def _fare(asked: Mapping[str, str]) -> dict[str, Any]:
    """What it costs to change to a flight, in cents."""
    return {"flight": _flight(asked)["flight"], "difference": 4200, "fee": 900, "currency": "usd"}


def _seats(asked: Mapping[str, str]) -> dict[str, Any]:
    return {"flight": _flight(asked)["flight"], "free": ["14C", "21F"]}


def _member(asked: Mapping[str, str]) -> dict[str, Any]:
    return {"customer": asked["customer"], "tier": "gold", "cabin": "premium", "bags": 2}


TIMETABLE: Final = (
    Read("itineraries/{customer}", _itinerary),
    Read("flights", _flights),
    Read("flights/{flight}", _flight),
    Read("fares/{flight}", _fare),
    Read("seats/{flight}", _seats),
    Read("members/{customer}", _member),
)
BOOKINGS: Final = (
    Write("cases", "case", "case", making(customer=str, booking=str, reason=str)),
    Write("seat-holds", "hold", "hold", making(customer=str, flight=str, seat=str)),
    Write("vouchers", "voucher", "vch", making(customer=str, case="case", amount=int)),
    Write("bookings", "booking", "bk", making(customer=str, hold="hold", flight=str, seat=str)),
    Write("tickets", "ticket", "tkt", making(customer=str, booking="booking", charge="charge")),
    Write("cancellations", "cancellation", "cxl", making(customer=str, booking=str, case="case")),
    Write("upgrades", "upgrade", "upg", making(customer=str, ticket="ticket", cabin=str)),
    Write("bags", "bag", "bag", making(customer=str, ticket="ticket", count=int)),
)
