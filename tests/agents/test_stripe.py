"""Stripe's official SDK, its base address pointed at the proxy, in front of a real server that ignores keys."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from tests.processes import proxy

if TYPE_CHECKING:
    import stripe

# localstripe is GPL: it runs as a program of its own, on the socket that it gets as its standard input. It would also keep what
# it knows in a file under /tmp, which every user and every run of these tests would share.
LOCALSTRIPE: Final = """
import socket
from aiohttp import web
from localstripe.resources import store
from localstripe.server import app
store.dump_to_disk = lambda: None
web.run_app(app, sock=socket.socket(fileno=0), print=None, access_log=None)
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """Stripe's SDK with its defaults but for the address, and a card to charge."""

    url: str
    card: str
    client: stripe.StripeClient = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", client(self.url))

    def charge(self, key: str | None = None) -> str:
        """Charge the card once, as the caller means it; the charge's id."""
        options: stripe.RequestOptions = {"idempotency_key": key} if key else {}
        made = self.client.v1.charges.create({"amount": 4200, "currency": "usd", "source": self.card}, options)
        return made.id

    def charges(self) -> set[str]:
        """The ids of all charges that there are."""
        return {charge.id for charge in self.client.v1.charges.list({"limit": 100}).data}


def client(url: str) -> stripe.StripeClient:
    """The SDK, its base address `url`."""
    import stripe

    return stripe.StripeClient("sk_test_of_nobody", base_addresses={"api": url})


@pytest.fixture(scope="module")
def localstripe() -> Iterator[str]:
    """The base URL of a running localstripe."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        # It listens already: what connects before the program has started waits for it.
        running = subprocess.Popen([sys.executable, "-c", LOCALSTRIPE], stdin=listening.fileno(), stderr=subprocess.DEVNULL)
    try:
        yield url
    finally:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def direct(localstripe: str) -> Shop:
    """A shop that speaks to localstripe itself."""
    sdk = client(localstripe)
    method = sdk.v1.payment_methods.create(
        {"type": "card", "card": {"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"}}
    )
    return Shop(localstripe, method.id)


@pytest.fixture(scope="module")
def proxied(localstripe: str, direct: Shop, store_url: str) -> Iterator[Shop]:
    """The same shop with the proxy in between, on each store."""
    with proxy("--upstream", localstripe, "--store", store_url) as running:
        yield Shop(running.url, direct.card)


def test_the_same_key_twice_without_the_proxy_makes_two_charges(direct: Shop, key: str) -> None:
    """This server ignores keys: what the proxy is for."""
    before = direct.charges()

    made = {direct.charge(key), direct.charge(key)}

    assert 2 == len(made)
    assert before | made == direct.charges()


def test_the_same_key_twice_makes_one_charge(proxied: Shop, direct: Shop, key: str) -> None:
    """Through the proxy the second call returns the first one's charge, and there is no other."""
    before = direct.charges()

    first, second = proxied.charge(key), proxied.charge(key)

    assert first == second
    assert before | {first} == direct.charges()


def test_a_restarted_agent_with_a_new_client_gets_the_same_charge(proxied: Shop, direct: Shop, key: str) -> None:
    """The promise is the key's, not the connection's or the client object's."""
    before = direct.charges()

    first, second = proxied.charge(key), Shop(proxied.url, proxied.card).charge(key)

    assert first == second
    assert before | {first} == direct.charges()


def test_two_calls_with_keys_of_the_sdk_make_two_charges(proxied: Shop, direct: Shop) -> None:
    """The SDK gives each call a key of its own: two calls are two operations, and both are carried out."""
    before = direct.charges()

    made = {proxied.charge(), proxied.charge()}

    assert 2 == len(made)
    assert before | made == direct.charges()


def test_another_amount_under_the_same_key_is_refused(proxied: Shop, direct: Shop, key: str) -> None:
    """The SDK raises, and nothing is charged: the key names another operation."""
    import stripe

    first = proxied.charge(key)
    before = direct.charges()

    with pytest.raises(stripe.StripeError) as refused:
        proxied.client.v1.charges.create({"amount": 1, "currency": "usd", "source": proxied.card}, {"idempotency_key": key})

    assert 422 == refused.value.http_status
    assert {first} <= before == direct.charges()
