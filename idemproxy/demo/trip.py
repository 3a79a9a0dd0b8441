"""The agent's task: twenty steps that get a customer to Berlin, whose flight was cancelled.

Each step is a row: its name, what it does, what comes to pass by it, and its request, which is made of what earlier steps gave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Outputs: TypeAlias = dict[str, Any]
"""What the steps gave, by their names."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a step asks for: a GET of `path`, or, with a body, a POST."""

    path: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A row. `effect` is the kind of thing that comes to pass, None for a step that only reads."""

    name: str
    action: str
    effect: str | None
    path: str
    """With the places of outputs in braces, as `str.format` reads them."""
    fields: Callable[[Outputs], dict[str, Any]] | None = None
    """What the body says beside the customer's name."""

    def call(self, customer: str, outputs: Outputs) -> Call:
        """The request, which is the same whenever the earlier steps gave the same."""
        path = self.path.format(customer=customer, **outputs)
        return Call(path, None if self.fields is None else {"customer": customer, **self.fields(outputs)})


def _case(known: Outputs) -> dict[str, Any]:
    return {"booking": known["itinerary"]["booking"], "reason": known["status"]["reason"]}


def _hold(known: Outputs) -> dict[str, Any]:
    return {"flight": known["seats"]["flight"], "seat": known["seats"]["free"][0]}


def _booking(known: Outputs) -> dict[str, Any]:
    return {"hold": known["hold"]["id"], "flight": known["hold"]["flight"], "seat": known["hold"]["seat"]}


def _charge(known: Outputs) -> dict[str, Any]:
    return {"amount": known["fare"]["difference"] + known["fare"]["fee"], "currency": known["fare"]["currency"]}


def _mail(known: Outputs) -> dict[str, Any]:
    flight = known["flights"]["flights"][0]
    text = (
        f"{flight['flight']} leaves at {flight['departs']}, seat {known['booked']['seat']}, ticket {known['ticketed']['id']}. "
        f"You were charged {known['charge']['amount']} cents, of which {known['refund']['amount']} come back. "
        f"Your meal voucher is {known['voucher']['id']}."
    )
    return {"to": known["itinerary"]["mail"], "subject": "Your new flight", "text": text}


STEPS: Final = (
    Step("itinerary", "look up the booking", None, "/itineraries/{customer}"),
    Step("status", "see what became of the flight", None, "/flights/{itinerary[flight]}"),
    Step("case", "open a case", "case", "/cases", _case),
    Step("flights", "find other flights", None, "/flights?from={status[from]}&to={status[to]}"),
    Step("fare", "see what the change costs", None, "/fares/{flights[flights][0][flight]}"),
    Step("seats", "see which seats are free", None, "/seats/{fare[flight]}"),
    Step("hold", "hold a seat", "hold", "/seat-holds", _hold),
    Step("voucher", "give a meal voucher", "voucher", "/vouchers", lambda known: {"case": known["case"]["id"], "amount": 1500}),
    Step("member", "see what the customer is entitled to", None, "/members/{customer}"),
    Step("booking", "book the seat", "booking", "/bookings", _booking),
    Step("booked", "read the booking back", None, "/bookings/{booking[id]}"),
    Step("charge", "charge the card", "charge", "/charges", _charge),
    Step(
        "ticket", "issue the ticket", "ticket", "/tickets",
        lambda known: {"booking": known["booked"]["id"], "charge": known["charge"]["id"]},
    ),
    Step(
        "cancellation", "cancel the old booking", "cancellation", "/cancellations",
        lambda known: {"booking": known["itinerary"]["booking"], "case": known["case"]["id"]},
    ),
    Step("cancelled", "read the cancellation back", None, "/cancellations/{cancellation[id]}"),
    Step(
        "refund", "refund the fee", "refund", "/refunds",
        lambda known: {"charge": known["charge"]["id"], "amount": known["fare"]["fee"]},
    ),
    Step(
        "upgrade", "upgrade the ticket", "upgrade", "/upgrades",
        lambda known: {"ticket": known["ticket"]["id"], "cabin": known["member"]["cabin"]},
    ),
    Step(
        "bag", "add the bags", "bag", "/bags",
        lambda known: {"ticket": known["ticket"]["id"], "count": known["member"]["bags"]},
    ),
    Step("ticketed", "read the ticket back", None, "/tickets/{ticket[id]}"),
    Step("mail", "mail the new itinerary", "mail", "/mails", _mail),
)  # fmt: skip
EFFECTS: Final = tuple(step.effect for step in STEPS if step.effect is not None)
"""What has come to pass after all steps, each of it once."""
