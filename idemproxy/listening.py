"""Listening sockets, and the certificate that clients are shown, which can be renewed while they are served."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from idemproxy.config.certificates import CertificateError, Pair, read_pair
from idemproxy.config.settings import Address, ListenerTls

_log = logging.getLogger("idemproxy")

HANDSHAKE_SECONDS: Final = 10.0
"""How long a client may take for its TLS handshake."""

_GOODBYE_SECONDS: Final = 1.0

_ADMIN_BACKLOG: Final = 100

Protocols: TypeAlias = Callable[[], asyncio.Protocol]


class _Named(Protocol):
    """A socket, or what asyncio shows of one."""

    def getsockname(self) -> Any:  # noqa: ANN401 - as the standard library has it
        """Its address."""


class NotListeningError(Exception):
    """An address cannot be listened on; the message says why, and what to do."""


class _Latest(ssl.SSLContext):
    """A context that begins each handshake in another one, which can be replaced.

    Both event loops begin one with `wrap_bio`. No part of the handshake is read here: what of a name (SNI) cannot be decoded,
    Python would tell on standard error, and wait there for a reader.
    """

    latest: ssl.SSLContext
    refused: Callable[[], None]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As in the standard library."""
        made: ssl.SSLObject = self.latest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, _Handshake):
            made.refused = self.refused
        return made


class _Handshake(ssl.SSLObject):
    """TLS with one client, which tells when its handshake fails; not when the client only hangs up, as port scans do."""

    refused: Callable[[], None]

    def do_handshake(self) -> None:
        """As in the standard library."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.refused()
            raise


class ShownCertificate:
    """The certificate and key of a listener. Raises CertificateError when they cannot be used at the start.

    Each handshake that begins on `context` gets the pair that was taken last, so half a pair never serves. `refused` is called
    for each that fails, since nothing is logged of it.
    """

    def __init__(self, tls: ListenerTls, refused: Callable[[], None]) -> None:
        self._tls = tls
        self._latest = _Latest(ssl.PROTOCOL_TLS_SERVER)
        self._take(read_pair(tls.certificate_file, tls.key_file))
        self._latest.refused = refused

    @property
    def context(self) -> ssl.SSLContext:
        """For a listener."""
        return self._latest

    def read_again(self) -> bool:
        """Take the files as they are now for new connections, and tell so; whether they were taken.

        The pair from before stays if they cannot be used, or if clients would refuse the new one and not that from before.
        """
        try:
            pair = read_pair(self._tls.certificate_file, self._tls.key_file)
            found = pair.validity()
            if found.refused is not None and self._pair.validity().refused is None:
                _log.error("SIGHUP: the certificate from before stays, since clients would refuse the new one: %s", found.refused)
                return False
            self._take(pair)
        except CertificateError as exc:
            _log.error("SIGHUP: the certificate from before stays: tls.%s: %s", exc.setting, exc)
            return False
        if found.until is not None:
            _log.info("SIGHUP: only the certificate was read again; it is valid until %s UTC", f"{found.until:%Y-%m-%d %H:%M}")
        else:
            _log.warning("SIGHUP: only the certificate was read again, and clients refuse it: %s", found.refused)
        return True

    def _take(self, pair: Pair) -> None:
        """Show this pair from now on. Raises CertificateError."""
        context = pair.server_context()
        context.sslobject_class = _Handshake
        self._latest.latest, self._pair = context, pair


async def listen(
    protocols: Protocols,
    address: Address,
    what: str,
    option: str,
    certificate: ShownCertificate | None = None,
    *,
    is_shared: bool = False,
) -> asyncio.Server:
    """Listen, over TLS where there is a certificate, and tell where; `option` is the flag that sets the address.

    `is_shared`: other processes listen there too, the system gives each its part of the connections, and whoever has reserved
    the address tells of it. Raises NotListeningError.
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
            reuse_port=True if is_shared else None,
        )
    except OSError as exc:
        raise _not_listening(address, option, exc) from exc
    if not is_shared:
        tell(what, server.sockets, is_tls=certificate is not None)
    return server


async def listen_on(protocols: Protocols, sockets: Iterable[socket.socket]) -> list[asyncio.Server]:
    """Listen on sockets that other processes listen on too: whoever is awake takes the next connection."""
    loop = asyncio.get_running_loop()
    return [await loop.create_server(protocols, sock=each, backlog=_ADMIN_BACKLOG) for each in sockets]


def tell(what: str, sockets: Iterable[_Named], *, is_tls: bool = False) -> None:
    """Say where it is listened."""
    for each in sockets:
        host, port = each.getsockname()[:2]
        _log.info("%s on %s://%s", what, "https" if is_tls else "http", Address(host, port))


def reserve(address: Address, option: str) -> list[socket.socket]:
    """Sockets that are bound to an address, and listen to nobody yet. Raises NotListeningError, also where another has it.

    A port that the system chooses is the same for all addresses of the host.
    """
    reserved: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in dict.fromkeys(found):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError:  # a kind of address that this system does not have
                continue
            reserved.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            port = reserved[0].getsockname()[1] or address.port
            each.bind((place[0], port, *place[2:]))
        if not reserved:
            raise OSError("this system has no such kind of address")  # noqa: TRY301 - told as the others are
    except OSError as exc:
        for each in reserved:
            each.close()
        raise _not_listening(address, option, exc) from exc
    return reserved


def share(reserved: Iterable[socket.socket]) -> None:
    """Let other processes of this user listen where these are bound; only now, so that `reserve` fails where others listen."""
    for each in reserved:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def _not_listening(address: Address, option: str, exc: OSError) -> NotListeningError:
    return NotListeningError(f"cannot listen on {address}: {exc.strerror or exc}; choose another address with --{option}")
