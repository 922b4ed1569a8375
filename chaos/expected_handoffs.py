"""Expected handoffs of a job with only its planned faults: predecessors, turns and end of each.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from handoff_queue.chaos.plan import CallKey, PlannedJob, PlannedStep, Says
from handoff_queue.chaos.shapes import Shape
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import FACT_GATE

INSTEAD = "answer.1"
"""The only step of a plan that code made because the planner failed, or of a job for one
specialist.
"""
FIRST_PLAN, FIRST_ROUTE, FIRST_REVIEW, JUDGED = "planner.1", "router.1", "assessor.1", "judge.1"
CHECKED, CHECKED_AGAIN = f"{FACT_GATE}.1", f"{FACT_GATE}.2"


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a handoff, in the words of the journal."""

    status: str
    stop_reason: str


OK = Ended("ok", "finished")


@dataclass(frozen=True, slots=True)
class PlannedHandoff:
    """One expected handoff."""

    id: str
    after: frozenset[str] = frozenset()
    """Handoffs whose results lead to this one."""
    turns: int = 1
    """Number of turns; 0 if a child job does it."""
    end: Ended = OK
    is_needed: bool = True
    """False: it may come to be left out, or given up, as time will have it."""
    instead_of: str = ""
    """Handoff that must fail before this one is issued."""


def course_of(job: PlannedJob) -> Mapping[str, PlannedHandoff]:
    """Return the expected handoffs by id."""
    return _course_of(job)


@cache
def _course_of(job: PlannedJob) -> Mapping[str, PlannedHandoff]:
    ones: dict[str, PlannedHandoff] = {}
    for handoff in (*_before_the_steps(job), *_steps(job), *_looks(job), *_closing(job)):
        ones[handoff.id] = handoff
    return ones


def needs_of(job: PlannedJob) -> Counter[CallKey]:
    """Return the calls that the job needs, without its children's. A tight budget allows only the
    calls that it made.
    """
    return Counter(
        {
            key: job.tries(key)
            for handoff in course_of(job).values()
            if handoff.is_needed and not handoff.instead_of
            for key in keys_of(job, handoff)
        }
    )


def keys_of(job: PlannedJob, handoff: PlannedHandoff) -> list[CallKey]:
    """Return the calls of a handoff."""
    keys: list[CallKey] = []
    for turn in range(1, handoff.turns + 1):
        keys.append(CallKey(job.name, handoff.id, turn))
    return keys


def _before_the_steps(job: PlannedJob) -> Iterator[PlannedHandoff]:
    begun = frozenset[str]()
    if job.mode is Mode.AUTO:
        yield PlannedHandoff(FIRST_ROUTE)
        begun = frozenset({FIRST_ROUTE})
    if job.is_planned:
        yield PlannedHandoff(FIRST_PLAN, begun, turns=2 if job.shape is Shape.REPAIRED else 1)
        if last_plan_of(job) != FIRST_PLAN:
            yield PlannedHandoff(last_plan_of(job), frozenset({FIRST_PLAN}))
        yield PlannedHandoff(INSTEAD, frozenset({last_plan_of(job)}), instead_of=last_plan_of(job))
    elif job.mode is Mode.AUTO:  # the job has no router, so a team gets it
        yield PlannedHandoff(FIRST_PLAN, begun, instead_of=FIRST_ROUTE)
        yield PlannedHandoff("a.1", frozenset({FIRST_PLAN}), instead_of=FIRST_ROUTE)
        yield PlannedHandoff(FIRST_REVIEW, frozenset({"a.1"}), instead_of=FIRST_ROUTE)


def _base(job: PlannedJob) -> frozenset[str]:
    """Return the handoffs before all steps."""
    if job.is_planned:
        return frozenset({last_plan_of(job)})
    if job.mode is Mode.AUTO:
        return frozenset({FIRST_ROUTE})
    return frozenset()


def last_plan_of(job: PlannedJob) -> str:
    """Return the handoff whose plan is executed, if a planner makes the plan."""
    if job.shape is Shape.REJECTED_PLAN:
        return "planner.2"
    return FIRST_PLAN


def _steps(job: PlannedJob) -> Iterator[PlannedHandoff]:
    by_id = {step.id: step for step in job.steps}
    joined = {part for step in job.steps if step.enough for part in step.after}
    for step in job.steps:
        before = {
            *_base(job),
            *(by_id[one].last for one in step.after),
            *(["replanner.1"] if step.is_added else []),
        }
        if step.helps:
            before |= {resolver_of(job)}
        else:
            before |= set()
        for number, says in enumerate(step.attempts, start=1):
            if step.team:
                turns = 0
            elif number == 1:
                turns = step.turns
            else:
                turns = 1
            is_needed = (
                not step.is_dropped and step.id not in joined and job.shape is not Shape.CALLED_OFF
            )
            yield PlannedHandoff(
                f"{step.id}.{number}",
                frozenset(before),
                turns,
                Ended(says.value, "finished"),
                is_needed,
            )
            before = {f"{step.id}.{number}"}
            if says is Says.NEEDS_INPUT:
                answer = resolver_of(job)
                yield PlannedHandoff(answer, frozenset(before))
                before |= {answer, *(one.last for one in job.steps if one.helps == step.id)}
        if step.team:  # its team had its own second chances
            yield PlannedHandoff(f"{step.id}.2", frozenset({step.last}), instead_of=step.last)


