"""The mail of the sample upstream: it arrives as often as it is sent."""

from __future__ import annotations

from typing import Final

from idemproxy.demo.api import Write
from idemproxy.demo.making import making

MAIL: Final = (Write("mails", "mail", "mail", making(customer=str, to=str, subject=str, text=str)),)
