"""The command line. Nothing heavy is imported before a command needs it: `healthcheck` runs every few seconds.

Exit status: 0 done, 1 it could not be done, 2 wrong usage or configuration; `run` adds those of `lifecycle.run`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from idemproxy import __version__
from idemproxy.cli_address import ADMIN, add_admin

if TYPE_CHECKING:
    from idemproxy.config.load import Configuration
    from idemproxy.config.settings import Settings, StoreSettings

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2

_ANSWER_TIME: Final = 3.0
_PAUSE: Final = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say (default: the process's own) and return the exit status."""
    if os.getpid() == 1:
        # To the first process of a container the kernel gives no signal that it has no handler for: a SIGTERM that comes before
        # `run` listens would be lost, and the end be a SIGKILL, with attempts under way.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given and given[0] in PROGRAMS:
        return PROGRAMS[given[0]](given[1:])
    if given == ["--version"]:
        given = ["version"]
    parsed = _parser().parse_args(given)
    try:
        return COMMANDS[parsed.command](parsed)
    except KeyboardInterrupt:
        return FAILED


def run(parsed: argparse.Namespace) -> int:
    """Serve until a signal."""
    from idemproxy.apart import NotMadeError, made_apart  # noqa: PLC0415 - needed by this command only

    def read() -> Settings | str:
        found = _loaded(parsed, _why_no_store)
        return found if isinstance(found, str) else found.settings

    try:
        # pydantic, YAML and what they make of a file would stay for as long as this runs: twelve megabytes.
        settings = made_apart(read, meanwhile=_import_what_runs)
    except NotMadeError:
        sys.stderr.write("the process that reads the configuration ended before it had\n")
        return FAILED
    if isinstance(settings, str):
        sys.stderr.write(f"{settings}\n")
        return WRONG
    if settings.workers > 1:
        from idemproxy import workers  # noqa: PLC0415 - as below

        return workers.run(settings)
    from idemproxy import lifecycle  # noqa: PLC0415 - this is what is heavy

    return lifecycle.run(settings)


def _import_what_runs() -> None:
    from idemproxy import lifecycle  # noqa: F401, PLC0415 - as above


def check(parsed: argparse.Namespace) -> int:
    """Say whether `run` would take this configuration."""
    from idemproxy.config.places import why_no_spool, why_no_store_file  # noqa: PLC0415 - needed by this command only

    configuration = _configuration(parsed, lambda store: _why_no_store(store) or why_no_store_file(store))
    if configuration is None:
        return WRONG
    settings = configuration.settings
    reason = why_no_spool(settings.spool)
    spool = [] if reason is None else [f"spool.directory: {reason}; without one, an answer that the store does not take is lost"]
    for warning in (*settings.warnings, *spool):
        sys.stderr.write(f"warning: {warning}\n")
    store = settings.store.url.partition("://")[0]
    counts = f"upstreams: {len(settings.upstreams)}, routes: {len(settings.routes)}"
    return _tell(f"the configuration is fine ({counts}, store: {store})\n")


def doctor(parsed: argparse.Namespace) -> int:
    """Look at the store's server or file: whether the records that a run would put there stay."""
    if not any((parsed.config, os.environ.get("IDEMPROXY_CONFIG"), os.environ.get("IDEMPROXY_UPSTREAM"))):
        parsed.upstream = ["http://127.0.0.1"]  # it is the store that is asked about: any upstream makes a configuration whole
    configuration = _configuration(parsed)
    if configuration is None:
        return WRONG
    from idemproxy.cli_doctor import examine  # noqa: PLC0415 - needed by this command only

    findings, is_fit = examine(configuration.settings.store)
    return _tell(findings) or (OK if is_fit else FAILED)


def print_config(parsed: argparse.Namespace) -> int:
    """Print everything that is in effect, without secrets."""
    configuration = _configuration(parsed)
    if configuration is None:
        return WRONG
    from idemproxy.config.show import as_yaml  # noqa: PLC0415 - needed by this command only

    return _tell(as_yaml(configuration.shape, configuration.settings.profiles))


def schema(_: argparse.Namespace) -> int:
    """Print the JSON Schema of configuration files."""
    from idemproxy.config.show import json_schema  # noqa: PLC0415 - needed by this command only

    return _tell(json_schema())