def resolver_of(job: PlannedJob) -> str:
    """Return the planner's handoff that answers a step's question or adds a helper step."""
    if job.is_planned:
        return "planner.2"
    return "planner.1"


def _looks(job: PlannedJob) -> Iterator[PlannedHandoff]:
    """Yield the replanner's handoffs: one after each fan-in, but results that arrive while it
    thinks are handled together.
    """
    if job.mode is Mode.ADAPTIVE:
        added = any(step.is_added for step in job.steps)
        again: list[str] = []
        for together in _afterwards(job):
            for handoff_id in together:
                if step_of(job, handoff_id):
                    again.append(handoff_id)
        most = 2 + sum(len(step.attempts) for step in job.steps) + len(again)
        first = frozenset(
            step.last for step in job.steps if not step.after and step.is_there_from_the_beginning
        )
        for number in range(1, most + 1):
            yield PlannedHandoff(f"replanner.{number}", first, is_needed=number == 1 and added)


def _closing(job: PlannedJob) -> Iterator[PlannedHandoff]:
    """Yield the handoffs after the steps, each after all earlier ones."""
    before = {*(step.last for step in job.steps), *_base(job)}
    for together in _afterwards(job):
        for handoff_id in together:
            yield PlannedHandoff(
                handoff_id, frozenset(before), is_needed=job.shape is not Shape.CALLED_OFF
            )
            if job.is_planned and step_of(
                job, handoff_id
            ):  # the one step of a plan by code is sent back as well
                yield PlannedHandoff(
                    f"answer.{handoff_id.rpartition('.')[2]}",
                    frozenset(before),
                    instead_of=last_plan_of(job),
                )
        before |= {*together}
    if job.shape is Shape.VETOED:  # nothing was mended: the veto stands, and all is done once more
        mended = [f"{step.id}.2" for step in job.steps]
        yield from (
            PlannedHandoff(f"{step.id}.3", frozenset(mended), instead_of=f"{step.id}.2")
            for step in job.steps
        )
        yield PlannedHandoff("assessor.3", frozenset(mended), instead_of=mended[-1])


def _afterwards(job: PlannedJob) -> list[tuple[str, ...]]:
    """Return these handoffs in order, with handoffs that are issued together in one tuple. The work
    of a single agent is not reviewed.
    """
    is_reviewed = job.has_team
    reviewed = [
        tuple(
            handoff_id
            for handoff_id in together
            if is_reviewed or not handoff_id.startswith("assessor.")
        )
        for together in _as_reviewed(job)
    ]
    return [together for together in reviewed if together]


def _as_reviewed(job: PlannedJob) -> list[tuple[str, ...]]:
    """Return these handoffs for a job with a review."""
    first, again = (FIRST_REVIEW,), ("assessor.2",)
    whole = tuple(f"{step.id}.2" for step in job.steps)
    sent_back: list[tuple[str, ...]] = [first, (f"{job.steps[0].id}.2",), again]
    chains: dict[Shape, list[tuple[str, ...]]] = {
        Shape.DISPUTED: [(JUDGED,), first],
        Shape.REVISED: sent_back,
        Shape.OVERRULED: [*sent_back, (JUDGED,)],
        Shape.UPHELD: [*sent_back, (JUDGED,), (f"{job.steps[0].id}.3",), ("assessor.3",)],
        Shape.WRITTEN: [first, ("synthesizer.1",)],
        Shape.ADDED: [first, ("synthesizer.1",)],
        Shape.CHECKED: [first, (CHECKED,)],
        Shape.VETOED: [first, (CHECKED,), whole, again, (CHECKED_AGAIN,)],
        Shape.REJECTED_RESEARCH: [whole, first],
        Shape.REJECTED_ANSWER: [first, whole, again],
    }
    return chains.get(job.shape, [first])


def hanging_on(job: PlannedJob, handoffs: Iterable[str]) -> set[str]:
    """Return these handoffs, and all handoffs that received their results."""
    course, dependents = course_of(job), set(handoffs)
    while more := {
        handoff.id
        for handoff in course.values()
        if handoff.id not in dependents and handoff.after & dependents
    }:
        dependents |= more
    return dependents


def step_of(job: PlannedJob, handoff: str) -> PlannedStep | None:
    """Return the step of an attempt; None for a role's handoff."""
    for step in job.steps:
        if step.id == handoff.rpartition(".")[0]:
            return step
    return None
