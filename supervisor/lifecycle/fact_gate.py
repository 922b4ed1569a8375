"""The fact gate: a specialist checks an answer's facts after the gates, and before a person is
asked to approve the answer. Pure.

The check is sent like a step, in a separate chord, but it is not part of the plan, and no step
depends on it. If it fails, the job ends as `partial`, with a note.
"""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.events import FactsChecked, HandoffFinished
from handoff_queue.shared.types.handoff import BUDGETS, BlobRef, ResultStatus
from handoff_queue.shared.types.limits import OnLimit
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.step_events import CheckVerdict
from handoff_queue.supervisor.lifecycle.answer import list_parts
from handoff_queue.supervisor.lifecycle.commands import (
    Command,
    IssueFactCheck,
    SkipFactCheck,
    TakeFactCheck,
)
from handoff_queue.supervisor.lifecycle.gates import decide_sending_back, has_revision_left
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import FactChecks, JobState
from handoff_queue.supervisor.lifecycle.step_state import send_back_answer

NO_WORKER = "no worker of `{}` was there"
NO_TIME = "no time was left for it"
FAILED = "the fact-checker failed"
UNSURE = "the fact-checker could not say"


def check_facts(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...] | None:
    """Return the command that checks the answer's facts, or that applies or skips the check;
    empty while the check runs. None: no check is due.
    """
    if not _is_due(state):
        return None
    known = _find_fact_check(state)
    if known:
        return (TakeFactCheck(known, has_revision_left(state, now)),)
    if any(handoff.is_fact_check for handoff in state.open.values()):
        return ()
    if observations.is_fact_checker_away:
        return (SkipFactCheck(NO_WORKER.format(state.submitted.fact_checker)),)
    if now >= state.working_deadline:
        return (SkipFactCheck(NO_TIME),)
    group = f"g{state.groups + 1}"
    attempt = state.role_attempts.get(FACT_GATE, 0) + 1
    return (IssueFactCheck(group, attempt),)


def end_checking(state: JobState, why: str) -> tuple[Command, ...]:
    """Return the command that applies or skips the check, for a job that ends with the results
    so far. Empty if no check is due.
    """
    if not _is_due(state):
        return ()
    known = _find_fact_check(state)
    if known:
        return (TakeFactCheck(known, may_send_back=False),)
    return (SkipFactCheck(why),)


def is_doubted(state: JobState) -> bool:
    """Return whether a requested check of the answer is missing, failed or found wrong
    statements.
    """
    if state.submitted.fact_checker is None:
        return False
    outcome = state.fact_checks.outcome
    return outcome is None or outcome.wrong > 0 or outcome.problem is not None


def _is_due(state: JobState) -> bool:
    """Return whether the answer has passed the gates and its requested fact-check is not
    applied.
    """
    return (
        state.submitted.fact_checker is not None
        and state.gated is not None
        and state.synthesized is not None
        and state.fact_checks.outcome is None
        and bool(list_parts(state))
    )


def _find_fact_check(state: JobState) -> BlobRef | None:
    """Return the fact-checker's result if it is about this answer, or None."""
    if state.fact_checks.parts == list_parts(state):
        return state.fact_checks.result
    return None


def make_fact_check_event(
    state: JobState, command: TakeFactCheck, texts: ResultTexts
) -> FactsChecked:
    """Return the event for a fact-checker's result. If the answer may be sent back, it names
    the steps to run again, or none if a synthesizer wrote the answer.

    Args:
        texts: payloads of that result.
    """
    result = texts.get_result(command.result)
    check = texts.get_fact_check(command.result)
    if check is None or (not check.wrong and result.status is not ResultStatus.OK):
        return FactsChecked(result=command.result, problem=FAILED)
    if not check.wrong and check.verdict is not CheckVerdict.PASS:
        return FactsChecked(result=command.result, problem=UNSURE)
    if not check.wrong:
        return FactsChecked(result=command.result)
    sending_back = decide_sending_back(state, is_allowed=command.may_send_back)
    return FactsChecked(
        result=command.result,
        wrong=len(check.wrong),
        is_sent_back=sending_back.is_sent_back,
        steps=sending_back.steps,
    )


def apply_check_result(state: JobState, event: HandoffFinished) -> dict[str, Any]:
    """Return the changes after a fact-checker's result. A check that a budget stopped is
    forgotten if the user can raise the budget: it then runs again.
    """
    checks = FactChecks(result=event.result, parts=list_parts(state))
    if event.stop_reason in BUDGETS and state.submitted.limits.on_limit is OnLimit.ASK:
        checks = FactChecks()
    return {
        "fact_checks": checks,
        "role_costs": {**state.role_costs, FACT_GATE: event.usage.cost_microusd or 0},
    }


def apply_facts_checked(state: JobState, event: FactsChecked, at: float) -> dict[str, Any]:
    """Return the changes after the fact-check was applied to the answer, or skipped."""
    if event.is_sent_back:
        return send_back_answer(state, event, at)
    checks = state.fact_checks.model_copy(update={"outcome": event})
    return {"fact_checks": checks, "open": state.get_open_without(FACT_GATE)}


def without_outcome(state: JobState) -> FactChecks:
    """Return the fact-checks for an answer that is made again. A result of an earlier check is
    kept, because the new answer may have the same parts.
    """
    if state.fact_checks.outcome:
        return state.fact_checks.model_copy(update={"outcome": None})
    return state.fact_checks


def reset_checks(state: JobState) -> dict[str, Any]:
    """Return the changes for a retry that makes the answer again: the gates check it again,
    and a fact-checker that failed is asked again.
    """
    outcome = state.fact_checks.outcome
    checks = without_outcome(state)
    if outcome and outcome.problem:
        checks = FactChecks()
    return {"gated": None, "gate_rounds": 0, "turned_down": None, "fact_checks": checks}
