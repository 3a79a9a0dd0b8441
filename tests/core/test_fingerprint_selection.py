"""`include` and `exclude` say which parts of a JSON body count."""

from __future__ import annotations

import json
from itertools import count
from typing import TypeAlias

import jmespath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.fingerprint import FingerprintRule, check_rule, fingerprint
from idemproxy.core.message import Request


def of(body: str, rule: FingerprintRule, kind: bytes = b"application/json") -> str:
    """The fingerprint of a POST with this body."""
    return fingerprint(Request("POST", b"/", ((b"Content-Type", kind),), body.encode()), rule, max_decoded=0)


def excluding(*paths: str) -> FingerprintRule:
    """A rule that excludes these."""
    return FingerprintRule(exclude=paths)


def including(*selectors: str) -> FingerprintRule:
    """A rule that includes only these."""
    return FingerprintRule(include=selectors)


@pytest.mark.parametrize(
    ("path", "document", "left"),
    [
        ("/b", '{"a":1,"b":2}', '{"a":1}'),
        ("/none", '{"a":1}', '{"a":1}'),
        ("/b/c", '{"a":1,"b":{"c":2,"d":3}}', '{"a":1,"b":{"d":3}}'),
        ("/a~1b", '{"a/b":1,"c":2}', '{"c":2}'),
        ("/m~0n", '{"m~n":1,"c":2}', '{"c":2}'),
        ("/~01", '{"~1":1,"/":2}', '{"/":2}'),
        ("/", '{"":1,"c":2}', '{"c":2}'),
        ("/0", '{"0":1,"c":2}', '{"c":2}'),
        ("/1", "[1,2,3]", "[1,3]"),
        ("/01", "[1,2,3]", "[1,2,3]"),
        ("/-", "[1,2,3]", "[1,2,3]"),
        ("/3", "[1,2,3]", "[1,2,3]"),
        ("/a/0/b", '{"a":[{"b":1,"c":2},{"b":3}]}', '{"a":[{"c":2},{"b":3}]}'),
        ("/a/b", '{"a":"text"}', '{"a":"text"}'),
        ("/a/99999999999999999999", '{"a":[1]}', '{"a":[1]}'),
        ("b", '{"a":1,"b":2}', '{"a":1}'),
        ("@.b", '{"a":1,"b":2}', '{"a":1}'),
        ('"b c".d', '{"a":1,"b c":{"d":1}}', '{"a":1,"b c":{}}'),
        ("a[-1]", '{"a":[1,2,3]}', '{"a":[1,2]}'),
        ("a[*].t", '{"a":[{"t":1,"x":1},{"x":2},3]}', '{"a":[{"x":1},{"x":2},3]}'),
        ("a.*.t", '{"a":{"p":{"t":1,"x":1},"q":{"t":2}}}', '{"a":{"p":{"x":1},"q":{}}}'),
        ("a[].t", '{"a":[{"t":1},[{"t":2,"x":1}]]}', '{"a":[{},[{"x":1}]]}'),
        ("a[*].b[].t", '{"a":[{"b":[{"t":1}]},{"b":{"t":2,"x":1}}]}', '{"a":[{"b":[{}]},{"b":{"x":1}}]}'),
        ("a[*][*][]", '{"a":[[[1,2],3],[4]]}', '{"a":[[],[]]}'),
        ("a[*][*][].t", '{"a":[[{"t":1},[{"t":2}]]]}', '{"a":[[{},[{"t":2}]]]}'),
        ("*", '{"a":1,"b":2}', "{}"),
        ("[*]", "[1,2]", "[]"),
        ("[0][0]", "[[1,2],[3]]", "[[2],[3]]"),
    ],
)
def test_what_is_excluded_is_as_if_it_were_absent(path: str, document: str, left: str) -> None:
    """A document without what a pointer or path names is compared, and a place that is not there changes nothing."""
    assert [] == check_rule(excluding(path))
    assert of(left, FingerprintRule()) == of(document, excluding(path))


def test_excluded_values_may_change() -> None:
    """A retry with another timestamp and another temporary address is the same request; with another amount it is not."""
    rule = excluding("/requested_at", "files[*].url")
    body = '{"amount":%d,"requested_at":"%s","files":[{"id":1,"url":"%s"}]}'

    assert of(body % (1, "now", "u1"), rule) == of(body % (1, "later", "u2"), rule)
    assert of(body % (1, "now", "u1"), rule) != of(body % (2, "now", "u1"), rule)


