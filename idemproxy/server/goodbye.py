"""The end of what the other side says over TLS: where both event loops leave something to be desired.

uvloop ends a connection as soon as the other side has, and drops what it has not deciphered yet since reading is paused (see its
pull request 661); and it looks for a goodbye only when bytes have come that nobody has read. asyncio takes an end without TLS's
goodbye for one in order, although what came may have been cut short by anyone (close_notify: RFC 8446, section 6.1).
"""

from __future__ import annotations

import ssl
from typing import Final

_PIECE: Final = 64 * 1024


def held_back(tls: ssl.SSLObject | None) -> bytes | None:
    """The next of what came over TLS and was not handed on, since reading is paused; b"" when there is none, and without TLS.

    None behind the goodbye: whoever reads it here must end the connection, for the event loop may never see it.
    """
    return _read(tls, _PIECE)


def in_order(tls: ssl.SSLObject | None) -> bool:
    """Whether the other side, which has ended the connection, has said all; to be asked when nothing is held back."""
    return tls is None or _read(tls, 1) is None


def _read(tls: ssl.SSLObject | None, size: int) -> bytes | None:
    """Deciphered bytes; b"" when there are none for now, and None behind the goodbye."""
    if tls is None:
        return b""
    try:
        return tls.read(size) or None
    except ssl.SSLZeroReturnError:
        return None
    except ssl.SSLError:  # it wants more, or the event loop will find out what is wrong
        return b""
