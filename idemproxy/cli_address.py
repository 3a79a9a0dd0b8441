"""Where the commands that ask a running proxy find its admin listener."""

from __future__ import annotations

import argparse
import os
from typing import Final

ADMIN: Final = "127.0.0.1:8081"
"""Where it listens by default."""


def add_admin(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that asks a running proxy; its value is the listener's host and port."""
    about = f"the admin listener (default: IDEMPROXY_ADMIN_LISTEN, else that of the file IDEMPROXY_CONFIG, else {ADMIN})"
    # Of the default, a text, argparse asks the type as of any other; so the file is read only where the flag is missed.
    parser.add_argument("--admin", type=_host_and_port, default="", metavar="URL|HOST:PORT", help=about)


def _host_and_port(text: str) -> tuple[str, int]:
    """Where the admin listener is asked: `http://host:port`, or where it listens; empty: as this environment has it."""
    text = text or _admin_of_this_environment()
    if text.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text!r}: the admin listener speaks HTTP without TLS: write http://host:port")
    bare = text.removeprefix("http://").rstrip("/")
    host, _, port = bare.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not http://host:port or host:port")
    # Who listens everywhere is asked on loopback.
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)  # noqa: S104 - recognised, not listened on


def _admin_of_this_environment() -> str:
    """The address on which a proxy with this environment listens for operators."""
    if said := os.environ.get("IDEMPROXY_ADMIN_LISTEN"):
        return said
    if file := os.environ.get("IDEMPROXY_CONFIG"):
        from pathlib import Path  # noqa: PLC0415 - with YAML it takes as long as the rest of a health check

        from idemproxy.config import source  # noqa: PLC0415 - as above

        document = source.read(Path(file), os.environ)
        if not document.whole:  # the default might be another proxy's
            raise argparse.ArgumentTypeError(f"IDEMPROXY_CONFIG tells no address: {document.problems[0]}")
        match document.tree:
            case {"admin": {"listen": str(address)}}:
                return address
    return ADMIN
