"""The outline of a job with many handoffs names events that are far from the journal's end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.store.job_summary import TAIL_EVENTS
from handoff_queue.shared.types.handoff import AgentHandoff, StopReason, build_failed_result
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.client.job_outline import MAX_PAYLOAD_BYTES, build_outline
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.plan_summary import build_plan_fields
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import StepState
from tests.supervisor.many_rows import LIMITS, submit_rows
from tests.supervisor.shell import Shell, running_shell
from tests.supervisor.workflows.workflow_files import (
    ROW_STEP,
    UNREVIEWED,
    make_workflow,
    numbered_rows,
)

FEW = 150
RETRYABLE_ELSEWHERE = StopReason.REFUSED
"""Stop reason after which another specialist may take the step."""


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher") as supervisor:
        yield supervisor


@pytest.mark.slow
def test_a_question_is_shown_after_any_number_of_later_events(shell: Shell, tmp_path: Path) -> None:
    job_id = submit_rows(shell, tmp_path, FEW, f"{ROW_STEP}, on_failure: ask")
    first, *others = shell.open(job_id)
    text = shell.store.payloads.get(job_id, [first.handoff.digest])[first.handoff.digest]
    result = build_failed_result(
        AgentHandoff.from_json(text), "it is not done", RETRYABLE_ELSEWHERE
    )
    claim = shell.claim(job_id, first)
    claim.finish(
        claim.build_finish_request(result, (build_handoff_finished_event(result, "worker:1"),))
    )
    shell.advance(job_id)
    for event in others[:-1]:
        shell.do(job_id, event)

    outline = build_outline(shell.store, job_id)

    assert not any(event.type == "approval_asked" for event in shell.events(job_id)[-TAIL_EVENTS:])
    assert any("approve it or reject it" in note for note in outline.notes)
    assert any("waits for a decision" in line for line in outline.left_out)


def test_a_result_too_long_to_read_still_shows_its_status(shell: Shell, tmp_path: Path) -> None:
    job_id = submit_rows(shell, tmp_path, FEW)
    event, *_ = shell.open(job_id)
    shell.do(job_id, event, output=token_hex(MAX_PAYLOAD_BYTES))

    (last,) = [
        handoff
        for handoff in build_outline(shell.store, job_id).newest
        if handoff["handoff_id"] == event.handoff_id
    ]

    assert last["state"] == "ok"


class MapReadByKey(PersistentMap[StepId, StepState]):
    """Map that allows reads of single steps, and fails if all steps are copied into a dict."""

    @property
    def _all(self) -> dict[StepId, StepState]:
        raise AssertionError("a dict of all of them is made anew for each version of the state")


def test_a_possible_plan_change_is_found_without_reading_all_steps(
    shell: Shell, tmp_path: Path
) -> None:
    state = fold(
        job_id := submit_rows(shell, tmp_path, FEW), None, shell.store.journal.read(job_id)
    )
    assert state is not None

    assert (
        build_plan_fields(state.model_copy(update={"steps": MapReadByKey(state.steps)}), state, ())
        == {}
    )


def test_a_team_counts_as_running_from_its_begin(shell: Shell, tmp_path: Path) -> None:
    teams = make_workflow(
        tmp_path,
        "id: team, specialist: supervisor, for_each: rows, task: 'Find out about {name}.'",
        UNREVIEWED,
    )
    job_id = shell.jobs.submit(
        Request("Have them looked at.", workflow=teams, items=numbered_rows(2), limits=LIMITS)
    )
    shell.advance(job_id)

    outline = build_outline(shell.store, job_id)

    assert outline.at_work == {"running": 2, "deferred": 0, "at_least": False}
    assert len(outline.running) == 2
    assert all(handoff["child"] for handoff in outline.running)
