"""Numbers, names, and what they may be; and how light the package is."""

from __future__ import annotations

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.agent import Checkpoint, Step, Workflow, WorkflowDivergedError
from idemproxy.agent.course import Course
from idemproxy.core.key import KeyInvalidError, KeyRule
from idemproxy.core.workflow import find_name

TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x81), min_size=0, max_size=300) | st.sampled_from(
    ["a_step", "a_step_b", "_step_", "b", '"', "a,b", "\\", "x" * 255, "x" * 248, "x" * 249]
)


@given(TEXTS, TEXTS)
def test_names_are_refused_as_the_proxy_refuses_them(workflow_id: str, step: str) -> None:
    """What is taken here makes the key that the proxy reads from the fields, and what is refused here makes none there."""
    try:
        fields = Workflow(workflow_id).named_step(step)
    except ValueError:
        quoted = [
            (name, b'"%b"' % value.replace("\\", "\\\\").replace('"', '\\"').encode("latin-1"))
            for name, value in ((b"workflow-id", workflow_id), (b"workflow-step", step))
        ]
        with pytest.raises(KeyInvalidError):
            find_name(tuple(quoted), KeyRule())
    else:
        sent = tuple((name.lower().encode(), value.encode()) for name, value in fields.items())
        found = find_name(sent, KeyRule())
        assert f"{workflow_id}_step_{step}" == (found and found.key)


def test_numbers_count_up_in_call_order() -> None:
    """Each call of next_step is the next number, with the action where there is one."""
    trip = Workflow("trip-1")

    assert [
        {"Workflow-Id": "trip-1", "Workflow-Step": "1"},
        {"Workflow-Id": "trip-1", "Workflow-Step": "2", "Workflow-Action": "charge card"},
        {"Workflow-Id": "trip-1", "Workflow-Step": "3"},
    ] == [trip.next_step(), trip.next_step(action="charge card"), trip.next_step()]
    assert 3 == trip.position


def test_a_name_that_comes_again_is_counted() -> None:
    """No two steps have one name, however names and numbers are mixed, and a name that is refused takes nothing."""
    trip = Workflow("trip-1")
    names = ["charge", "charge.2", "charge", "2", "charge"]

    given_names = [trip.named_step(name)["Workflow-Step"] for name in names]
    with pytest.raises(ValueError, match="an action is"):
        trip.next_step(action="")
    numbers = [trip.next_step()["Workflow-Step"] for _ in range(2)]

    assert ["charge", "charge.2", "charge.3", "2", "charge.4"] == given_names
    assert ["1", "3"] == numbers


def test_threads_get_different_numbers() -> None:
    """No number is given twice, and none is left out, however many ask at once."""
    trip = Workflow("trip-1")
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: int(trip.next_step()["Workflow-Step"]), range(2000)))

    assert list(range(1, 2001)) == sorted(numbers)


@pytest.mark.parametrize("action", ["", " a", "a ", "Sitz wählen", "a\nb", "x" * 256])
def test_actions_that_no_header_can_carry_are_refused(action: str) -> None:
    """An action is visible ASCII with spaces inside."""
    with pytest.raises(ValueError, match="an action is"):
        Workflow("trip-1").next_step(action=action)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "http://", "ftp://h", "http://h/api", "http://u@h", "http://h?a=1", "http://h:x"]
)
def test_proxies_that_are_no_origin_are_refused(url: str) -> None:
    """The proxy is given as scheme, host and port."""
    with pytest.raises(ValueError, match="the proxy is given as"):
        Workflow("trip-1", proxy=url)


def test_a_workflow_shows_which_it_is() -> None:
    """Its id and its proxy, and no fields of its scope."""
    trip = Workflow("trip-1", proxy="http://127.0.0.1:8080/", headers={"Authorization": "secret"})

    assert "Workflow('trip-1', proxy='http://127.0.0.1:8080')" == repr(trip)


def test_an_id_that_is_no_string_is_refused() -> None:
    """A UUID is not guessed to be its text, as None is not; the message says what to give."""
    with pytest.raises(TypeError, match=r"a workflow's id is a string, not UUID: give str\(\.\.\.\) of it"):
        Workflow(uuid.UUID(int=1))  # type: ignore[arg-type]


