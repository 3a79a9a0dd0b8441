"""The shape of a whole file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from idemproxy.config import units, values
from idemproxy.config.shape.parts import DURATION, Duration, Listen, PositiveSize, Shape, Text, checked, checked_text
from idemproxy.config.shape.route import Limits, RouteShape, ScopeShape
from idemproxy.config.shape.upstream import UpstreamShape


class AdminShape(Shape):
    """The listener for operators: metrics, health, and the records."""

    listen: Listen = "127.0.0.1:8081"
    """Address, host:port; port 0 takes a free one and prints it. Beyond loopback, records are served only to a token."""
    token_file: Text | None = None
    """A file that holds the bearer token for the records, from 16 characters; relative to the configuration's directory."""


class ListenerTlsShape(Shape):
    """TLS for clients; read again on SIGHUP, and kept as it was where that fails."""

    certificate_file: Text
    """The certificate, with those that lead to its authority, in PEM; relative to the configuration's directory."""
    key_file: Text
    """Its private key, without a passphrase, in PEM."""


class StoreTlsShape(Shape):
    """TLS towards Redis, for a URL that begins with rediss; the server's certificate and name are always verified."""

    ca_file: Text | None = None
    """Authorities to trust in the place of the system's, in PEM; relative to the configuration's directory."""
    certificate_file: Text | None = None
    """This proxy's own certificate, for a server that asks for one."""
    key_file: Text | None = None
    """Its private key, without a passphrase; default: in certificate_file."""


class DurabilityShape(Shape):
    """What must hold in Redis before a claim is granted, and before an answer counts as recorded."""

    replicas: Annotated[int, Field(ge=0, le=10)] = 0
    """How many replicas must have the write (WAIT). Set to as many as the primary has, no failover forgets an operation."""
    aof: bool = False
    """Whether the write must be on disk, on the server and on these replicas (WAITAOF; Redis 7.2, Valkey)."""
    timeout: Annotated[str, checked(units.confirmation_seconds), DURATION] = "500ms"
    """How long that may take, at most 1s: a claim that is not confirmed by then is given back, and nothing is sent."""


class StoreShape(Shape):
    """Where records are kept."""

    url: Annotated[str, checked_text(values.check_store_url)] | None = Field(default=None, repr=False)
    """sqlite:///file.db (default sqlite:///idemproxy.db), redis://host:6379/0, rediss:// with TLS, unix:///path/to/socket,
    redis+sentinel://host:26379,host:26379/service/0, redis+cluster://host:6379,host:6379, or memory:// for tests."""
    url_file: Text | None = None
    """A file that holds the URL, for one with a password; relative to the configuration's directory."""
    password_file: Text | None = None
    """A file that holds the password alone, for a URL without one; relative to the configuration's directory."""
    tls: StoreTlsShape | None = None
    durability: DurabilityShape | None = None
    accept_risk: tuple[Literal["eviction", "loss"], ...] = ()
    """Faults of the server that are known and accepted. eviction: a full memory may forget operations, which then run again;
    loss: so may a restart without persistence, or FLUSHALL."""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = "idemproxy:"
    """What the names of all records begin with, in a store that is shared with other programs."""


class SpoolShape(Shape):
    """Where completions wait that the store could not take."""

    directory: Text = "idemproxy-spool"
    """A directory on a disk that outlives the process, relative to the current one. The proxies of a host may share it."""


class ConfigurationShape(Shape):
    """A configuration of idemproxy."""

    listen: Listen = "127.0.0.1:8080"
    """Address for clients, host:port; port 0 takes a free one and prints it. Beyond loopback, `scope` must be said."""
    tls: ListenerTlsShape | None = None
    trusted_proxies: tuple[Annotated[str, checked_text(values.read_network)], ...] = ("127.0.0.0/8", "::1/128")
    """Networks whose `Forwarded` and `X-Forwarded-*` are believed and passed on; from anyone else they are removed."""
    admin: AdminShape = AdminShape()
    store: StoreShape = StoreShape()
    spool: SpoolShape = SpoolShape()
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that serve clients, on one port and with one store; at most one for each core helps. Needs Linux."""
    max_agent_memory: PositiveSize = "1MiB"
    """The longest memory that an agent may save of its workflow; kept for the retention and the expired_mark of `defaults`."""
    scope: ScopeShape | None = None
    key_secret: Text | None = Field(default=None, repr=False)
    """Makes the hashes of keys and scopes useless to whoever reads the store; the same for all proxies of one store."""
    key_secret_file: Text | None = None
    """A file that holds the secret; relative to the configuration's directory."""
    access_log: bool = True
    """One JSON line for each request on standard output."""
    log_format: Literal["text", "json"] = "text"
    """The lines on standard error, of what the proxy does and what goes wrong: words for a person, or one JSON object each."""
    drain: Duration = "30s"
    """How long a stop waits for attempts that are under way."""
    upstreams: Annotated[
        dict[str, UpstreamShape], Field(json_schema_extra={"propertyNames": {"pattern": f"^{values.UPSTREAM_NAME}$"}})
    ] = {}  # noqa: RUF012 - a model copies its defaults
    """By name: lower-case letters, digits, _ and -, the first no sign. It is part of every record: renamed, it has no records."""
    defaults: Limits = Limits()
    routes: tuple[RouteShape, ...] | None = None
    """In the order in which they are tried. Without any, one upstream takes everything, and several are reached under /name/."""
