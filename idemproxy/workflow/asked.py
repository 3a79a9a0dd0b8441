"""What is asked of a page: its way and names in the path, its parameters, and the refusals that follow from them.

Each name in a path is decoded exactly once, and then read as a key of a field is: quoted or bare, it is the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from idemproxy.core.key import KeyInvalidError, parse_key
from idemproxy.core.policy import comparable_path
from idemproxy.core.problem import Slug, problem
from idemproxy.proxy.inbound import MAX_WAIT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from idemproxy.core.message import Request
    from idemproxy.core.problem import Problem
    from idemproxy.server.incoming import Incoming

_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SECONDS: Final = re.compile(r"[0-9]{1,3}")


class TurnedAwayError(Exception):
    """A page that is not given; `lines` are field lines of the answer, such as `Allow`."""

    def __init__(self, found: Problem, lines: bytes = b"") -> None:
        super().__init__(found.detail)
        self.problem = found
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page. `name`: the plain key, or the plain id of the workflow; `parameters`: of the query, by name."""

    http: Incoming
    request: Request
    name: str = field(repr=False)
    parameters: Mapping[str, str]
    patience: float


def bad(detail: str) -> TurnedAwayError:
    """What cannot be read in one way."""
    return TurnedAwayError(problem(Slug.BAD_REQUEST, detail))


def way_of(path: bytes) -> list[bytes]:
    """The segments of a raw path behind the reserved prefix; a slash that is escaped does not part two."""
    return path.split(b"/")[2:]


def fits(way: Sequence[bytes], pattern: Sequence[bytes | None]) -> bool:
    """Whether segments are those of a page, however they are spelled; None stands for any name."""
    return len(way) == len(pattern) and all(
        known is None or known == comparable_path(segment) for segment, known in zip(way, pattern, strict=True)
    )


def read_name(segment: bytes, what: str) -> str:
    """A key, or the id of a workflow, from its segment; `what` it is called in messages. Raises TurnedAwayError."""
    if _BROKEN_ESCAPE.search(segment):
        raise bad(f"The {what} in the path has a percent sign without two hexadecimal digits after it: write %25 for one.")
    try:
        return parse_key(unquote_to_bytes(segment), what)
    except KeyInvalidError as exc:
        raise TurnedAwayError(problem(Slug.KEY_INVALID, f"Nothing was looked up, since {exc}.")) from exc


def read_parameters(target: bytes, known: Collection[str]) -> dict[str, str]:
    """The parameters of a target's query. Raises TurnedAwayError for one that the page does not have, or has twice."""
    query = target.partition(b"?")[2].decode("utf-8", "replace")
    pairs = parse_qsl(query, keep_blank_values=True, errors="replace", max_num_fields=None)
    found = dict(pairs)
    if unknown := sorted(found.keys() - known):
        there = f"it has {' and '.join(sorted(known))}" if known else "it has none"
        raise bad(f"This page has no parameter {unknown[0]!r}: {there}.")
    if len(found) < len(pairs):
        twice = next(name for name in found if sum(name == each for each, _ in pairs) > 1)
        raise bad(f"The parameter {twice!r} stands there twice: say it once.")
    return found


def read_wait(parameters: Mapping[str, str]) -> float:
    """For how many seconds the caller waits. Raises TurnedAwayError."""
    text = parameters.get("wait", "0")
    if not _SECONDS.fullmatch(text) or int(text) > MAX_WAIT:
        raise bad(f"`wait` is a whole number of seconds from 0 to {MAX_WAIT:g}.")
    return float(text)
