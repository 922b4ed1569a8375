"""Random plans, patches, joins and approvals."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Patch, Plan, Repeat, Synthesis
from handoff_queue.shared.types.step import Join, OnFailure, Step


def any_approvals(dice: Random) -> Approvals:
    """Return random approvals, mostly none."""
    points = dice.sample(
        [ApprovalOf.PLAN, ApprovalOf.RESEARCH, ApprovalOf.ANSWER], dice.choice([0, 0, 1, 2, 3])
    )
    if dice.random() < 0.5:
        points.append(ApprovalOf.TOOLS)
    timeout_s = dice.choice([None, 20, 600])
    on_timeout = OnTimeout.STOP if timeout_s is None else dice.choice(list(OnTimeout))
    return Approvals(
        what=tuple(points),
        above_microusd=dice.choice([None, None, 30]),
        timeout_s=timeout_s,
        on_timeout=on_timeout,
    )


def any_join(dice: Random, waits_for: Sequence[StepId]) -> Join | None:
    """Return a random join, mostly none."""
    if not waits_for or dice.random() < 0.7:
        return None
    at_least = dice.randint(1, len(waits_for))
    enough = dice.choice([None, dice.randint(at_least, len(waits_for))])
    must = tuple(dice.sample(waits_for, dice.choice([0, 0, 1])))
    return Join(enough=enough, at_least=at_least, within_s=dice.choice([None, 1, 20]), must=must)


def any_patch(dice: Random, plan: Plan, number: int) -> Patch:
    """Return a random patch of a plan. It may be invalid, or come too late.

    `number`: makes the names of new steps unique.
    """
    old = [step.id for step in plan.steps]
    names = [StepId(f"p{number}_{n}") for n in range(dice.choice([0, 0, 1, 1, 2, 3]))]
    add = tuple(_any_step(dice, name, [*old, *names[:n]]) for n, name in enumerate(names))
    touched = dice.sample(old, min(len(old), dice.choice([0, 0, 1, 2])))
    change = tuple(
        _any_step(dice, step, [other for other in old if other != step]) for step in touched[:1]
    )
    repeats = (
        (Repeat(step=StepId("again"), earlier=dice.choice(old)),) if dice.random() < 0.1 else ()
    )
    return Patch(
        add=add,
        change=change,
        drop=tuple(touched[1:]),
        finalize=dice.random() < 0.1,
        repeats=repeats,
    )


def _any_step(dice: Random, name: StepId, before: list[StepId]) -> Step:
    depends_on = tuple(dice.sample(before, dice.randint(0, min(len(before), 2))))
    return Step(
        id=name,
        specialist="researcher",
        task=f"Do {name}.",
        depends_on=depends_on,
        on_failure=dice.choice(list(OnFailure)),
    )


def any_plan(dice: Random) -> Plan:
    names = [StepId(f"s{n}") for n in range(dice.randint(1, 7))]
    depends_on = {
        name: tuple(dice.sample(names[:n], dice.randint(0, min(n, 3))))
        for n, name in enumerate(names)
    }
    steps = tuple(
        Step(
            id=name,
            specialist=CHILD_JOB_SPECIALIST if dice.random() < 0.1 else "researcher",
            task=f"Do {name}.",
            depends_on=before,
            on_failure=dice.choice(list(OnFailure)),
            join=any_join(dice, before),
        )
        for name, before in depends_on.items()
    )
    sinks = [name for name in names if not any(name in before for before in depends_on.values())]
    return Plan(
        steps=tuple(dice.sample(steps, len(steps))),
        synthesis=dice.choice(list(Synthesis)),
        join=any_join(dice, sinks),
    )