def wait(parsed: argparse.Namespace) -> int:
    """Return when the proxy is ready, or fail at the deadline with the last reason."""
    deadline = time.monotonic() + parsed.timeout
    told = "" if sys.stderr.isatty() else None
    while True:
        remaining = deadline - time.monotonic()
        status, reason = _ask(parsed.admin, "/readyz", min(_ANSWER_TIME, max(remaining, _PAUSE)))
        if status == 200:
            return OK
        if told is not None and told != reason:
            told = reason
            sys.stderr.write(f"waiting: {reason}\n")
        if time.monotonic() + _PAUSE > deadline:
            sys.stderr.write(f"not ready: {reason}\n")
            return FAILED
        time.sleep(_PAUSE)


def healthcheck(parsed: argparse.Namespace) -> int:
    """Ask once whether the proxy is alive."""
    status, reason = _ask(parsed.admin, "/livez", _ANSWER_TIME)
    if status == 200:
        return OK
    sys.stderr.write(f"not healthy: {reason}\n")
    return FAILED


def version(_: argparse.Namespace) -> int:
    """Print the version."""
    return _tell(f"idemproxy {__version__}\n")


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "run": run,
    "check": check,
    "doctor": doctor,
    "print-config": print_config,
    "schema": schema,
    "wait": wait,
    "healthcheck": healthcheck,
    "version": version,
}


def _tell(text: str) -> int:
    """Write a command's result to standard output, all of it; the exit status."""
    try:
        print(text, end="", flush=True)
    except OSError as failure:
        return output_lost(failure)
    return OK


def output_lost(failure: OSError) -> int:
    """Say that standard output takes no more, and give it up; the exit status."""
    # What is still buffered would complain at the exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(failure, BrokenPipeError):  # a reader such as `head` has seen enough
        sys.stderr.write(f"standard output cannot be written: {failure.strerror}\n")
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="idemproxy", description="One write, one effect, and the same answer to every retry.")
    parser.add_argument("--version", action="store_true", help="print the version, as the command does")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        about = (command.__doc__ or "").strip().splitlines()[0]
        sub = commands.add_parser(name, help=about, description=about)
        if name in {"run", "check", "doctor", "print-config"}:
            _add_file_and_store(sub)
        if name in {"run", "check", "print-config"}:
            _add_settings(sub)
        if name in {"wait", "healthcheck"}:
            add_admin(sub)
        if name == "wait":
            about = "give up after this time (default: %(default)s)"
            sub.add_argument("--timeout", type=_seconds, default="30s", metavar="DURATION", help=about)
    commands.add_parser("records", help="List, show, resolve and forget records: the ways out of an unknown outcome.")
    commands.add_parser("demo", help="Show an agent that is killed and started again, without the proxy and with it.")
    commands.add_parser("demo-api", help="Serve a sample upstream: payments, an airline and mail, without idempotency.")
    return parser


