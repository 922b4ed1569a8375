"""Arbitration between a step's specialist (the writer) and the assessor: the
judge is asked once, and the answer reports the ruling. Pure.

They disagree if the latest review sends a step back for a fault that an earlier review has
named.
"""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.events import Arbitrated
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.review import Decision, Revision, Ruling, Rulings
from handoff_queue.supervisor.lifecycle.commands import Command
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.routing import ask_role
from handoff_queue.supervisor.lifecycle.state import AttemptFeedback, JobState, Phase
from handoff_queue.supervisor.lifecycle.step_state import reopen_step


def find_disagreements(state: JobState) -> tuple[StepId, ...]:
    """Return the steps that the last review sends back for the same fault again."""
    last = state.last_round
    if last is not None and last.decision is Decision.REVISE:
        return last.repeats
    return ()


def may_need_arbitration(state: JobState) -> bool:
    """Return whether the judge may still be asked about a disagreement, because work was sent
    back.
    """
    return state.is_reviewed and state.reworks > 0 and state.arbitrated is None


def arbitrate(state: JobState, now: float) -> tuple[Command, ...] | None:
    """Return the command that asks the judge about a disagreement; empty while the judge
    works. None: there is no disagreement, or it is not settled any more.
    """
    is_over = state.spent is not None or now >= state.working_deadline
    if is_over or state.arbitrated is not None or not find_disagreements(state):
        return None
    if state.has_open(Role.JUDGE):
        return ()
    return (ask_role(state, Role.JUDGE),)


def find_points_settled_for_writer(state: JobState) -> frozenset[StepId]:
    """Return the steps of the disagreements that the judge settled for the writer."""
    if state.arbitrated is None:
        return frozenset()
    return frozenset(state.arbitrated.writer) & {*find_disagreements(state)}


def is_accepted(state: JobState) -> bool:
    """Return whether the last review accepts all work: by its verdict, or by the judge's
    rulings on all of its points.
    """
    last = state.last_round
    if last is None:
        return False
    if last.decision is Decision.PASS:
        return True
    return bool(last.steps) and {*last.steps} <= find_points_settled_for_writer(state)


def apply_arbitration(state: JobState, event: Arbitrated, at: float) -> dict[str, Any]:
    """Return the changes after the judge's ruling. If the assessor is right and a round is
    left, the step runs once more.
    """
    changes: dict[str, Any] = {
        "arbitrated": event,
        "fruitless": 0,
        "open": state.get_open_without(Role.JUDGE),
    }
    present = state.steps.keys() & {*event.assessor}
    named_steps = frozenset(step_id for step_id in present if not state.steps[step_id].acted)
    review = state.last_round
    may_send_back = state.may_send_back and not state.spent and is_for_arbitration(state)
    if not named_steps or not may_send_back or review is None:
        return changes
    steps = dict(state.steps)
    for step_id in {*named_steps, *state.find_downstream(named_steps)}:
        remark = AttemptFeedback(
            author="assessor",
            result=review.result,
            previous=steps[step_id].result,
            ruling=event.result,
        )
        steps[step_id] = reopen_step(steps[step_id], remark)
    return {
        **changes,
        "steps": steps,
        "phase": Phase.WORKING,
        "review_over": False,
        "reworks": state.reworks + 1,
        "sent_back_at": at,
    }


def is_for_arbitration(state: JobState) -> bool:
    """Return whether a handoff of the judge is now about a disagreement, and not about claims.

    True while the answer is written, and while steps wait for the ruling after the review.
    """
    is_stuck = state.review_over and bool(find_disagreements(state)) and state.arbitrated is None
    return state.phase is Phase.SYNTHESIZING or (state.phase is Phase.WORKING and is_stuck)


def list_arbitration_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `get_rulings` reads."""
    if state.arbitrated and state.arbitrated.problem is None:
        return (state.arbitrated.result,)
    return ()


def get_rulings(state: JobState, texts: ResultTexts) -> dict[StepId, Ruling]:
    """Return the judge's rulings on the disagreements of the latest review, by step.

    Args:
        texts: payloads of `list_arbitration_payloads`.
    """
    disputed_steps = set(find_disagreements(state))
    rulings: dict[StepId, Ruling] = {}
    for result in texts.get_results(list_arbitration_payloads(state)):
        for ruling in Rulings.from_value(result.output).rulings:
            if ruling.step in disputed_steps:
                rulings[ruling.step] = ruling
    return rulings


def describe_revision(state: JobState, revision: Revision, ruling: Ruling | None) -> str | None:
    """Return the note on a point of the latest review; None if the judge ruled for the writer."""
    point = f"{revision.step}: {revision.problem}"
    if ruling is None or state.arbitrated is None:
        return point
    if revision.step in find_points_settled_for_writer(state):
        return None
    why = ""
    if ruling.why:
        why = f": {ruling.why}"
    if revision.step in state.arbitrated.assessor:
        return f"{point} (the judge says so, too{why})"
    return f"Disputed between assessor and writer: {point} (the judge could not settle it{why})"


def build_settled_point_notes(state: JobState, texts: ResultTexts) -> tuple[str, ...]:
    """Return a note for each point that the judge settled for the writer, or the note that the
    ruling failed.
    """
    if state.arbitrated is None or not find_disagreements(state):
        return ()
    problem = state.arbitrated.problem
    if problem:
        return (f"What assessor and writer do not agree on was not settled: {problem}.",)
    verdict = texts.get_verdict(state.last_round)
    if verdict is None:
        return ()
    rulings = get_rulings(state, texts)
    settled_steps = find_points_settled_for_writer(state)
    notes: list[str] = []
    for revision in verdict.revisions:
        if revision.step in settled_steps:
            why = rulings[revision.step].why or "no reason given"
            notes.append(
                f"Settled for the writer: {revision.step}: {revision.problem} (the judge: {why})"
            )
    return tuple(notes)
