"""How a route asks, and what is wrong with a rule that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from jmespath.parser import ParsedResult

from idemproxy.core.fingerprint.selection import expression

SHORTEST_SETTLE: Final = 5.0
"""Seconds. What a stopped or broken attempt has sent is still under way, or being worked on, when its outcome becomes unknown."""

SAYS_ABSENT: Final = frozenset({204, 404, 410})
"""The statuses that can say that there is no such thing. Any other says that the question was not answered."""

FIELD_OF: Final = MappingProxyType({"workflow": b"workflow-id", "step": b"workflow-step"})
"""Values of a target that come from a header field of the request."""

_RESERVED: Final = ("key", *FIELD_OF)
_EXAMPLE: Final = "/bookings?ref={key}"

NAME: Final = re.compile(r"\{([^{}]*)\}")
_GIVEN_NAME = re.compile(r"[a-z][a-z0-9_]*")
# RFC 3986, sections 3.3 and 3.4, and the brackets that many queries hold.
_TARGET_TEXT = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?\[\]]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class ProbeRule:
    """How a route asks, and how it reads the answer. `found`, `absent` and `answer_body` are JMESPath over the answer's JSON."""

    get: str
    """The target below the upstream's base path, with `{key}`, `{workflow}`, `{step}`, or a name of `from_request`."""
    found: str
    absent: str | None = None
    absent_status: frozenset[int] = frozenset()
    settle: float = 10.0
    """Seconds since the outcome became unknown before an absence is believed."""
    from_request: tuple[tuple[str, str], ...] = ()
    """Names, each with the JMESPath of its value in the request's JSON body."""
    answer_status: int = 200
    answer_body: str | None = None
    """What of the probe's body becomes the operation's answer; None: what `found` selected."""


Finding: TypeAlias = tuple[tuple[str, ...], str]
"""Which setting of a rule is wrong (`("from_request", "ref")`), and a sentence that says what to do."""


def check_probe(rule: ProbeRule) -> list[Finding]:
    """What is wrong with a rule by itself; empty when nothing is."""
    return [*_target_problems(rule), *_name_problems(rule), *_expression_problems(rule), *_value_problems(rule)]


def _target_problems(rule: ProbeRule) -> Iterator[Finding]:
    here = ("get",)
    if not rule.get.startswith("/") or rule.get.startswith("//"):
        yield here, f'begin it with one slash, such as "{_EXAMPLE}"'
    texts, names = NAME.split(rule.get)[::2], NAME.findall(rule.get)
    if not all(map(_TARGET_TEXT.fullmatch, texts)):
        yield here, "a character, or a single brace, does not stand in a path or a query: percent-encode it"
    if has_dot_segment(NAME.sub("x", rule.get)):
        yield here, "a part of the path is . or .., which leads elsewhere: write the path that is meant"
    if not names:
        yield here, f'it asks the same for every operation: put a value of the request into it, such as "{_EXAMPLE}"'
    known = tuple(dict.fromkeys((*_RESERVED, *dict(rule.from_request))))
    for name in dict.fromkeys(names):
        if name not in known:
            yield here, f"nothing gives {{{name}}} a value: there are {', '.join(known)}; add others to from_request"


def _name_problems(rule: ProbeRule) -> Iterator[Finding]:
    used = NAME.findall(rule.get)
    for name, text in rule.from_request:
        here = ("from_request", name)
        if name in _RESERVED:
            yield here, f"{{{name}}} has a meaning of its own: choose another name"
        elif not _GIVEN_NAME.fullmatch(name):
            yield here, f"{name!r} is no name: begin with a lower-case letter, and go on with those, digits and _"
        elif name not in used:
            yield here, f"get does not use {{{name}}}: put it there, or delete it"
        yield from _expression_problem(here, text)


def _expression_problems(rule: ProbeRule) -> Iterator[Finding]:
    yield from _expression_problem(("found",), rule.found)
    yield from _expression_problem(("absent",), rule.absent)
    yield from _expression_problem(("answer", "body"), rule.answer_body)


def _expression_problem(here: tuple[str, ...], text: str | None) -> Iterator[Finding]:
    if text is not None:
        try:
            expression(text)
        except ValueError as problem:
            yield here, f'"{text}": {problem}'


def _value_problems(rule: ProbeRule) -> Iterator[Finding]:
    for status in sorted(rule.absent_status - SAYS_ABSENT):
        yield ("absent_status",), f"{status} does not say that there is no such thing: only 204, 404 and 410 can"
    if rule.settle < SHORTEST_SETTLE:
        reason = "what a broken attempt has sent may still arrive and be acted on when its outcome is already unknown"
        yield ("settle",), f"{rule.settle:g}s is too short: {reason}, so at least {SHORTEST_SETTLE:g}s"
    if not 200 <= rule.answer_status < 300 or rule.answer_status in {204, 205}:
        reason = "the operation happened, and its answer has a body"
        yield ("answer", "status"), f"{rule.answer_status} does not fit: {reason}; use 200 to 299, but not 204 and 205"


def has_dot_segment(target: str) -> bool:
    """Whether servers would make another path of this one (RFC 3986, section 5.2.4)."""
    segments = target.partition("?")[0].lower().replace("%2e", ".").split("/")
    return not {".", ".."}.isdisjoint(segments)


@lru_cache(maxsize=1024)
def compiled(text: str) -> ParsedResult:
    """An expression of a rule without problems."""
    return expression(text)
