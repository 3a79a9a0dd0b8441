"""The payments that the sample upstream offers: charges and refunds, in whole minor units of a currency.

Every accepted call charges or refunds again, whatever key it carries: that is the point of this sample.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from idemproxy.demo.api import Write
from idemproxy.demo.ledger import Ledger

CARD_LIMIT = 1_000_000
"""A charge above this is declined, so that there is a 402 to see."""


def charge(_ledger: Ledger, body: dict[str, Any]) -> dict[str, Any]:
    """Charge `{amount, currency?, customer?}`; 422 for a field of the wrong kind, 402 above the card's limit."""
    amount, currency, customer = amount_of(body.get("amount")), body.get("currency", "usd"), body.get("customer")
    if not isinstance(currency, str) or not isinstance(customer, str | None):
        raise web.HTTPUnprocessableEntity(text="currency and customer must be strings")
    if amount > CARD_LIMIT:
        raise web.HTTPPaymentRequired(text=f"declined: {amount} is over the card's limit of {CARD_LIMIT}")
    return {"amount": amount, "currency": currency, "customer": customer}


def refund(ledger: Ledger, body: dict[str, Any]) -> dict[str, Any]:
    """Refund `{charge, amount?}`, by default all that is left; 404 for an unknown charge, 422 for more than is left."""
    wanted = body.get("charge")
    charged = next((each for each in ledger.resources("charge") if each["id"] == wanted), None)
    if charged is None:
        raise web.HTTPNotFound(text=f"no charge {wanted!r}")
    left = charged["amount"] - sum(each["amount"] for each in ledger.resources("refund") if each["charge"] == wanted)
    amount = amount_of(body.get("amount", left or 1))
    if amount > left:
        raise web.HTTPUnprocessableEntity(text=f"only {left} is left of {wanted}")
    return {"amount": amount, "currency": charged["currency"], "customer": charged["customer"], "charge": wanted}


def amount_of(value: object) -> int:
    """Read an amount; 422 when it is not a whole number above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise web.HTTPUnprocessableEntity(text="amount must be a whole number above 0")
    return value


PAYMENTS = (Write("charges", "charge", "ch", charge), Write("refunds", "refund", "re", refund))