def test_places_are_found_before_anything_is_removed() -> None:
    """Excluding items 0 and 1 of an array leaves item 2, and a place within an excluded one is no trouble."""
    assert of("[3]", FingerprintRule()) == of("[1,2,3]", excluding("/0", "/1"))
    assert of('{"c":1}', FingerprintRule()) == of('{"a":{"b":1},"c":1}', excluding("/a", "/a/b"))


Node: TypeAlias = "int | str | list[Node] | dict[str, Node]"
PATHS = [
    "a",
    "a.b",
    "a[0]",
    "a[-1].b",
    "@.a",
    "a[0][1]",
    "a.b[0].a",
    "*",
    "a.*",
    "*.*",
    "a[*]",
    "[*]",
    "[*].a",
    "a[*].b",
    "a[*][*]",
    "[*][*].a",
    "a[*].*.b",
    "a.b[*].a",
    "[]",
    "a[]",
    "a[].b",
    "a[][]",
    "a[*].b[]",
    "a[*].b[].a",
    "*[]",
    "*[].a",
    "a.*.b[]",
    "a.b[].a",
    "[0].a[]",
    "a[][0].b",
    "a[].*[].b",
    "a[*][]",
    "a[*][*][]",
    "a[*].b[*][]",
    "*.*[].a",
    "[][][].a",
]
NODES: st.SearchStrategy[Node] = st.recursive(
    st.just("leaf"),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from("ab"), children, min_size=1, max_size=2),
    max_leaves=12,
)


def numbered(node: Node, numbers: count[int]) -> Node:
    """The same shape with another number at each leaf, so that no two are the same object."""
    if isinstance(node, dict):
        return {name: numbered(item, numbers) for name, item in node.items()}
    return [numbered(item, numbers) for item in node] if isinstance(node, list) else next(numbers)


