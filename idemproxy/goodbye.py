"""The end of what the other side says over TLS: where both event loops leave something to be desired.

uvloop ends a connection as soon as the other side has, and drops what it has not deciphered yet since reading is paused (see its
pull request 661). asyncio takes an end without TLS's goodbye for one in order, although what came may have been cut short by
anyone (close_notify: RFC 8446, section 6.1).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

_PIECE: Final = 64 * 1024


def held_back(transport: asyncio.BaseTransport) -> bytes:
    """The next of what came over TLS and was not handed on, since reading is paused; b"" when there is none, and without TLS."""
    return _read(transport, _PIECE) or b""


def in_order(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side, which has ended the connection, has said all; to be asked when nothing is held back."""
    return transport.get_extra_info("ssl_object") is None or _read(transport, 1) is None


def _read(transport: asyncio.BaseTransport, size: int) -> bytes | None:
    """Deciphered bytes; b"" when there are none for now, and None behind the goodbye."""
    deciphering: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if deciphering is None:
        return b""
    try:
        return deciphering.read(size) or None
    except ssl.SSLZeroReturnError:
        return None
    except ssl.SSLError:  # it wants more, or the event loop will find out what is wrong
        return b""
