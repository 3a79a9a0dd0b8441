"""The command `records`: what a person does about the operations that no machine can decide, over a proxy's admin listener.

It is started by hand and by scripts on any machine that reaches the listener, so it needs the standard library only.
"""

from __future__ import annotations

import argparse
import base64
import getpass
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from idemproxy.cli import FAILED, OK, output_lost
from idemproxy.cli_address import add_admin
from idemproxy.cli_admin import AdminClient, FailedError
from idemproxy.cli_records_text import described, plain, table

SHORTEST: Final = 8
"""Characters of a key's hash that name a record, where no other one begins so."""

PHASES: Final = ("unknown", "in_flight", "completed", "expired")

_PAGE: Final = 1_000
_LISTED_MATCHES: Final = 10

Shown: TypeAlias = dict[str, Any]
"""A record, as the admin API shows it."""


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments say, and return the exit status: 0 done, 1 it could not be done, 2 wrong usage."""
    parsed = _parse(arguments)
    act: Callable[[AdminClient, argparse.Namespace], None] = parsed.act
    try:
        act(AdminClient(parsed.admin, parsed.admin_token_file), parsed)
        sys.stdout.flush()
    except FailedError as failure:
        sys.stderr.write(f"{plain(str(failure))}\n")
        return FAILED
    except OSError as failure:  # all others have become a FailedError
        return output_lost(failure)
    return OK


def list_records(admin: AdminClient, parsed: argparse.Namespace) -> None:
    """List records, oldest first: those whose outcome is unknown, unless another phase is asked for."""
    found = _records(admin, parsed.phase)
    if parsed.json:
        for each in found:
            sys.stdout.write(json.dumps(each) + "\n")
    elif records := sorted(found, key=lambda each: str(each["claimed_at"])):
        sys.stdout.write(table(records))
    else:
        sys.stderr.write("there are no records\n" if parsed.phase == "all" else f"no record is {parsed.phase}\n")


def show(admin: AdminClient, parsed: argparse.Namespace) -> None:
    """Show a record, its stored answer, and what has been done to it by hand."""
    sys.stdout.write(described(admin.get(_path(_find(admin, parsed.id, "all")))))


def resolve(admin: AdminClient, parsed: argparse.Namespace) -> None:
    """Decide an unknown outcome: completed, with the answer that retries get; or not executed, so that a retry is forwarded."""
    wish: Shown = {"as": parsed.decision.replace("-", "_")}
    if parsed.decision == "completed":
        wish |= {"status": parsed.status, "headers": parsed.header}
        wish |= {
            name: content for name, content in (("body", parsed.body), ("body_base64", parsed.body_file)) if content is not None
        }
        told = f"completed with status {parsed.status}; that is what retries get"
    else:
        told = "not executed; the next request with this key is forwarded"
    _act(admin, parsed, "resolve", wish, found_in="unknown")
    sys.stdout.write(f"resolved: {told}\n")


def forget(admin: AdminClient, parsed: argparse.Namespace) -> None:
    """Remove a record, so that its key is new again; what was done stays in the audit trail."""
    _act(admin, parsed, "forget", {}, found_in="all")
    sys.stdout.write("forgotten: the next request with this key is forwarded\n")


def _act(admin: AdminClient, parsed: argparse.Namespace, verb: str, wish: Shown, *, found_in: str) -> None:
    """Ask for an act under the fence that is given, else under the present one, which is printed."""
    identity, fence = _find(admin, parsed.id, found_in), parsed.fence
    if fence is None:
        present = admin.get(_path(identity))
        if present["phase"] == "absent":
            raise FailedError(f"{identity}: there is no record any more; `idemproxy records show {identity}` tells what was done")
        fence = present["fence"]
        sys.stdout.write(
            f"{identity}: {present['phase']} since {present['settled_at'] or present['claimed_at']}, fence {fence}\n"
        )
        sys.stdout.flush()
    admin.post(f"{_path(identity)}/{verb}", {"fence": fence, "who": parsed.who or _login(), "why": parsed.why, **wish})


def _find(admin: AdminClient, named: str, phase: str) -> str:
    """The whole id of a record that is named by it, or by the beginning of its key's hash."""
    if "/" in named:
        return named
    matches = sorted({str(each["id"]) for each in _records(admin, phase) if str(each["key"]).startswith(named)})
    match matches:
        case [identity]:
            return identity
        case []:
            which = "record" if phase == "all" else f"{phase} record"
            raise FailedError(
                f"there is no {which} whose key's hash begins with {named}: see `idemproxy records list --phase all`"
            )
        case _:
            several = "\n".join(f"  {identity}" for identity in matches[:_LISTED_MATCHES])
            raise FailedError(f"{len(matches)} records have a key whose hash begins with {named}: give the whole id\n{several}")


