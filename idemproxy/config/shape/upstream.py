"""The shape of an upstream, and of how it is reached."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from idemproxy.config import values
from idemproxy.config.profiles import ProfileName
from idemproxy.config.shape.parts import Duration, ForwardKeyText, Patience, Shape, Text, checked_text


class TimeoutsShape(Shape):
    """Limits on one attempt."""

    connect: Patience = "5s"
    """Until a connection stands, TLS included."""
    first_byte: Patience = "60s"
    """From the request to the first byte of its answer."""
    idle: Patience = "30s"
    """Silence between two bytes."""
    total: Patience = "120s"
    """The whole attempt, until its answer begins to stream; not for what passes through."""


class UpstreamTlsShape(Shape):
    """TLS towards an upstream. Its certificate is always verified; files are PEM, relative to the configuration's directory."""

    ca_file: Text | None = None
    """Authorities to trust in the place of the system's."""
    certificate_file: Text | None = None
    """This proxy's own certificate, for an upstream that asks for one."""
    key_file: Text | None = None
    """Its private key, without a passphrase; default: in certificate_file."""
    server_name: Annotated[str, checked_text(values.read_match_host)] | None = None
    """The name that is asked for (SNI) and that the certificate must have; default: the host of the URL."""


class UpstreamShape(Shape):
    """A server that requests are forwarded to."""

    url: Annotated[str, checked_text(values.read_upstream_url)]
    """http:// or https://, host, port, and a path that is put before the path of every request."""
    tls: UpstreamTlsShape | None = None
    proxy: Annotated[str, checked_text(values.read_proxy_url)] | None = Field(default=None, repr=False)
    """An HTTP proxy through which the upstream is reached by CONNECT: http://host:port, or http://user:password@host:port."""
    forward_key: ForwardKeyText | None = None
    """What the upstream sees of the key: strip, same, or rename:<Header>; default by profile."""
    profile: ProfileName | None = None
    """Policies for every route to this upstream; default by its host, else strict."""
    timeouts: TimeoutsShape = TimeoutsShape()
    pool_idle: Duration = "4s"
    """How long an unused connection is kept; shorter than the upstream keeps it, or a request meets a dead one."""
    max_connections: Annotated[int, Field(ge=1, le=65_535)] = 1_000
    """Connections at a time."""
