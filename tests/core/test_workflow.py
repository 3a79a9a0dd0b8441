"""What names an operation: a key, a workflow's step, or what a workflow asks (contract, section 4); and where it is told."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idemproxy.core.key import KeyInvalidError, KeyMode, KeyRule, KeySource
from idemproxy.core.message import Fields
from idemproxy.core.workflow import Name, Workflow, derived_key, find_name, find_workflow, step_key, without_workflow

PROPERTY = settings(derandomize=True, deadline=None, max_examples=300)
FLOW = (b"Workflow-Id", b"flow-7")
STEP = (b"Workflow-Step", b"12")
EXPLICIT = (b"Idempotency-Key", b"order-17")
DERIVE = KeyRule(mode=KeyMode.DERIVE)


def find_key(fields: Fields, rule: KeyRule) -> str | None:
    """The key of a request, None when nothing names its operation, or a key is to be derived."""
    name = find_name(fields, rule)
    return None if name is None else name.key


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param((FLOW, STEP), "flow-7_step_12", id="both"),
        pytest.param((STEP, (b"Date", b"d"), FLOW), "flow-7_step_12", id="in any order, among others"),
        pytest.param(((b"WORKFLOW-ID", b"f"), (b"workflow-step", b"1")), "f_step_1", id="in any case"),
        pytest.param(((b"Workflow-Id", b'"a,\\"b"'), (b"Workflow-Step", b'"charge"')), 'a,"b_step_charge', id="quoted"),
        pytest.param((FLOW,), None, id="no step"),
        pytest.param((EXPLICIT, FLOW, STEP), "order-17", id="an explicit key comes first"),
        pytest.param((FLOW, STEP, EXPLICIT), "order-17", id="wherever it stands"),
        pytest.param(((b"Workflow-Id", b"x" * 248), (b"Workflow-Step", b"1")), "x" * 248 + "_step_1", id="255 together"),
        pytest.param(((b"Workflow-Id", b"a_step_b"), STEP), "a_step_b_step_12", id="an id may hold what joins them"),
        pytest.param((FLOW, (b"Workflow-Step", b"step_12")), "flow-7_step_step_12", id="a step may begin like it"),
    ],
)
def test_a_workflows_step_is_a_key(fields: Fields, expected: str | None) -> None:
    """Without an explicit key, id and step together make it; an id alone makes none."""
    assert expected == find_key(fields, KeyRule())


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({KeySource.HEADER, KeySource.WORKFLOW}, ["order-17", "order-17", "flow-7_step_12"]),
        ({KeySource.HEADER}, ["order-17", "order-17", None]),
        ({KeySource.WORKFLOW}, ["flow-7_step_12", None, "flow-7_step_12"]),
    ],
)
def test_only_the_sources_of_the_rule_count(sources: set[KeySource], expected: list[str | None]) -> None:
    """A route that takes its keys from one place does not look at the other."""
    rule = KeyRule(sources=frozenset(sources))

    assert expected == [find_key(fields, rule) for fields in ((EXPLICIT, FLOW, STEP), (EXPLICIT,), (FLOW, STEP))]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((FLOW, FLOW), "the Workflow-Id is given 2 times, and one operation has one"),
        ((EXPLICIT, FLOW, FLOW, STEP), "the Workflow-Id is given 2 times, and one operation has one"),
        ((EXPLICIT, FLOW, (b"Workflow-Step", b"")), "the Workflow-Step is empty"),
        ((FLOW, FLOW, STEP), "the Workflow-Id is given 2 times, and one operation has one"),
        ((FLOW, STEP, STEP), "the Workflow-Step is given 2 times, and one operation has one"),
        (((b"Workflow-Id", b""), STEP), "the Workflow-Id is empty"),
        ((FLOW, (b"Workflow-Step", b'""')), "the Workflow-Step is empty"),
        (
            ((b"Workflow-Id", b"s3cret flow"), STEP),
            "the Workflow-Id holds a space, or another character that is not visible ASCII",
        ),
        ((FLOW, (b"Workflow-Step", b"1\xb2")), "the Workflow-Step holds a space, or another character that is not visible ASCII"),
        (
            (FLOW, (b"Workflow-Step", b"1, 2")),
            "the Workflow-Step holds a space, or another character that is not visible ASCII",
        ),
        (
            (FLOW, (b"Workflow-Step", b"1,2")),
            "the Workflow-Step holds a comma or a quotation mark: send one, quoted if it needs such characters",
        ),
        ((STEP,), "Workflow-Step names no operation without Workflow-Id: send both"),
        (((b"Workflow-Step", b""),), "Workflow-Step names no operation without Workflow-Id: send both"),
        (((b"Workflow-Id", b'"s3cret'), STEP), "the Workflow-Id is not one well-formed quoted string"),
        (((b"Workflow-Id", b"x" * 256), STEP), "the Workflow-Id has 256 characters, and at most 255 are allowed"),
        (
            ((b"Workflow-Id", b"x" * 248), STEP),
            "the key of Workflow-Id and Workflow-Step has 256 characters, and at most 255 are allowed",
        ),
        (
            (FLOW, (b"Workflow-Step", b"1_step_2")),
            "`_step_` joins Workflow-Id and Workflow-Step: the step may not hold it, nor the id end with `_step`",
        ),
        (
            ((b"Workflow-Id", b"flow_step"), STEP),
            "`_step_` joins Workflow-Id and Workflow-Step: the step may not hold it, nor the id end with `_step`",
        ),
    ],
)
def test_a_step_without_a_single_name_is_refused(fields: Fields, reason: str) -> None:
    """Id and step are each checked like a key, and so is what they make; the reason tells neither."""
    with pytest.raises(KeyInvalidError) as refused:
        find_key(fields, KeyRule())

    assert reason == str(refused.value)


PIECES = st.lists(st.sampled_from([b"_", b"step", b"_step_", b"a", b"1"]), min_size=1, max_size=5).map(b"".join)


@PROPERTY
@given(pairs=st.lists(st.tuples(PIECES, PIECES), min_size=2, max_size=30, unique=True))
@example(pairs=[(b"a", b"b_step_c"), (b"a_step_b", b"c")])
@example(pairs=[(b"a", b"step_1"), (b"a_step", b"1")])
def test_two_steps_never_make_one_key(pairs: list[tuple[bytes, bytes]]) -> None:
    """Different pairs of id and step that are accepted are different operations."""
    keys = []
    for flow, step in pairs:
        with contextlib.suppress(KeyInvalidError):
            keys.append(find_key(((b"Workflow-Id", flow), (b"Workflow-Step", step)), KeyRule()))

    assert len(set(keys)) == len(keys)


@given(flow=st.text("_step1", min_size=1, max_size=8), step=st.text("_step1", min_size=1, max_size=8))
@PROPERTY
def test_a_steps_key_is_its_id_and_its_step(flow: str, step: str) -> None:
    """What is accepted is joined in the scheme that agents use, so an explicit key in that scheme is the same key."""
    with contextlib.suppress(KeyInvalidError):
        assert f"{flow}_step_{step}" == find_key(((b"Workflow-Id", flow.encode()), (b"Workflow-Step", step.encode())), KeyRule())


# Baggage


def baggage(*lines: bytes) -> Fields:
    """Fields with these lines of baggage."""
    return tuple((b"baggage", line) for line in lines)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(baggage(b"Workflow-Id=w"), Workflow("w"), id="an id"),
        pytest.param(baggage(b"workflow-id=w,WORKFLOW-STEP=1"), Workflow("w", "1"), id="in any case"),
        pytest.param(baggage(b" Workflow-Id = w ; ttl=9 , a=b"), Workflow("w"), id="white space and properties"),
        pytest.param(baggage(b"a=b", b"Workflow-Id=w"), Workflow("w"), id="on a second line"),
        pytest.param(baggage(b"Workflow-Id=a%2Fb%C2%AC"[:17]), Workflow("a/b"), id="percent-encoded"),
        pytest.param(baggage(b"Workflow-Id=w,Workflow-Action=hold%20seat"), Workflow("w", None, "hold seat"), id="an action"),
        pytest.param((FLOW, *baggage(b"Workflow-Id=other,Workflow-Step=3")), Workflow("flow-7", "3"), id="name by name"),
        pytest.param((FLOW, *baggage(b"Workflow-Id,Workflow-Id=")), Workflow("flow-7"), id="not looked at beside the field"),
        pytest.param(baggage(b"Workflow-Step=1,user=ann"), None, id="no id"),
        pytest.param(baggage(b"Workflow-Id"), None, id="no value"),
        pytest.param(baggage(b"X-Workflow-Id=w,userworkflow-id=v"), None, id="other names"),
        pytest.param((), None, id="nothing"),
    ],
)
def test_baggage_carries_a_workflow(fields: Fields, expected: Workflow | None) -> None:
    """Members of the same names count where the field is absent, decoded, whatever else is carried."""
    assert expected == find_workflow(fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (baggage(b"Workflow-Id=a,Workflow-Id=b"), "the Workflow-Id is given 2 times, and one operation has one"),
        (
            baggage(b"Workflow-Id=a", b"workflow-id=a"),
            "the Workflow-Id is given 2 times, and one operation has one",
        ),
        (baggage(b"Workflow-Id="), "the Workflow-Id is empty"),
        (baggage(b"Workflow-Id=caf%C3%A9"), "the Workflow-Id holds a space, or another character that is not visible ASCII"),
        ((FLOW, (b"Workflow-Action", b"")), "the Workflow-Action is not 1 to 255 characters of printable ASCII"),
        ((FLOW, (b"Workflow-Action", b"x" * 256)), "the Workflow-Action is not 1 to 255 characters of printable ASCII"),
        ((FLOW, (b"Workflow-Action", b"a\tb")), "the Workflow-Action is not 1 to 255 characters of printable ASCII"),
    ],
)
def test_a_workflow_without_a_single_name_is_refused(fields: Fields, reason: str) -> None:
    """Wherever it is told, an id is one, and a label is printable; the reason tells neither."""
    with pytest.raises(KeyInvalidError) as refused:
        find_workflow(fields)

    assert reason == str(refused.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"hold a seat", "hold a seat"), (b'"say \\"hi\\""', 'say "hi"'), (b'say "hi"', 'say "hi"'), (b"a,b", "a,b")],
)
def test_an_action_is_a_label(value: bytes, expected: str) -> None:
    """It is text as it stands, or a quoted string (RFC 9651)."""
    assert Workflow("flow-7", None, expected) == find_workflow((FLOW, (b"Workflow-Action", value)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"user=ann, lang=en", b"user=ann, lang=en"),
        (b"user=ann,Workflow-Id=w , lang=en;q=1", b"user=ann, lang=en;q=1"),
        (b" workflow-step = 1;a=b, user=ann", b"user=ann"),
        (b"Workflow-Id=w,workflow-action=x", b""),
        (b"", b""),
        (b"a==b,,c", b"a==b,,c"),
    ],
)
def test_what_is_left_of_baggage_is_as_it_was(value: bytes, expected: bytes) -> None:
    """Our members are taken out, and the bytes of the others stay."""
    assert expected == without_workflow(value)


# Derived keys


def test_a_key_is_derived_only_where_nothing_else_names_the_operation() -> None:
    """Not for an explicit key, nor for a step, nor where the route does not say so."""
    flow = Workflow("flow-7")

    assert Name(None, flow) == find_name((FLOW,), DERIVE)
    assert Name("order-17", flow) == find_name((EXPLICIT, FLOW), DERIVE)
    assert Name("flow-7_step_12", Workflow("flow-7", "12")) == find_name((FLOW, STEP), DERIVE)
    assert None is find_name((FLOW,), KeyRule())


def test_a_derived_key_tells_workflow_route_and_fingerprint_apart() -> None:
    """Each of the three makes another key, the action and the step's absence do not, and the key can stand in a field."""
    keys = [derived_key(Workflow(flow), route, mark) for flow in ("a", "ab") for route in ("b", "r") for mark in ("v1:1", "v1:2")]

    assert 8 == len(set(keys))
    assert derived_key(Workflow("a", None, "x"), "r", "v1:1") == derived_key(Workflow("a"), "r", "v1:1")
    assert all(len(key) == len("derived-") + 64 and step_key(Workflow("a")) is None for key in keys)
