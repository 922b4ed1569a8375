"""Expected handoffs of a job that has only its planned faults: the predecessors, the turns and
the end of each. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob, PlannedOutcome, PlannedStep
from handoff_queue.shared.types.ids import parse_step_id
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import FACT_GATE

INSTEAD = "answer.1"
"""Handoff of the only step of a plan that code made because the planner failed, or of a job
for one specialist.
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
    """False if timing decides whether the handoff is issued and finished."""
    instead_of: str = ""
    """Handoff that must fail before this one is issued."""


def compute_expected_handoffs(job: PlannedJob) -> Mapping[str, PlannedHandoff]:
    """Return the expected handoffs by id."""
    return _compute_expected_handoffs(job)


@cache
def _compute_expected_handoffs(job: PlannedJob) -> Mapping[str, PlannedHandoff]:
    handoffs: dict[str, PlannedHandoff] = {}
    for handoff in (
        *_iterate_role_handoffs(job),
        *_iterate_attempts(job),
        *_iterate_replanners(job),
        *_iterate_closing_handoffs(job),
    ):
        handoffs[handoff.id] = handoff
    return handoffs


def count_needed_tries(job: PlannedJob) -> Counter[CallKey]:
    """Return the number of tries of each call that the job needs, without its children's calls
    and without regard to its budget.
    """
    needs = Counter[CallKey]()
    for handoff in compute_expected_handoffs(job).values():
        if handoff.is_needed and not handoff.instead_of:
            for key in list_keys(job, handoff):
                needs[key] = job.count_tries(key)
    return needs


def list_keys(job: PlannedJob, handoff: PlannedHandoff) -> list[CallKey]:
    """Return the calls of a handoff."""
    keys: list[CallKey] = []
    for turn in range(1, handoff.turns + 1):
        keys.append(CallKey(job.name, handoff.id, turn))
    return keys


def _iterate_role_handoffs(job: PlannedJob) -> Iterator[PlannedHandoff]:
    """Yield the router's and the planner's handoffs, and the handoffs that replace failed ones."""
    routes = frozenset[str]()
    if job.mode is Mode.AUTO:
        yield PlannedHandoff(FIRST_ROUTE)
        routes = frozenset({FIRST_ROUTE})
    if job.is_planned:
        yield PlannedHandoff(FIRST_PLAN, routes, turns=2 if job.shape is Shape.REPAIRED else 1)
        if get_last_plan(job) != FIRST_PLAN:
            yield PlannedHandoff(get_last_plan(job), frozenset({FIRST_PLAN}))
        yield PlannedHandoff(
            INSTEAD, frozenset({get_last_plan(job)}), instead_of=get_last_plan(job)
        )
    elif job.mode is Mode.AUTO:  # if the router fails, a team gets the job
        yield PlannedHandoff(FIRST_PLAN, routes, instead_of=FIRST_ROUTE)
        yield PlannedHandoff("a.1", frozenset({FIRST_PLAN}), instead_of=FIRST_ROUTE)
        yield PlannedHandoff(FIRST_REVIEW, frozenset({"a.1"}), instead_of=FIRST_ROUTE)


def _get_handoffs_before_steps(job: PlannedJob) -> frozenset[str]:
    """Return the handoffs before all steps."""
    if job.is_planned:
        return frozenset({get_last_plan(job)})
    if job.mode is Mode.AUTO:
        return frozenset({FIRST_ROUTE})
    return frozenset()


def get_last_plan(job: PlannedJob) -> str:
    """Return the handoff whose plan is executed, if a planner makes the plan."""
    if job.shape is Shape.REJECTED_PLAN:
        return "planner.2"
    return FIRST_PLAN


def _iterate_attempts(job: PlannedJob) -> Iterator[PlannedHandoff]:
    """Yield the attempts at each step, and the planner's answers to questions of steps."""
    joined_steps: set[str] = set()
    for step in job.steps:
        if step.enough:
            joined_steps.update(step.after)
    for step in job.steps:
        before = _find_earlier_handoffs(job, step)
        is_needed = (
            not step.is_dropped
            and step.id not in joined_steps
            and job.shape is not Shape.CALLED_OFF
        )
        for number, outcome in enumerate(step.attempts, start=1):
            attempt = f"{step.id}.{number}"
            end = Ended(outcome.value, "finished")
            turns = _get_turns(step, number)
            yield PlannedHandoff(attempt, frozenset(before), turns, end, is_needed)
            before = {attempt}
            if outcome is PlannedOutcome.NEEDS_INPUT:
                answer = get_resolver(job)
                yield PlannedHandoff(answer, frozenset(before))
                helpers = (helper.last for helper in job.steps if helper.helps == step.id)
                before |= {answer, *helpers}
        if step.team:  # a child job has retried its own steps, so another attempt replaces it
            yield PlannedHandoff(f"{step.id}.2", frozenset({step.last}), instead_of=step.last)


def _find_earlier_handoffs(job: PlannedJob, step: PlannedStep) -> set[str]:
    """Return the handoffs before the first attempt at a step."""
    before = set(_get_handoffs_before_steps(job))
    for other in job.steps:
        if other.id in step.after:
            before.add(other.last)
    if step.is_added:
        before.add("replanner.1")
    if step.helps:
        before.add(get_resolver(job))
    return before


