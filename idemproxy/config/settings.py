"""What a run is made of, checked and complete. Nothing is looked up elsewhere after these values exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, TypeAlias

from idemproxy.core.policy import MIB, Route, Upstream
from idemproxy.core.scope import ScopeRule


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 lets the system choose one, which is then printed."""

    host: str
    port: int

    def __str__(self) -> str:
        """`host:port`, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StoreTls:
    """Paths of PEM files for TLS towards a store; None is the usual."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class StoreDurability:
    """When a write to a store counts: on so many replicas, and on disk; `timeout` in seconds."""

    replicas: int = 0
    aof: bool = False
    timeout: float = 0.5


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The store's URL, the prefix of its keys where it shares a server, and what is asked and accepted of that."""

    url: str = field(repr=False)
    prefix: str = "idemproxy:"
    tls: StoreTls = StoreTls()
    durability: StoreDurability = StoreDurability()
    accepted_risks: frozenset[str] = frozenset()


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
    scope: ScopeRule = ScopeRule()
    """Whose workflows there are; routes have scopes of their own for records."""
    tls: ListenerTls | None = None
    trusted_proxies: tuple[Network, ...] = ()
    """Whose word on who asked is believed."""
    access_log: bool = True
    log_format: Literal["text", "json"] = "text"
    """Of the lines on standard error."""
    key_secret: bytes | None = field(default=None, repr=False)
    admin_token: bytes | None = field(default=None, repr=False)
    """What the records ask for on the admin listener. Without one they are served on loopback only."""
    max_agent_memory: int = MIB
    """The longest that an agent may save of its own state, in bytes."""
    memory_kept: float = 8 * 86_400.0
    """For how long that is kept after the last save, in seconds."""
    spool: Path = Path("idemproxy-spool")
    workers: int = 1
    """Processes that serve; one is the program itself."""
    drain: float = 30.0
    warnings: tuple[str, ...] = ()
