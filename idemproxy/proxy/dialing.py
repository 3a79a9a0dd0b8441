"""How a connection to an upstream comes to stand: directly or through an HTTP proxy, plain or over TLS.

Whatever fails here, no byte of a request has been written; and here, in one place, such a failure gets its name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final, TypedDict

from idemproxy.core.outcome import NeverSent
from idemproxy.core.policy import KIB, EgressProxy, Upstream
from idemproxy.proxy.answer_reader import AnswerReader
from idemproxy.proxy.connection import Connection

MAX_PROXY_HEAD: Final = 16 * KIB
"""The longest head with which a proxy may answer a CONNECT."""

_GOODBYE_SECONDS: Final = 1.0

_HUNG_UP: Final = "closed the connection during the TLS handshake"
"""The one failure for which neither event loop has a word."""


class ProxyError(ConnectionError):
    """The proxy on the way gives no tunnel that can be used."""

    def __init__(self, outcome: NeverSent) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


async def dial(upstream: Upstream, tls: ssl.SSLContext | None, loop: asyncio.AbstractEventLoop) -> Connection:
    """A connection on which nothing has been written yet; `tls` for an upstream that speaks it. Raises OSError."""
    proxy = upstream.proxy
    if proxy is not None:
        return await _dial_through(proxy, upstream, tls, loop)
    if tls is None:
        _, connection = await loop.create_connection(lambda: Connection(loop, upstream.timeouts), upstream.host, upstream.port)
        return connection
    _, connection = await loop.create_connection(
        lambda: Connection(loop, upstream.timeouts), upstream.host, upstream.port, ssl=tls, **_tls_options(upstream)
    )
    return connection


async def _dial_through(
    proxy: EgressProxy, upstream: Upstream, tls: ssl.SSLContext | None, loop: asyncio.AbstractEventLoop
) -> Connection:
    """Ask the proxy for a tunnel (CONNECT, RFC 9110, section 9.3.6), and speak to the upstream through it."""
    transport, tunnel = await loop.create_connection(lambda: _Tunnel(proxy, upstream, loop), proxy.host, proxy.port)
    try:
        transport.write(_connect_request(proxy, upstream))
        await tunnel.opened
        end = tunnel.checked(transport)
        if tls is not None:
            end = tunnel.checked(await loop.start_tls(transport, tunnel, tls, **_tls_options(upstream)))
        connection = Connection(loop, upstream.timeouts)
        end.set_protocol(connection)
        connection.connection_made(end)
    except BaseException:
        transport.abort()
        raise
    return connection


class _Tls(TypedDict):
    server_hostname: str
    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


def _tls_options(upstream: Upstream) -> _Tls:
    """Whom to expect, and the times of TLS. The name is asked for too (SNI), unless it is an IP address (RFC 6066, section 3)."""
    return {
        "server_hostname": (upstream.tls.server_name or upstream.host).removesuffix("."),
        "ssl_handshake_timeout": upstream.timeouts.connect,
        "ssl_shutdown_timeout": _GOODBYE_SECONDS,
    }


def _connect_request(proxy: EgressProxy, upstream: Upstream) -> bytes:
    place = _place(upstream).encode("ascii")
    credentials = b"" if proxy.authorization is None else b"Proxy-Authorization: %b\r\n" % proxy.authorization
    return b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (place, place, credentials)


class _Tunnel(asyncio.Protocol):
    """A connection to a proxy until somebody speaks through it. `opened` comes with its consent, or raises ProxyError."""

    def __init__(self, proxy: EgressProxy, upstream: Upstream, loop: asyncio.AbstractEventLoop) -> None:
        self.opened: asyncio.Future[None] = loop.create_future()
        self._proxy = f"the proxy {_place(proxy)}"
        self._upstream = upstream
        self._answer = AnswerReader(to_head=True)  # as to HEAD: no body follows, whatever the head announces
        self._received = 0

    def checked(self, end: asyncio.Transport | None) -> asyncio.Transport:
        """This end of the tunnel, if it stands and nothing has come through it. Raises ProxyError.

        Whoever speaks unasked is not the upstream: in HTTP as in TLS, the client does so first.
        """
        if self._answer.surplus:
            raise ProxyError(NeverSent(f"{self._proxy} sent something that nobody had asked for"))
        if end is None or end.is_closing():
            raise ProxyError(NeverSent(f"{self._proxy} closed the tunnel to {_place(self._upstream)} as soon as it stood"))
        return end

    def data_received(self, data: bytes) -> None:
        """Read the proxy's answer."""
        answer = self._answer
        self._received += len(data)
        if self.opened.done():
            answer.surplus = True
            return
        answer.feed(data)
        if answer.error is not None:
            self._close(f"{self._proxy} answered something else than HTTP")
        elif answer.head is not None and 200 <= answer.head.status < 300:
            self.opened.set_result(None)
        elif answer.head is not None:
            self._refuse(answer.head.status)
        elif self._received > MAX_PROXY_HEAD:
            self._close(f"{self._proxy} answered with a head of more than {MAX_PROXY_HEAD // KIB} KiB")

    def connection_lost(self, exc: Exception | None) -> None:
        """It will not answer any more."""
        self._close(f"{self._proxy} closed the connection without an answer" + (f": {exc}" if str(exc or "") else ""))

    def _refuse(self, status: int) -> None:
        said = f"{self._proxy} opened no tunnel to {_place(self._upstream)}: its status is {status}"
        if status == 407:
            self._close(f"{said}, so it wants other credentials in the upstream's `proxy`", "proxy_configuration_error")
        else:
            self._close(f"{said}, and whoever runs it can tell why")

    def _close(self, reason: str, error: str = "destination_unavailable") -> None:
        if not self.opened.done():
            self.opened.set_exception(ProxyError(NeverSent(reason, error)))


def name_failure(exc: OSError, upstream: Upstream) -> NeverSent:
    """What a failure before the first byte is called (RFC 9209, section 2.3), and the status for the caller."""
    place, proxy = _place(upstream), upstream.proxy
    through = "" if proxy is None else f" through the proxy {_place(proxy)}"
    first = place if proxy is None else f"the proxy {_place(proxy)}"
    match exc:
        case ProxyError():
            return exc.outcome
        case TimeoutError():
            limit = f"within {upstream.timeouts.connect:g} s"
            return NeverSent(f"no connection to {place}{through} {limit}", "connection_timeout", 504)
        case socket.gaierror():
            host = upstream.host if proxy is None else proxy.host
            return NeverSent(f"the name {host} does not resolve", "dns_error", 502)
        case ssl.SSLCertVerificationError():
            return NeverSent(f"the certificate of {place} is not trusted: {exc.verify_message}", "tls_certificate_error", 502)
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return NeverSent(f"{place}{through} {_HUNG_UP}", "tls_protocol_error", 502)
        case ssl.SSLError():
            return NeverSent(f"no TLS with {place}{through}: {exc.reason or exc}", "tls_protocol_error", 502)
        case ConnectionRefusedError():
            return NeverSent(f"{first} refused the connection", "connection_refused", 502)
        case _:
            why = exc.strerror or str(exc)
            said = f"no connection to {place}{through}: {why}" if why else f"{place}{through} {_HUNG_UP}"
            return NeverSent(said, "destination_unavailable", 502)


def _place(there: Upstream | EgressProxy) -> str:
    """Host and port, with an IPv6 address in brackets."""
    return f"[{there.host}]:{there.port}" if ":" in there.host else f"{there.host}:{there.port}"