def identities(node: Node) -> set[int]:
    """The identity of the node and of every node within it."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return {id(node)}.union(*map(identities, children))


def places(found: Node, known: set[int]) -> set[int]:
    """The identities of the nodes in a result of JMESPath, which makes lists of its own around them."""
    if id(found) in known:
        return {id(found)}
    return set[int]().union(*(places(item, known) for item in found)) if isinstance(found, list) else set()


def pruned(node: Node, doomed: set[int]) -> Node:
    """A copy without the nodes that are doomed."""
    if isinstance(node, dict):
        return {name: pruned(item, doomed) for name, item in node.items() if id(item) not in doomed}
    return [pruned(item, doomed) for item in node if id(item) not in doomed] if isinstance(node, list) else node


@settings(derandomize=True, deadline=None, max_examples=300)
@given(shape=NODES, path=st.sampled_from(PATHS))
def test_a_path_names_what_jmespath_finds(shape: Node, path: str) -> None:
    """What an exclude path removes is exactly what the same expression finds when JMESPath evaluates it."""
    document = numbered(shape, count(1_000))
    doomed = places(jmespath.search(path, document), identities(document))

    assert [] == check_rule(excluding(path))
    assert of(json.dumps(pruned(document, doomed)), FingerprintRule()) == of(json.dumps(document), excluding(path))


@pytest.mark.parametrize(
    ("selectors", "one", "other"),
    [
        (["/a"], '{"a":1,"b":1}', '{"a":1.0,"b":2,"c":3}'),
        (["/a"], '{"b":1}', "{}"),
        (["/a/0"], '{"a":[1,2]}', '{"a":[1,3]}'),
        (["a", "/b"], '{"b":2,"a":1,"c":1}', '{"a":1,"b":2}'),
        (["items[*].id"], '{"items":[{"id":1,"t":1}]}', '{"items":[{"t":2,"id":1}]}'),
        (
            ["items[?price > `9.5`].id"],
            '{"items":[{"id":1,"price":9.4},{"id":2,"price":9.6}]}',
            '{"items":[{"id":2,"price":1e400}]}',
        ),
        (
            ["items[?price == `0.1`].id"],
            '{"items":[{"id":1,"price":0.10},{"id":2,"price":0.2}]}',
            '{"items":[{"id":1,"price":1e-1}]}',
        ),
        (["{a: a, b: b.c}"], '{"a":1,"b":{"c":2,"d":3}}', '{"b":{"c":2},"a":1}'),
        (
            ["sort_by(items, &id)[*].n"],
            '{"items":[{"id":2,"n":1},{"id":1,"n":2.5}]}',
            '{"items":[{"id":1,"n":2.50},{"id":2,"n":1}]}',
        ),
        ([""], '{"a":1,"b":2}', '{"b":2,"a":1}'),
    ],
)
def test_only_what_is_included_counts(selectors: list[str], one: str, other: str) -> None:
    """Documents that agree in what the pointers and expressions select are the same request."""
    assert [] == check_rule(including(*selectors))
    assert of(one, including(*selectors)) == of(other, including(*selectors))


@pytest.mark.parametrize(
    ("selectors", "one", "other"),
    [
        (["/a"], '{"a":1}', '{"a":2}'),
        (["/a"], '{"a":null}', "{}"),
        (["/a"], '{"a":9007199254740993}', '{"a":9007199254740992}'),
        (["a"], '{"a":0.1}', '{"a":0.10000000000000001}'),
        (["[a, b]"], '{"a":1e400}', '{"a":1e401}'),
        (["/a", "/b"], '{"a":1}', '{"b":1}'),
    ],
)
def test_whatever_is_included_counts_exactly(selectors: list[str], one: str, other: str) -> None:
    """Numbers stay exact on their way through a selection, and a pointer tells absent from null."""
    assert of(one, including(*selectors)) != of(other, including(*selectors))


def test_excluded_first_then_included() -> None:
    """With both, what is excluded is gone before anything is included."""
    rule = FingerprintRule(include=("/a",), exclude=("/a/t",))

    assert of('{"a":{"x":1,"t":1},"b":1}', rule) == of('{"a":{"x":1,"t":2},"b":2}', rule)
    assert of('{"a":{"x":1}}', rule) != of('{"a":{"x":2}}', rule)


@pytest.mark.parametrize("selector", ["sum(a)", "a[?length(@) > `1`]", "max(a)", "&a", "ceil(a[0])", "merge(@, a)"])
def test_an_expression_that_fails_makes_the_whole_document_count(selector: str) -> None:
    """A body that an expression was not written for is compared whole, which can only tell more requests apart."""
    document = '{"a":[1.5],"b":1}'

    assert of(document, FingerprintRule()) == of(document, including(selector))
    assert of(document, including(selector)) != of('{"a":[1.5],"b":2}', including(selector))


def test_selecting_leaves_other_types_alone() -> None:
    """Bodies that are not JSON are compared whole."""
    rule = FingerprintRule(include=("/a",), exclude=("/b",))
    form = b"application/x-www-form-urlencoded"

    assert of("a=1&b=2", FingerprintRule(), form) == of("a=1&b=2", rule, form)
    assert of('{"a":1,"a":1}', FingerprintRule()) == of('{"a":1,"a":1}', rule)


NO_PATH = "exclude takes a path: names, indexes and wildcards"
NO_EXPRESSION = "it is no JMESPath expression"
ALL = "it names the whole body, so nothing would be left to compare"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (including("/a~2"), 'include "/a~2": in a JSON Pointer, "~" is followed by 0 or 1 (RFC 6901)'),
        (excluding("/a~"), 'exclude "/a~": in a JSON Pointer, "~" is followed by 0 or 1 (RFC 6901)'),
        (including("a["), f'include "a[": {NO_EXPRESSION}: Invalid jmespath expression: Incomplete expression'),
        (
            excluding("a b"),
            f'exclude "a b": {NO_EXPRESSION}: Unexpected token: b: Parse error at column 2, token "b" (UNQUOTED_IDENTIFIER)',
        ),
        (including("a.frobnicate(b)"), 'include "a.frobnicate(b)": JMESPath has no function frobnicate()'),
        (excluding(""), f'exclude "": {ALL}'),
        (excluding("@"), f'exclude "@": {ALL}'),
        *(
            (excluding(text), f'exclude "{text}": {NO_PATH}')
            for text in (
                "length(a)",
                "a[?b]",
                "a[0:2]",
                "[a, b]",
                "{a: b}",
                "a || b",
                "a && b",
                "!a",
                "`1`",
                "a | b",
                "a == b",
                "'a'",
            )
        ),
        *(
            (excluding(text), f'exclude "{text}": {NO_PATH}')
            for text in ("(a[*])[0]", "(a[*]).b", "(a.*).*", "(a[])[*]", "a.[b]")
        ),
    ],
)
def test_what_is_no_pointer_or_path_is_reported(rule: FingerprintRule, problem: str) -> None:
    """Each entry that cannot be used is named with the reason, and a rule that has one is never used."""
    assert [problem] == check_rule(rule)
    with pytest.raises(ValueError, match=r"."):
        of("{}", rule)


def test_every_problem_is_reported() -> None:
    """A rule with several problems has them all in its report."""
    rule = FingerprintRule(include=("/~", "a"), exclude=("`1`", "/b"), headers=("date", "x-ok"))

    assert ['include "/~"', 'exclude "`1`"', 'headers "date"'] == [problem.partition(":")[0] for problem in check_rule(rule)]