def _get_turns(step: PlannedStep, number: int) -> int:
    """Return the turns of an attempt, by its number."""
    if step.team:
        return 0
    if number == 1:
        return step.turns
    return 1


def _get_last_handoffs(steps: Iterable[PlannedStep]) -> set[str]:
    """Return the handoff with the last planned attempt at each step."""
    return {step.last for step in steps}


def get_resolver(job: PlannedJob) -> str:
    """Return the planner's handoff that answers a step's question or adds a helper step."""
    if job.is_planned:
        return "planner.2"
    return "planner.1"


def _iterate_replanners(job: PlannedJob) -> Iterator[PlannedHandoff]:
    """Yield the replanner's handoffs: at most one after each fan-in. Results that arrive while
    it thinks are handled together, so only the first handoff of a job with an added step is
    sure.
    """
    if job.mode is not Mode.ADAPTIVE:
        return
    attempts = 0
    for step in job.steps:
        attempts += len(step.attempts)
    for together in _list_later_handoffs(job):
        for handoff_id in together:
            attempts += find_step(job, handoff_id) is not None
    first = frozenset(_get_last_handoffs(step for step in job.first_steps if not step.after))
    is_sure = any(step.is_added for step in job.steps)
    most = attempts + 2
    for number in range(1, most + 1):
        yield PlannedHandoff(f"replanner.{number}", first, is_needed=number == 1 and is_sure)


def _iterate_closing_handoffs(job: PlannedJob) -> Iterator[PlannedHandoff]:
    """Yield the handoffs after the steps, each after all earlier ones."""
    before = _get_last_handoffs(job.steps) | _get_handoffs_before_steps(job)
    is_needed = job.shape is not Shape.CALLED_OFF
    for together in _list_later_handoffs(job):
        for handoff_id in together:
            yield PlannedHandoff(handoff_id, frozenset(before), is_needed=is_needed)
            # the only step of a plan that code made is sent back as well
            if job.is_planned and find_step(job, handoff_id):
                answer = f"answer.{handoff_id.rpartition('.')[2]}"
                yield PlannedHandoff(answer, frozenset(before), instead_of=get_last_plan(job))
        before |= {*together}
    if job.shape is Shape.VETOED:
        # if the second attempts fail, the veto stands and all steps run once more
        second_attempts = _list_second_attempts(job)
        for step in job.steps:
            yield PlannedHandoff(
                f"{step.id}.3", frozenset(second_attempts), instead_of=f"{step.id}.2"
            )
        yield PlannedHandoff(
            "assessor.3", frozenset(second_attempts), instead_of=second_attempts[-1]
        )


def _list_second_attempts(job: PlannedJob) -> tuple[str, ...]:
    """Return the second attempt at each step."""
    return tuple(f"{step.id}.2" for step in job.steps)


def _list_later_handoffs(job: PlannedJob) -> list[tuple[str, ...]]:
    """Return the handoffs after the steps, in order. Handoffs that are issued together are in
    one tuple. The work of a single agent is not reviewed.
    """
    chain = _list_reviewed_handoffs(job)
    if job.has_team:
        return chain
    return [together for together in chain if not together[0].startswith("assessor.")]


def _list_reviewed_handoffs(job: PlannedJob) -> list[tuple[str, ...]]:
    """Return the handoffs after the steps of a job with a review."""
    first, again = (FIRST_REVIEW,), ("assessor.2",)
    second_attempts = _list_second_attempts(job)
    sent_back: list[tuple[str, ...]] = [first, (f"{job.steps[0].id}.2",), again]
    chains: dict[Shape, list[tuple[str, ...]]] = {
        Shape.DISPUTED: [(JUDGED,), first],
        Shape.REVISED: sent_back,
        Shape.OVERRULED: [*sent_back, (JUDGED,)],
        Shape.UPHELD: [*sent_back, (JUDGED,), (f"{job.steps[0].id}.3",), ("assessor.3",)],
        Shape.WRITTEN: [first, ("synthesizer.1",)],
        Shape.ADDED: [first, ("synthesizer.1",)],
        Shape.CHECKED: [first, (CHECKED,)],
        Shape.VETOED: [first, (CHECKED,), second_attempts, again, (CHECKED_AGAIN,)],
        Shape.REJECTED_RESEARCH: [second_attempts, first],
        Shape.REJECTED_ANSWER: [first, second_attempts, again],
    }
    return chains.get(job.shape, [first])


def find_dependents(job: PlannedJob, handoffs: Iterable[str]) -> set[str]:
    """Return these handoffs, and all handoffs that depend on their results."""
    dependents = set(handoffs)
    size = -1
    while len(dependents) > size:
        size = len(dependents)
        for handoff in compute_expected_handoffs(job).values():
            if handoff.after & dependents:
                dependents.add(handoff.id)
    return dependents


def find_step(job: PlannedJob, handoff: str) -> PlannedStep | None:
    """Return the step of an attempt; None for a role's handoff."""
    for step in job.steps:
        if step.id == parse_step_id(handoff):
            return step
    return None
