"""The command line of the sample upstream: listen, say where, serve until SIGTERM or SIGINT.

Exit status: 0 after a signal, 1 when the address or the ledger cannot be used, 2 for wrong arguments (argparse).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from aiohttp import web

from idemproxy.demo.airline import BOOKINGS, TIMETABLE
from idemproxy.demo.api import create_app
from idemproxy.demo.ledger import DamagedLedgerError, Ledger
from idemproxy.demo.mail import MAIL
from idemproxy.demo.payments import PAYMENTS

ABOUT: Final = "Serve a sample upstream: payments, an airline and mail, without idempotency."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--listen HOST:PORT` and `--ledger FILE` on `parser`."""
    parser.add_argument("--listen", type=_address, default="127.0.0.1:9000", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="keep the effects in FILE, so that they outlive the process")


def main(arguments: argparse.Namespace) -> int:
    """Serve the sample as the parsed `arguments` say, until a signal; returns the exit status."""
    try:
        app = create_app(Ledger(arguments.ledger), (*PAYMENTS, *BOOKINGS, *MAIL), TIMETABLE)
        asyncio.run(_serve(app, *arguments.listen))
    except (OSError, DamagedLedgerError) as problem:
        sys.stderr.write(f"demo api: {problem}\n")
        return 1
    return 0


async def _serve(app: web.Application, host: str, port: int) -> None:
    """Listen on `host` and `port` until SIGTERM or SIGINT; OSError when that cannot be."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A shell starts its background programs with SIGINT ignored: the Ctrl-C is for the one in front.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # One second for requests under way: a long delay must not keep the process alive.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        for bound in runner.addresses:
            sys.stderr.write(f"listening on http://{_shown(bound[0])}:{bound[1]}\n")
        await stop.wait()
    finally:
        await runner.cleanup()


def _address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT` or `[IPV6]:PORT`; argparse.ArgumentTypeError otherwise."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
