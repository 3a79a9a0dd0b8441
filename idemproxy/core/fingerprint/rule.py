"""What counts on a route, and what is wrong with a rule that says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from idemproxy.core.fingerprint.selection import Selection, path, selector
from idemproxy.core.hop import HOP_BY_HOP


@dataclass(frozen=True, slots=True)
class FingerprintRule:
    """What of a request counts, beside its method, its target and the essence of its content type."""

    mode: Literal["semantic", "raw"] = "semantic"
    """`semantic`: the body by its meaning, where its type has one here. `raw`: its bytes as received."""
    include: tuple[str, ...] = ()
    """JSON Pointers or JMESPath expressions; when there are any, only what they select of a JSON body counts."""
    exclude: tuple[str, ...] = ()
    """JSON Pointers or JMESPath paths to what is removed from a JSON body before it is compared, and before `include` selects."""
    headers: tuple[str, ...] = ()
    """Lower-case names of header fields that count too."""


_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")

_CREDENTIALS = "it holds credentials, which change while the operation stays the same"
_TRACING = "it names one try of a trace, so every retry would look like another operation"
_BODY = "it depends on how the body is sent; what is sent is compared already"
_REFUSED = dict.fromkeys((name.decode() for name in HOP_BY_HOP), "it speaks of one connection, not of the operation") | {
    "authorization": _CREDENTIALS,
    "proxy-authorization": _CREDENTIALS,
    "cookie": _CREDENTIALS,
    "cookie2": _CREDENTIALS,
    "date": "it says when a request was sent, so every retry would look like another operation",
    "traceparent": _TRACING,
    "tracestate": _TRACING,
    "baggage": _TRACING,
    "b3": _TRACING,
    "content-encoding": _BODY,
    "content-length": _BODY,
    "content-type": _BODY,
}
"""Fields that never enter the fingerprint, and why."""


def check_rule(rule: FingerprintRule) -> list[str]:
    """What is wrong with a rule, one sentence for each problem; empty when nothing is."""
    return [*_mode_problems(rule), *_selector_problems(rule), *_header_problems(rule)]


def _mode_problems(rule: FingerprintRule) -> Iterator[str]:
    if rule.mode == "raw" and (rule.include or rule.exclude):
        yield "mode raw compares the bytes of the body, so include and exclude have no meaning with it"


def _selector_problems(rule: FingerprintRule) -> Iterator[str]:
    entries: list[tuple[str, Callable[[str], object], str]] = [("include", selector, text) for text in rule.include]
    entries += [("exclude", path, text) for text in rule.exclude]
    for setting, read, text in entries:
        try:
            read(text)
        except ValueError as problem:
            yield f'{setting} "{text}": {problem}'


def _header_problems(rule: FingerprintRule) -> Iterator[str]:
    for name in rule.headers:
        if not _TOKEN.fullmatch(name):
            yield f'headers "{name}": it is no name of a header field in lower case'
        elif reason := _REFUSED.get(name):
            yield f'headers "{name}": {reason}'


def selection(rule: FingerprintRule) -> Selection | None:
    """The compiled include and exclude of a rule, or None when it has none. Raises ValueError where `check_rule` reports one."""
    return _compiled(rule.include, rule.exclude) if rule.include or rule.exclude else None


@lru_cache(maxsize=1024)
def _compiled(include: tuple[str, ...], exclude: tuple[str, ...]) -> Selection:
    return Selection(include=tuple(map(selector, include)), exclude=tuple(map(path, exclude)))
