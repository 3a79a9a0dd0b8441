"""Listening sockets, and the certificate that clients are shown, which can be renewed while they are served."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, TypeAlias

from idemproxy.config.certificates import CertificateError, server_context, validity
from idemproxy.config.settings import Address, ListenerTls

_log = logging.getLogger("idemproxy")

HANDSHAKE_SECONDS: Final = 10.0
"""How long a client may take for its TLS handshake."""

_GOODBYE_SECONDS: Final = 1.0

Protocols: TypeAlias = Callable[[], asyncio.Protocol]


class NotListeningError(Exception):
    """An address cannot be listened on; the message says why, and what to do."""


class ShownCertificate:
    """The certificate and key of a listener. Raises CertificateError when they cannot be used at the start.

    Each handshake begins on `context` and goes on with the pair that was read last, so half a pair never serves.
    """

    def __init__(self, tls: ListenerTls) -> None:
        self._tls = tls
        self._read_last = server_context(tls)
        self.context = server_context(tls)
        self.context.sni_callback = self._choose

    def read_again(self) -> None:
        """Take the files as they are now for new connections, and tell so; if they cannot be used, the pair from before stays."""
        try:
            context = server_context(self._tls)
            found = validity(self._tls)
        except CertificateError as exc:
            _log.error("SIGHUP: the certificate from before stays: tls.%s: %s", exc.setting, exc)
            return
        self._read_last = context
        if found is not None and found.until is not None:
            _log.info("SIGHUP: only the certificate was read again; it is valid until %s UTC", f"{found.until:%Y-%m-%d %H:%M}")
        elif found is not None:
            _log.warning("SIGHUP: only the certificate was read again, and clients refuse it: %s", found.refused)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a server or not."""
        connection.context = self._read_last


async def listen(
    protocols: Protocols, address: Address, what: str, option: str, certificate: ShownCertificate | None = None
) -> asyncio.Server:
    """Listen, over TLS where there is a certificate, and tell where; `option` is the flag that sets the address.

    Raises NotListeningError.
    """
    loop = asyncio.get_running_loop()
    try:
        server: asyncio.Server = await loop.create_server(
            protocols,
            address.host,
            address.port,
            backlog=1024,
            ssl=None if certificate is None else certificate.context,
            ssl_handshake_timeout=None if certificate is None else HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=None if certificate is None else _GOODBYE_SECONDS,
        )
    except OSError as exc:
        text = f"cannot listen on {address}: {exc.strerror or exc}; choose another address with --{option}"
        raise NotListeningError(text) from exc
    for socket in server.sockets:
        host, port = socket.getsockname()[:2]
        _log.info("%s on %s://%s", what, "http" if certificate is None else "https", Address(host, port))
    return server
