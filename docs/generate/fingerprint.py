"""Pairs of requests, and whether they have one fingerprint: each is taken here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from docs.generate.markdown import code, table
from idemproxy.core.fingerprint import FingerprintRule, fingerprint
from idemproxy.core.message import Request
from idemproxy.core.policy import MIB

_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two bodies of one type, and what the pair shows."""

    shows: str
    kind: str
    one: str
    other: str
    rule: FingerprintRule = FingerprintRule()


PAIRS: Final = (
    Pair("order of names, white space", _JSON, '{"a": 1, "b": 2}', '{"b":2,"a":1}'),
    Pair("spelling of a number", _JSON, '{"a": 1.0}', '{"a": 1}'),
    Pair("spelling of a string", _JSON, '{"a": "\\u00e9"}', '{"a": "é"}'),
    Pair("a large number", _JSON, "9007199254740993", "9007199254740992"),
    Pair("order of an array", _JSON, "[1, 2]", "[2, 1]"),
    Pair("absent, or null", _JSON, "{}", '{"a": null}'),
    Pair("a number, or text", _JSON, '{"a": 1}', '{"a": "1"}'),
    Pair("a name twice: compared as bytes", _JSON, '{"a": 1, "a": 2}', '{"a":1,"a":2}'),
    Pair("another character set: compared as bytes", f"{_JSON}; charset=iso-8859-1", '{"a": 1}', '{"a":1}'),
    Pair("exclude: [/at]", _JSON, '{"a": 1, "at": 10}', '{"a": 1, "at": 20}', FingerprintRule(exclude=("/at",))),
    Pair("include: [/a]", _JSON, '{"a": 1, "b": 2}', '{"a": 1, "b": 3}', FingerprintRule(include=("/a",))),
    Pair("mode: raw", _JSON, '{"a": 1}', '{"a":1}', FingerprintRule(mode="raw")),
    Pair("spelling of a character", _FORM, "a=x%20y", "a=x+y"),
    Pair("order of pairs", _FORM, "a=1&b=2", "b=2&a=1"),
    Pair("no value, or an empty one", _FORM, "a", "a="),
    Pair("white space", "text/plain", "a b", "a  b"),
)


def examples() -> str:
    """A row for each pair."""
    rows = ([pair.shows, code(pair.kind), code(pair.one), code(pair.other), _verdict(pair)] for pair in PAIRS)
    return table(("what differs", "type", "one", "another", "fingerprint"), rows)


def _verdict(pair: Pair) -> str:
    one, other = (
        fingerprint(
            Request("POST", b"/charges", ((b"Content-Type", pair.kind.encode()),), body.encode()), pair.rule, max_decoded=MIB
        )
        for body in (pair.one, pair.other)
    )
    return "the same" if one == other else "**another**"
