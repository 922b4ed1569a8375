"""Events of a fact check, made as the supervisor makes them."""

from __future__ import annotations

from handoff_queue.shared.types.events import Event, FactsChecked
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.supervisor.lifecycle.commands import (
    FactCheckCommand,
    IssueFactCheck,
    SkipFactCheck,
    TakeFactCheck,
)
from handoff_queue.supervisor.lifecycle.fact_gate import apply_fact_check
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.results import an_issue


def event_of_check(state: JobState, command: FactCheckCommand, words: ResultTexts) -> Event:
    match command:
        case IssueFactCheck(group, attempt):
            assert state.submitted.fact_checker is not None
            return an_issue(StepId(FACT_GATE), attempt, state.submitted.fact_checker, group)
        case TakeFactCheck():
            return apply_fact_check(state, command, words)
        case SkipFactCheck(why):
            return FactsChecked(problem=why)
