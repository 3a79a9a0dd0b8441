"""What a probe takes from a retry must be what the fingerprint compared with the first request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from jmespath.parser import ParsedResult

from idemproxy.core.fingerprint import FingerprintRule
from idemproxy.core.fingerprint.selection import Every, Step, Token, path, selector
from idemproxy.core.probe.rule import FIELD_OF, NAME, Finding, ProbeRule


def check_compared(rule: ProbeRule, fingerprint: FingerprintRule) -> list[Finding]:
    """What a valid rule would take from a retry though its fingerprint does not compare it; empty when there is nothing.

    Such a value may differ from the first request's: the probe would look for another operation, and not find this one.
    """
    return [*_fields_not_compared(rule, fingerprint), *_parts_not_compared(rule, fingerprint)]


def _fields_not_compared(rule: ProbeRule, fingerprint: FingerprintRule) -> Iterator[Finding]:
    for name in dict.fromkeys(NAME.findall(rule.get)):
        field = FIELD_OF.get(name, b"").decode("ascii")
        if field and field not in fingerprint.headers:
            text = f"a retry could say another {{{name}}} than the first request: add {field} to fingerprint.headers"
            yield ("get",), text


def _parts_not_compared(rule: ProbeRule, fingerprint: FingerprintRule) -> Iterator[Finding]:
    for name, text in rule.from_request:
        place = _place(text)
        if any(place is None or _may_meet(path(excluded), place) for excluded in fingerprint.exclude):
            yield (
                ("from_request", name),
                f'"{text}": fingerprint.exclude may leave it out, so a retry could say something else there',
            )
        if fingerprint.include and not any(_covers(included, text, place) for included in fingerprint.include):
            told = f'"{text}": fingerprint.include leaves it out, so a retry could say something else there: include it'
            yield ("from_request", name), told


def _place(text: str) -> tuple[Step, ...] | None:
    """The steps of an expression that is a path, None for any other."""
    try:
        return path(text)
    except ValueError:
        return None


def _may_meet(excluded: tuple[Step, ...], place: tuple[Step, ...]) -> bool:
    """Whether one of two paths may lead to, or through, the end of the other; what follows a `[]` is not looked at."""
    steps = takewhile(lambda step: step is not Every.FLAT, excluded)
    return all(_may_be_same(one, other) for one, other in zip(steps, place, strict=False))


def _may_be_same(one: Step, other: Step) -> bool:
    if isinstance(one, Every) or isinstance(other, Every):
        return True
    (name, index), (other_name, other_index) = _spellings(one), _spellings(other)
    if name is not None and name == other_name:
        return True
    return index is not None and other_index is not None and (index == other_index or min(index, other_index) < 0)


def _spellings(step: str | int | Token) -> tuple[str | None, int | None]:
    """What a step is called in an object, and in an array."""
    match step:
        case Token(name, index):
            return name, index
        case str():
            return step, None
        case int():
            return None, step


def _covers(included: str, text: str, place: tuple[Step, ...] | None) -> bool:
    """Whether an entry of `include` surely selects the value, or something around it."""
    if included in {"", text}:
        return True
    chosen = selector(included)
    steps = (_place(included) or ()) if isinstance(chosen, ParsedResult) else chosen
    if place is None or not 0 < len(steps) <= len(place):
        return False
    return all(
        not isinstance(one, Every) and not isinstance(other, Every) and _is_same(_spellings(one), _spellings(other))
        for one, other in zip(steps, place, strict=False)
    )


def _is_same(one: tuple[str | None, int | None], other: tuple[str | None, int | None]) -> bool:
    return any(a is not None and a == b for a, b in zip(one, other, strict=True))
