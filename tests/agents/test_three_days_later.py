"""An agent that comes back when the answers to its calls are no longer kept."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from idemproxy.agent import Workflow
from idemproxy.demo.trip import EFFECTS, STEPS
from tests.agents.killing import WAYS, new_name, stage, unharmed

DAYS: Final = 3
"""More than an answer is kept by default, and less than it is known that there was one."""


def test_what_was_done_is_known_and_is_not_done_again(tmp_path: Path) -> None:
    """The checkpoint knows every step; a state machine that has saved goes on, and who repeats its calls is told, and stops."""
    with stage(tmp_path) as on:
        expected, names = unharmed(on), {way: new_name() for way in WAYS}
        for way, name in names.items():
            agent = on.agent(name, way, "13:before")
            agent.until_halted()
            agent.kill()
        on.wait_days(DAYS)
        checkpoint = Workflow(names["replay"], proxy=on.proxy.url).checkpoint()
        repeating = on.agent(names["replay"], "replay")
        status, said = repeating.finish()
        repeated = [effect["kind"] for effect in on.effects(names["replay"])]
        gone_on = on.outcome(names["state-machine"], on.agent(names["state-machine"], "state-machine").outputs())

    assert checkpoint is not None
    assert ("12", "COMPLETED") == (checkpoint.current_step, checkpoint.status)
    assert [str(number) for number, step in enumerate(STEPS[:12], 1) if step.effect] == [step.step for step in checkpoint.steps]
    assert {("COMPLETED", "expired", "yes", "after_check", None, False)} == {
        (step.status, step.phase, step.executed, step.retry, step.output, step.output_kept) for step in checkpoint.steps
    }
    assert (1, [1, 2]) == (status, [told["step"] for told in repeating.told])  # which are reads; the third would open a case
    assert said.startswith("agent: key-expired (410): ")
    assert said.endswith("[executed: yes, retry: after_check]\n")
    assert list(EFFECTS[:5]) == repeated
    assert expected == gone_on
