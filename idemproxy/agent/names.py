"""What a workflow and its steps may be called: the proxy's own rules, so that a bad name is refused where it is given."""

from __future__ import annotations

import re

MAX_LENGTH = 255
"""Of an id, of an action, and of the key that an id and a step make together, in characters."""

_JOINT = "_step_"
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_ACTION = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_BARE = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]+")


def checked_id(workflow_id: str) -> str:
    """The id. Raises ValueError where the proxy would refuse it."""
    _check("a workflow's id", workflow_id)
    # Otherwise two pairs, such as (a, b_step_c) and (a_step_b, c), would make one key of two operations.
    if workflow_id.endswith(_JOINT.removesuffix("_")):
        raise ValueError(f"a workflow's id does not end with `_step`: {workflow_id!r}")
    return workflow_id


def checked_step(workflow_id: str, step: str) -> str:
    """A step of that workflow. Raises ValueError where the proxy would refuse it."""
    _check("a step", step)
    if _JOINT in step:
        raise ValueError(f"a step does not hold `_step_`, which joins it with the workflow's id: {step!r}")
    length = len(workflow_id) + len(_JOINT) + len(step)
    if length > MAX_LENGTH:
        raise ValueError(f"the id and the step are {length} characters with `_step_` between them, and {MAX_LENGTH} may be")
    return step


def checked_action(action: str) -> str:
    """What a step does, in words. Raises ValueError where that is no value of a header field, of which there is no encoding."""
    if len(action) > MAX_LENGTH or not _ACTION.fullmatch(action):
        raise ValueError(f"an action is 1 to {MAX_LENGTH} ASCII characters, with spaces inside at most: {action!r}")
    return action


def spelled(name: str) -> str:
    """An id or a step as a header field has it: quoted only where it must be (RFC 9651, section 3.3.3)."""
    return name if _BARE.fullmatch(name) else '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def _check(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{what} is a string, not {type(name).__name__}: give str(...) of it")
    if len(name) > MAX_LENGTH or not _VISIBLE.fullmatch(name):
        raise ValueError(f"{what} is 1 to {MAX_LENGTH} visible ASCII characters, without spaces: {name!r}")
