"""Keys that a workflow's id and step make together, where no explicit one is sent (contract, section 4)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idemproxy.core.key import KeyInvalidError, KeyRule, KeySource, find_key
from idemproxy.core.message import Fields

PROPERTY = settings(derandomize=True, deadline=None, max_examples=300)
FLOW = (b"Workflow-Id", b"flow-7")
STEP = (b"Workflow-Step", b"12")
EXPLICIT = (b"Idempotency-Key", b"order-17")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param((FLOW, STEP), "flow-7_step_12", id="both"),
        pytest.param((STEP, (b"Date", b"d"), FLOW), "flow-7_step_12", id="in any order, among others"),
        pytest.param(((b"WORKFLOW-ID", b"f"), (b"workflow-step", b"1")), "f_step_1", id="in any case"),
        pytest.param(((b"Workflow-Id", b'"a,\\"b"'), (b"Workflow-Step", b'"charge"')), 'a,"b_step_charge', id="quoted"),
        pytest.param((FLOW,), None, id="no step"),
        pytest.param((STEP,), None, id="no id"),
        pytest.param((FLOW, FLOW), None, id="two ids, no step"),
        pytest.param(((b"Workflow-Step", b""),), None, id="an empty step, no id"),
        pytest.param((EXPLICIT, FLOW, STEP), "order-17", id="an explicit key comes first"),
        pytest.param((FLOW, STEP, EXPLICIT), "order-17", id="wherever it stands"),
        pytest.param((EXPLICIT, FLOW, FLOW, (b"Workflow-Step", b"")), "order-17", id="and whatever the others hold"),
        pytest.param(((b"Workflow-Id", b"x" * 248), (b"Workflow-Step", b"1")), "x" * 248 + "_step_1", id="255 together"),
        pytest.param(((b"Workflow-Id", b"a_step_b"), STEP), "a_step_b_step_12", id="an id may hold what joins them"),
        pytest.param((FLOW, (b"Workflow-Step", b"step_12")), "flow-7_step_step_12", id="a step may begin like it"),
    ],
)
def test_a_workflows_step_is_a_key(fields: Fields, expected: str | None) -> None:
    """Without an explicit key, id and step together make it; one of the two alone makes none."""
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
        ((FLOW, FLOW, STEP), "there are 2 Workflow-Id header lines, and one operation has one Workflow-Id"),
        ((FLOW, STEP, STEP), "there are 2 Workflow-Step header lines, and one operation has one Workflow-Step"),
        (((b"Workflow-Id", b""), STEP), "the Workflow-Id is empty"),
        ((FLOW, (b"Workflow-Step", b'""')), "the Workflow-Step is empty"),
        (((b"Workflow-Id", b"s3cret flow"), STEP), "the Workflow-Id holds a character that is not visible ASCII"),
        ((FLOW, (b"Workflow-Step", b"1\xb2")), "the Workflow-Step holds a character that is not visible ASCII"),
        (
            (FLOW, (b"Workflow-Step", b"1, 2")),
            "the Workflow-Step holds a character that is not visible ASCII",
        ),
        (
            (FLOW, (b"Workflow-Step", b"1,2")),
            "the Workflow-Step holds a comma or a quotation mark: send one, quoted if it needs such characters",
        ),
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
