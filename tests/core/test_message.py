"""Messages keep what came: names and values as received, in order, with their repeats."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.core.message import Answer, Fields, Request, field_values, has_any, indexed, shape_of, without

FIELDS: Fields = (
    (b"X-Tenant", b"acme"),
    (b"accept", b"text/html"),
    (b"x-tenant", b""),
    (b"ACCEPT", b"Text/Plain"),
    (b"X-TENANT", b"acme"),
)
ANY_FIELDS = st.lists(st.tuples(st.sampled_from([b"A", b"a", b"Ab", b"aB", b"b"]), st.binary(max_size=3)), max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"x-tenant", [b"acme", b"", b"acme"]),
        (b"accept", [b"text/html", b"Text/Plain"]),
        (b"x-tenan", []),
        (b"tenant", []),
        (b"", []),
    ],
)
def test_field_values(name: bytes, expected: list[bytes]) -> None:
    """A field is found by its name in any case: every value as it came, in order, empty ones and repeats included."""
    assert expected == field_values(FIELDS, name)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({b"x-tenant"}, (FIELDS[1], FIELDS[3])),
        ({b"accept", b"host"}, (FIELDS[0], FIELDS[2], FIELDS[4])),
        ({b"accept", b"x-tenant"}, ()),
        (set(), FIELDS),
    ],
)
def test_without(names: set[bytes], expected: Fields) -> None:
    """Taking fields out leaves the others as they came, in order, with their case and repeats."""
    assert expected == without(FIELDS, frozenset(names))


@settings(derandomize=True, deadline=None)
@given(fields=ANY_FIELDS, gone=st.sampled_from([b"a", b"ab", b"b"]))
def test_without_takes_one_name_and_nothing_else(fields: Fields, gone: bytes) -> None:
    """Of what is taken out nothing can be found, and of every other field all values can."""
    left = without(fields, frozenset({gone}))
    expected = {name: [] if name == gone else field_values(fields, name) for name in (b"a", b"ab", b"b")}
    assert expected == {name: field_values(left, name) for name in (b"a", b"ab", b"b")}


@settings(derandomize=True, deadline=None)
@given(fields=ANY_FIELDS, more=ANY_FIELDS, gone=st.sets(st.sampled_from([b"a", b"ab", b"b"])))
def test_what_is_remembered_of_names_is_true_of_these_fields(fields: Fields, more: Fields, gone: set[bytes]) -> None:
    """Fields that were gone through say the same as those that were not, however often their names came before."""
    names = frozenset(gone)
    longer = indexed(fields).followed_by(tuple(name for name, _ in more), tuple(value for _, value in more))

    for plain, known in ((fields, indexed(fields)), (fields + more, longer)):
        left = without(plain, names)
        assert (plain, left, has_any(plain, names)) == (known, known.without(names), has_any(known, names))
        assert [field_values(left, name) for name in gone] == [field_values(known.without(names), name) for name in gone]
        assert [field_values(plain, name) for name in gone] == [field_values(known, name) for name in gone]
        assert b"".join(b"%b: %b\r\n" % pair for pair in left) == known.lines(names)


def test_fields_that_went_to_another_process_are_the_same() -> None:
    """What is remembered of their names stays here."""
    fields = indexed(FIELDS)
    fields.without(frozenset({b"accept"}))

    sent = pickle.dumps(fields)

    assert len(pickle.dumps(indexed(FIELDS))) == len(sent)
    assert (FIELDS, [b"text/html", b"Text/Plain"]) == (pickle.loads(sent), field_values(pickle.loads(sent), b"accept"))  # noqa: S301


@pytest.mark.parametrize(
    ("names", "kept"),
    [((b"Host", b"%d"), True), (tuple(b"%d" % number for number in range(65)), False), ((b"x" * 1_025,), False)],
    ids=["few", "many", "long"],
)
def test_only_usual_names_are_remembered(names: tuple[bytes, ...], *, kept: bool) -> None:
    """So that nobody fills the memory with names."""
    assert kept is (shape_of(names) is shape_of(names))


def test_so_many_shapes_are_remembered_and_no_more() -> None:
    """A client that makes up names for each of its requests has the old ones forgotten, and not the memory filled."""
    shapes = {shape_of((b"A", b"%d" % number)) for number in range(10_000)}
    again = [shape_of((b"A", b"%d" % number)) for number in range(10_000)]

    assert (10_000, 0) == (len(shapes), sum(shape in shapes for shape in again[:9_000]))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/v1/charges", b"/v1/charges"),
        (b"/v1/charges?limit=3", b"/v1/charges"),
        (b"/v1/charges?", b"/v1/charges"),
        (b"/a?b?c=/d", b"/a"),
        (b"/a%3Fb/%2e%2E;c=1//", b"/a%3Fb/%2e%2E;c=1//"),
        (b"/?x", b"/"),
        (b"/\xc3\xa9?\xff", b"/\xc3\xa9"),
    ],
)
def test_path(target: bytes, expected: bytes) -> None:
    """The path is the target up to its first question mark, every byte as it came."""
    assert expected == Request("GET", target, ()).path


def test_bodies_are_not_shown() -> None:
    """What a request or an answer carries stays out of its representation, and so out of logs and tracebacks."""
    shown = repr((Request("POST", b"/", (), b"card 4242"), Answer(200, b"OK", (), b"card 4242")))
    expected = "(Request(method='POST', target=b'/', fields=()), Answer(status=200, reason=b'OK', fields=()))"
    assert expected == shown