def test_what_is_under_way_while_a_workflow_diverges_ends_as_ever() -> None:
    """It has its number already, and may be redirected; nothing takes a further one, and what is resumed knows nothing of it."""
    course = Course("trip-1")
    earlier, diverging, later = (course.begin(None) for _ in range(3))
    course.diverge(diverging)
    course.begin_given(later)
    for step in (later, later, diverging):
        course.end(step)
    course.close(earlier)

    for refused in (course.number, lambda: course.begin(None), lambda: course.begin_given(later)):
        with pytest.raises(WorkflowDivergedError) as caught:
            refused()
        assert ("2", 0, "no", "after_check") == (
            caught.value.step, caught.value.status, caught.value.executed, caught.value.retry,
        )  # fmt: skip
    assert ("charge", 3) == (course.name("charge"), course.position)


def test_a_step_that_another_call_has_ended_is_not_in_doubt() -> None:
    """Of two calls of one step one got the answer, and the other none: it has happened."""
    course = Course("trip-1")
    step = course.begin(None)
    course.begin_given(step)
    course.close(step)
    course.doubt(step, "no answer came")

    assert "2" == course.number()


def _step(name: str | None, status: str) -> Step:
    status, _, phase = status.partition(" ")
    return Step(
        name, None, status, phase or "completed", 201, {"id": 1}, "json", True, "yes", "never", "00", "api", "api", "t", "t", "t"  # noqa: FBT003  # as it stands there
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "run"),
    [
        ([], 0),
        ([("2", "COMPLETED")], 2),
        ([("1", "COMPLETED"), ("charge", "COMPLETED"), (None, "FAILED"), ("2", "COMPLETED")], 2),
        ([("1", "COMPLETED"), ("2", "FAILED"), ("3", "COMPLETED")], 3),
        ([("1", "FAILED expired"), ("2", "FAILED"), ("3", "UNKNOWN")], 0),
        ([("1", "COMPLETED"), ("2", "FAILED")], 1),
        ([("1", "COMPLETED"), ("2", "FAILED"), ("mail", "COMPLETED")], 1),
        ([("1", "COMPLETED"), ("2", "FAILED absent"), ("3", "COMPLETED")], 3),
        ([("1", "COMPLETED"), ("2", "FAILED absent"), ("3", "FAILED"), ("4", "UNKNOWN"), ("5", "COMPLETED")], 1),
        ([("3", "COMPLETED"), ("1", "COMPLETED"), ("2", "FAILED")], 3),
        ([("1", "COMPLETED"), ("2", "UNKNOWN")], 1),
        ([("1", "COMPLETED"), ("2", "IN_PROGRESS")], 1),
        ([("1", "COMPLETED"), ("1", "UNKNOWN"), ("2", "COMPLETED")], 0),
    ],
)
def test_the_position_is_the_last_completed_step_before_which_none_is_open(steps: list[tuple[str | None, str]], run: int) -> None:
    """A number that is unknown, or under way, ends it, also as one of two operations of a step; what failed is passed over."""
    found = Checkpoint("trip-1", "1", "COMPLETED", tuple(_step(name, status) for name, status in steps), None, None)

    assert run == found.completed_run


def test_the_position_in_a_long_history_is_found_at_once() -> None:
    """In the time of one pass: a hundred thousand steps take no minutes."""
    found = Checkpoint("trip-1", "1", "COMPLETED", tuple(_step(str(n), "COMPLETED") for n in range(1, 100_001)), None, None)

    assert 100_000 == found.completed_run


def test_the_package_is_light() -> None:
    """Importing it takes the standard library only, nothing else of idemproxy, and neither asyncio nor typing."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import idemproxy.agent; "
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] not in sys.stdlib_module_names"
        " and not name.startswith('__') or name in ('asyncio', 'typing')))"
    )
    root = __file__.rpartition("/tests/")[0]
    ran = subprocess.run([sys.executable, "-S", "-I", "-c", program, root], capture_output=True, text=True, check=True)

    assert [] == [
        name
        for name in ran.stdout.split()
        if name not in ("idemproxy", "idemproxy.agent") and not name.startswith("idemproxy.agent.")
    ]