def _records(admin: AdminClient, phase: str) -> Iterator[Shown]:
    """Every record of a phase, or of all, each once."""
    asked = {"limit": str(_PAGE)} | ({} if phase == "all" else {"phase": phase})
    seen: set[str] = set()
    cursor: str | None = ""
    while cursor is not None:
        page = admin.get("/records", asked | ({"cursor": cursor} if cursor else {}))
        for each in page["records"]:
            if each["id"] not in seen:
                seen.add(each["id"])
                yield each
        cursor = page["next"]


def _path(identity: str) -> str:
    return f"/records/{identity}"


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as failure:  # a user id without a name, as in many containers; which error depends on the version
        raise FailedError("it is not known who you are: give --who NAME, for the audit trail") from failure


VERBS: Final[dict[str, Callable[[AdminClient, argparse.Namespace], None]]] = {
    "list": list_records,
    "show": show,
    "resolve": resolve,
    "forget": forget,
}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, also checked together; what is wrong ends the program with 2."""
    parser = argparse.ArgumentParser(prog="idemproxy records", description="Records, and the ways out of an unknown outcome.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    adding: dict[str, argparse.ArgumentParser] = {}
    for name, act in VERBS.items():
        about = (act.__doc__ or "").strip()
        adding[name] = verbs.add_parser(name, help=about, description=about)
        adding[name].set_defaults(act=act)
        add_admin(adding[name])
        token = os.environ.get("IDEMPROXY_ADMIN_TOKEN_FILE") or None
        about = "file with the proxy's admin token, where it has one (default: IDEMPROXY_ADMIN_TOKEN_FILE)"
        adding[name].add_argument("--admin-token-file", type=_token, default=token, metavar="FILE", help=about)
    adding["list"].add_argument("--phase", choices=(*PHASES, "all"), default="unknown", help="default: unknown")
    adding["list"].add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    for name in ("show", "resolve", "forget"):
        about = f"the record's id, or the first {SHORTEST} or more characters of its key's hash"
        adding[name].add_argument("id", type=_id, metavar="ID", help=about)
    for name in ("resolve", "forget"):
        adding[name].add_argument("--why", required=True, metavar="TEXT", help="the reason, for the audit trail")
        adding[name].add_argument("--who", metavar="NAME", help="who decides, for the audit trail (default: your login name)")
        adding[name].add_argument(
            "--fence", type=int, metavar="N", help="act only if this is the record's fence (default: the present one)"
        )
    _add_answer(adding["resolve"])
    parsed = parser.parse_args(arguments)
    if parsed.verb == "resolve" and (wrong := _wrong_answer(parsed)):
        adding["resolve"].error(wrong)
    return parsed


def _add_answer(parser: argparse.ArgumentParser) -> None:
    """The flags that say what happened, and what is answered from now on."""
    parser.add_argument("--as", dest="decision", required=True, choices=("completed", "not-executed"), help="what happened")
    answer = parser.add_argument_group("with --as completed, the answer that retries get")
    answer.add_argument("--status", type=int, metavar="N", help="its status, such as 201; needed")
    answer.add_argument(
        "--header", type=_header, action="append", default=[], metavar="'NAME: VALUE'", help="a header; several in order"
    )
    body = answer.add_mutually_exclusive_group()
    body.add_argument("--body", metavar="TEXT", help="its body")
    body.add_argument("--body-file", type=_base64, metavar="FILE", help="its body, byte for byte")


def _wrong_answer(parsed: argparse.Namespace) -> str | None:
    """What is wrong with the flags of an answer, taken together."""
    given = [name for name in ("status", "header", "body", "body_file") if getattr(parsed, name) not in (None, [])]
    if parsed.decision == "completed":
        return None if "status" in given else "--as completed needs --status: retries get this answer"
    return f"--{given[0].replace('_', '-')} goes with --as completed only" if given else None


def _id(text: str) -> str:
    parts = text.split("/")
    if not (len(parts) == 3 and all(parts)) and not (len(parts) == 1 and len(text) >= SHORTEST):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither scope/upstream/hash nor {SHORTEST} or more characters of a key's hash"
        )
    return text


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not 'Name: value'")
    return name, value.strip()


def _base64(path: str) -> str:
    return base64.b64encode(_content(path)).decode("ascii")


def _token(path: str) -> bytes:
    token = _content(path).strip()
    if not token or len(token.split()) > 1:
        raise argparse.ArgumentTypeError(f"{path} does not hold one token")
    return token


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {failure.strerror}") from failure
