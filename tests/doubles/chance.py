"""Whatever a job can be asked for, and planned: by dice."""

from __future__ import annotations

from random import Random

from shared.wire.approval import ApprovalOf, Approvals, OnTimeout
from shared.wire.ids import StepId
from shared.wire.plan import OnFailure, Plan, Step, Synthesis


def any_approvals(dice: Random) -> Approvals:
    """Mostly none."""
    what = dice.sample([ApprovalOf.PLAN, ApprovalOf.RESEARCH, ApprovalOf.ANSWER], dice.choice([0, 0, 1, 2, 3]))
    timeout_s = dice.choice([None, 20, 600])
    on_timeout = OnTimeout.STOP if timeout_s is None else dice.choice(list(OnTimeout))
    return Approvals(what=tuple(what), above_microusd=dice.choice([None, None, 30]), timeout_s=timeout_s, on_timeout=on_timeout)


def any_plan(dice: Random) -> Plan:
    names = [StepId(f"s{n}") for n in range(dice.randint(1, 7))]
    steps = tuple(
        Step(
            id=name,
            specialist="researcher",
            task=f"Do {name}.",
            depends_on=tuple(dice.sample(names[:n], dice.randint(0, min(n, 3)))),
            on_failure=dice.choice(list(OnFailure)),
        )
        for n, name in enumerate(names)
    )
    return Plan(steps=tuple(dice.sample(steps, len(steps))), synthesis=dice.choice(list(Synthesis)))
