"""A Redis that speaks TLS and asks its clients for a certificate, with an authority made for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from idemproxy.store.redis_endpoint import TlsFiles
from tests.processes import scratch
from tests.servers import free_port, redis_server, tls_binary


@dataclass(frozen=True, slots=True)
class TlsServer:
    """Where it is, with TLS and without, and the files with which it is reached; its certificate names 127.0.0.1 alone."""

    url: str
    plain_url: str
    ca_file: Path
    certificate_file: Path
    key_file: Path

    @property
    def files(self) -> TlsFiles:
        """As the store takes them."""
        return TlsFiles(str(self.ca_file), str(self.certificate_file), str(self.key_file))


@contextmanager
def tls_server() -> Iterator[TlsServer]:
    """A started server; skips where none that speaks TLS is installed."""
    binary = tls_binary()
    if binary is None:
        pytest.skip("no Redis server that speaks TLS is installed: apt-get install redis-server")
    authority = trustme.CA()
    with scratch() as directory:
        ca_file = directory / "ca.pem"
        authority.cert_pem.write_to_path(str(ca_file))
        server_certificate, server_key = _issued(authority, directory, "127.0.0.1")
        certificate_file, key_file = _issued(authority, directory, "proxy.test")
        port = free_port()
        with redis_server(
            binary=binary,
            tls_port=str(port),
            tls_cert_file=str(server_certificate),
            tls_key_file=str(server_key),
            tls_ca_cert_file=str(ca_file),
            tls_auth_clients="yes",
        ) as server:
            yield TlsServer(f"rediss://127.0.0.1:{port}/0", server.url, ca_file, certificate_file, key_file)


def other_authority(directory: Path) -> Path:
    """The certificate of an authority that has issued nothing."""
    file = directory / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    return file


def _issued(authority: trustme.CA, directory: Path, name: str) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    issued = authority.issue_cert(name)
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return certificate, key
