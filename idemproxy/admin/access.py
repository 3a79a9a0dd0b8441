"""Who may look at records and act on them: who has the token; where none is configured, who sits at this machine.

Without a token three things are looked at, each for a failure that it prevents:

- The peer's address is a loopback one. Without it everyone on the network may act, once the listener is opened to it.
- `Host` names loopback. Without it a web page whose name was pointed at 127.0.0.1 after it was loaded may act (DNS rebinding).
- `Origin`, where a browser sends one, is the listener itself. Without it any page that is open on this machine may act (CSRF).
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

from aiohttp import web

from idemproxy.admin.refusal import Cause, RefusedError

_LOOPBACK_HOST: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_BEARER: Final = re.compile(r"Bearer +(\S+)", re.IGNORECASE)
_CHALLENGE: Final = 'Bearer realm="idemproxy"'


@dataclass(frozen=True, slots=True)
class Access:
    """The rule; `token` None trusts this machine alone."""

    token: bytes | None = field(default=None, repr=False)

    def check(self, request: web.Request) -> None:
        """Return when the request may be served. Raises RefusedError."""
        if self.token is None:
            _check_local(request)
        else:
            _check_token(request, self.token)


def _check_token(request: web.Request, token: bytes) -> None:
    """RFC 6750, section 3: a challenge, with an error code only where a token was shown."""
    lines = request.headers.getall("Authorization", [])
    shown = _BEARER.fullmatch(lines[0]) if len(lines) == 1 else None
    if shown is None:
        detail = "Send the token of admin.token_file, as Authorization: Bearer TOKEN."
        raise RefusedError(Cause.UNAUTHORIZED, detail, {"WWW-Authenticate": _CHALLENGE})
    # In constant time: how long the comparison takes must not tell how much of a guess is right.
    if not hmac.compare_digest(shown[1].encode("utf-8", "surrogateescape"), token):
        detail = "This token is not the one of admin.token_file."
        raise RefusedError(Cause.UNAUTHORIZED, detail, {"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"'})


def _check_local(request: web.Request) -> None:
    hosts = request.headers.getall("Host", [])
    origins = request.headers.getall("Origin", [])
    peer = request.transport and request.transport.get_extra_info("peername")
    if not is_loopback(peer[0] if peer else ""):
        raise RefusedError(
            Cause.FORBIDDEN,
            "Without a token, records are served to this machine only: ask from it, or configure admin.token_file.",
        )
    if len(hosts) != 1 or not _LOOPBACK_HOST.fullmatch(hosts[0]):
        raise RefusedError(
            Cause.FORBIDDEN,
            "Without a token, records are served only under the names localhost, 127.0.0.1 and ::1: "
            "ask under one of these, or configure admin.token_file.",
        )
    if [origin for origin in origins if origin.lower() != f"http://{hosts[0].lower()}"]:
        raise RefusedError(Cause.FORBIDDEN, "Without a token, records are not served to web pages of another origin.")


def is_loopback(peer: str) -> bool:
    """Whether this peer's address, which is empty on a Unix socket, is one of this machine's loopback addresses."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
