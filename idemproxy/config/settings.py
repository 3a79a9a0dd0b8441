"""What a run is made of, checked and complete. Nothing is looked up elsewhere after these values exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, TypeAlias

from idemproxy.core.policy import Route, Upstream


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 lets the system choose one, which is then printed."""

    host: str
    port: int

    def __str__(self) -> str:
        """`host:port`, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The store's URL, and the prefix of its keys where it shares a server."""

    url: str
    prefix: str = "idemproxy:"


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Paths of the PEM files with which clients are answered over TLS."""

    certificate_file: str
    key_file: str


Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole, valid configuration.

    For the start-up lines: `profiles` tells, by route name, which profile was chosen and why, and `warnings` what is allowed but
    seldom meant, each with its path.
    """

    listen: Address
    admin: Address
    store: StoreSettings
    upstreams: Mapping[str, Upstream]
    routes: tuple[Route, ...]
    profiles: Mapping[str, str]
    tls: ListenerTls | None = None
    trusted_proxies: tuple[Network, ...] = ()
    """Whose word on who asked is believed."""
    access_log: bool = True
    log_format: Literal["text", "json"] = "text"
    """Of the lines on standard error."""
    key_secret: bytes | None = field(default=None, repr=False)
    admin_token: bytes | None = field(default=None, repr=False)
    """What the records ask for on the admin listener. Without one they are served on loopback only."""
    spool: Path = Path("idemproxy-spool")
    drain: float = 30.0
    warnings: tuple[str, ...] = ()
