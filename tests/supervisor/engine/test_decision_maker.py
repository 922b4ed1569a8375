"""A decision on a role's result is stored together with the result. A failed decision does not lose
the result.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store.claim_requests import FinishedWithCommit
from handoff_queue.shared.store.due_work import LOST_AFTER_S
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.events import CancelRequested, JobStatus, NeedsResolved
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine import unit_of_work
from handoff_queue.supervisor.lifecycle.commands import Command
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.role_events import build_outcome
from handoff_queue.supervisor.workflows.items_file import Items
from tests.doubles.jobs import due_at
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import UNREVIEWED, make_workflow

IN_NEED = """
    id: n1, specialist: researcher, task: "one"
    id: n2, specialist: researcher, task: "two"
    id: b, specialist: researcher, task: "three"
    id: d, specialist: writer, task: "four", depends_on: [n2, b]
"""


TWO_PAIRS = """
    id: a, specialist: researcher, task: "one"
    id: b, specialist: researcher, task: "two"
    id: after_a, specialist: writer, task: "three", depends_on: [a]
    id: after_b, specialist: writer, task: "four", depends_on: [b]
"""


PAIRS = """
    id: a, specialist: writer, task: "{item}", for_each: lines
    id: b, specialist: writer, task: "{item}", for_each: lines, depends_on: [a], join: {must: [a]}
"""


def call_before_decisions(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[JobId], object]
) -> None:
    """Call `happens` with the job id before each decision on a job with a plan."""

    def decide_then(state: JobState, observations: Observations, now: float) -> tuple[Command, ...]:
        if state.plan is not None:
            happens(state.job_id)
        return decide(state, observations, now)

    monkeypatch.setattr("handoff_queue.supervisor.engine.decision_maker.decide", decide_then)


def test_a_plan_and_its_first_handoffs_are_committed_together(shell: Shell) -> None:
    job_id = shell.submit()
    shell.advance(job_id)

    issued, *others = shell.store.journal.read(job_id)[1:]
    assert issued.event.type == "handoff_issued"
    assert [recorded.event.type for recorded in others[:3]] == [
        "handoff_finished",
        "plan_made",
        "handoff_issued",
    ]
    assert len({recorded.at for recorded in others}) == 1


def test_a_result_is_stored_even_if_no_decision_can_be_made_on_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_before_decisions(monkeypatch, lambda _: 1 / 0)
    job_id = shell.submit()

    shell.advance(job_id)

    assert shell.kinds(job_id)[1:] == ["handoff_issued", "handoff_finished", "plan_made"]
    assert not shell.jobs.info(job_id).status.has_ended, "it is tried again"


def test_the_decision_includes_results_that_arrived_in_between(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is cancelled between the decision on its plan and the commit."""
    cancels = iter([CancelRequested()])
    call_before_decisions(
        monkeypatch,
        lambda job_id: (
            [shell.store.journal.append(job_id, request, {"cancelled": 1}) for request in cancels]
            and None
        ),
    )
    job_id = shell.submit()

    shell.advance(job_id)

    assert shell.kinds(job_id)[1:] == [
        "handoff_issued",
        "cancel_requested",
        "handoff_finished",
        "plan_made",
        "job_ended",
    ]
    assert shell.jobs.info(job_id).status is JobStatus.CANCELLED


def test_an_end_without_a_reply_is_sent_again_and_counts_once(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script ran completely, so the journal has the steps. Their messages are not published."""
    end_and_commit, answers = shell.store.claims.end_and_commit, [None]

    def loses_one(*order: Any) -> FinishedWithCommit:
        finished = end_and_commit(*order)
        if answers:
            answers.pop()
            raise StoreUnavailable("the answer was lost")
        return finished

    monkeypatch.setattr(shell.store.claims, "end_and_commit", loses_one)
    job_id = shell.submit()

    shell.advance(job_id)

    assert (
        shell.kinds(job_id).count("handoff_finished") == shell.kinds(job_id).count("plan_made") == 1
    )
    assert shell.open(job_id)


def test_a_step_begins_if_its_dependency_ended_while_a_role_ran(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wake-up of the earlier result found nothing to do."""
    job_id = shell.jobs.submit(
        Request("Do it.", workflow=make_workflow(tmp_path, IN_NEED, UNREVIEWED))
    )
    shell.advance(job_id)
    handoffs, other, original = (
        {event.step_id: event for event in shell.open(job_id)},
        shell.another(),
        build_outcome,
    )
    for step in ("n1", "n2"):
        shell.do(job_id, handoffs[StepId(step)], ResultStatus.NEEDS_INPUT)

    def meanwhile(handoff: AgentHandoff, state: JobState, result: HandoffResult, *more: Any) -> Any:
        if handoff.assigned_to != "planner":
            return original(handoff, state, result, *more)
        other.do(job_id, handoffs[StepId("b")])
        other.advance(job_id)
        return (
            NeedsResolved(
                result=make_ref(result.to_json()),
                answered=(StepId("n1"),),
                given_up=(StepId("n2"),),
            ),
        ), ()

    monkeypatch.setattr("handoff_queue.supervisor.engine.role_runner.build_outcome", meanwhile)
    shell.advance(job_id)

    assert {event.handoff_id for event in shell.open(job_id)} == {"n1.2", "d.1"}
    other.close()


def test_a_result_between_a_decision_and_its_commit_is_not_lost(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision only issues a step. It is committed after a result that it has not read."""
    job_id = shell.jobs.submit(
        Request("Do it.", workflow=make_workflow(tmp_path, TWO_PAIRS, UNREVIEWED))
    )
    shell.advance(job_id)
    handoffs = {event.step_id: event for event in shell.open(job_id)}
    shell.do(job_id, handoffs[StepId("a")])
    others = [handoffs[StepId("b")]]

    def ends_meanwhile(_: JobId) -> None:
        if others:
            shell.do(job_id, others.pop())

    call_before_decisions(monkeypatch, ends_meanwhile)

    shell.advance(job_id)
    assert {event.handoff_id for event in shell.open(job_id)} == {"after_a.1"}
    shell.advance(job_id)

    assert {event.handoff_id for event in shell.open(job_id)} == {"after_a.1", "after_b.1"}


def test_many_steps_that_can_never_begin_are_given_up_in_several_decisions(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pair has its own reason, and so its own event. No reader reads a longer batch."""
    monkeypatch.setattr(unit_of_work, "MAX_EVENTS_A_DECISION", 10)
    items = Items(lines=tuple(f"item {number}" for number in range(35)))
    workflow = make_workflow(tmp_path, PAIRS, UNREVIEWED)
    limits = JobLimits(max_handoffs=1)
    job_id = shell.jobs.submit(Request("Do it.", workflow=workflow, items=items, limits=limits))

    shell.advance(job_id)
    due = due_at(shell.store, job_id)
    assert due <= shell.store.connection.now() + LOST_AFTER_S, "the rest follows soon"
    sizes: list[int] = [1]
    while (version := shell.jobs.info(job_id).version) not in sizes:
        sizes.append(version)
        shell.advance(job_id)

    commits = [later - earlier for earlier, later in pairwise(sizes)]
    assert max(commits) <= 12
    assert shell.kinds(job_id).count("steps_abandoned") == 35