def _add_file_and_store(parser: argparse.ArgumentParser) -> None:
    """The flags of all that load a configuration; each is also read from the environment, as IDEMPROXY_ and its name."""
    parser.epilog = "Each flag is also read from the environment (IDEMPROXY_STORE for --store); flags come first."
    parser.add_argument("--config", metavar="FILE", help="YAML file; flags and environment come before what it says")
    parser.add_argument(
        "--store", metavar="URL", help="sqlite:///file.db or redis://host:6379/0 (default: sqlite:///idemproxy.db)"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """The other flags that make a configuration."""
    parser.add_argument("--upstream", metavar="[NAME=]URL", action="append", help="where to forward to; several: under /NAME/")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address for clients (default: 127.0.0.1:8080)")
    parser.add_argument("--admin-listen", metavar="HOST:PORT", help=f"address for metrics and health (default: {ADMIN})")
    about = "bearer token for the records on the admin listener; without it they are served on loopback only"
    parser.add_argument("--admin-token-file", metavar="FILE", help=about)
    about = "where completions wait that the store could not take (default: idemproxy-spool)"
    parser.add_argument("--spool", metavar="DIRECTORY", help=about)
    parser.add_argument("--workers", metavar="N", help="processes that serve clients; at most one for each core (default: 1)")
    parser.add_argument("--access-log", metavar="on|off", help="one JSON line for each request on standard output (default: on)")
    about = "the lines on standard error: words, or one JSON object each (default: text)"
    parser.add_argument("--log-format", metavar="text|json", help=about)


def _configuration(
    parsed: argparse.Namespace, why_no_store: Callable[[StoreSettings], str | None] | None = None
) -> Configuration | None:
    """The configuration that flags, environment and file make; None after its problems were written to standard error."""
    found = _loaded(parsed, why_no_store or _why_no_store)
    if isinstance(found, str):
        sys.stderr.write(f"{found}\n")
        return None
    return found


def _loaded(parsed: argparse.Namespace, why_no_store: Callable[[StoreSettings], str | None]) -> Configuration | str:
    """The same, or its problems as text."""
    from idemproxy.config.load import FLAGS, load  # noqa: PLC0415 - pydantic and YAML take longer than a health check
    from idemproxy.config.problem import ConfigurationError  # noqa: PLC0415 - as above

    flags = {}
    for name in ("config", "upstream", *FLAGS):
        value = getattr(parsed, name.replace("-", "_"), None)
        if value is not None:
            flags[name] = value if isinstance(value, list) else [value]
    try:
        return load(flags, os.environ, why_no_store)
    except ConfigurationError as failure:
        return str(failure)


def _why_no_store(settings: StoreSettings) -> str | None:
    """What is wrong with a store's URL in the store's own eyes; it is made, and connects to nothing."""
    from idemproxy.store.base import StoreError  # noqa: PLC0415 - only a command that makes a store needs it
    from idemproxy.store.choice import open_store  # noqa: PLC0415 - as above

    try:
        open_store(settings)
    except StoreError as failure:
        return str(failure).removeprefix("store.url ")
    return None


def _ask(admin: tuple[str, int], path: str, timeout: float) -> tuple[int | None, str]:
    """Status of one GET, or None where there is no answer, and a reason for a person."""
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - two commands need it

    host, port = admin
    connection = HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read(1_000).decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as failure:
        return None, f"http://{host}:{port}{path}: {str(failure) or type(failure).__name__}"
    except UnicodeError:  # of the standard library's IDNA, which speaks of labels and codecs
        return None, f"http://{host}:{port}{path}: {host!r} is not the name of a host"
    else:
        return response.status, f"http://{host}:{port}{path}: {response.status} {text}"
    finally:
        connection.close()


def _seconds(text: str) -> float:
    from idemproxy.config.units import seconds  # noqa: PLC0415 - one command needs it

    try:
        return seconds(text)
    except ValueError as failure:
        raise argparse.ArgumentTypeError(str(failure)) from failure


def _records(arguments: list[str]) -> int:
    """Look at records and act on them: verbs with arguments of their own."""
    from idemproxy import cli_records  # noqa: PLC0415 - one command needs it

    try:
        return cli_records.main(arguments)
    except KeyboardInterrupt:
        return FAILED


def _demo_api(arguments: list[str]) -> int:
    """Run the sample upstream, a program of its own."""
    from idemproxy.demo import command  # noqa: PLC0415 - it brings a whole server

    parser = argparse.ArgumentParser(prog="idemproxy demo-api", description=command.ABOUT)
    command.add_arguments(parser)
    return command.main(parser.parse_args(arguments))


def _demo(arguments: list[str]) -> int:
    """Show an agent that is killed, with programs of its own."""
    from idemproxy.demo import show, timeline  # noqa: PLC0415 - one command needs it

    parser = argparse.ArgumentParser(prog="idemproxy demo", description=show.ABOUT)
    show.add_arguments(parser)
    try:
        parsed = parser.parse_args(arguments)
        if sys.stdout is None:
            sys.stderr.write("standard output is closed: there is nowhere to show it\n")
            return FAILED
        return show.main(parsed)
    except timeline.OutputLostError as lost:
        return output_lost(lost.failure)
    except KeyboardInterrupt:
        return FAILED


PROGRAMS: Final[dict[str, Callable[[list[str]], int]]] = {"records": _records, "demo": _demo, "demo-api": _demo_api}
"""Commands that read their arguments themselves."""
