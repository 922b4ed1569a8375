"""Another specialist that does a step keeps the step's output schema, limits and effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.types.events import HandoffIssued, JobStatus, JobSubmitted
from handoff_queue.shared.types.handoff import AgentHandoff, ResultStatus, StopReason
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.plan import Patch, Plan
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.handoffs import build_step_handoff
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.roles.replanner import PatchFormat
from tests.doubles.handoffs import a_spec
from tests.doubles.simulated_job import SimulatedJob, a_plan
from tests.supervisor.engine.test_child_jobs import child_ids_of
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import UNREVIEWED, make_workflow

LABEL = {
    "type": "object",
    "properties": {"label": {"type": "string"}},
    "required": ["label"],
    "additionalProperties": False,
}


def classifier_spec(**changes: Any) -> SpecialistSpec:
    return a_spec(name="classifier").model_copy(update={"output_schema": LABEL, **changes})


def handoff_to(
    stand_in: SpecialistSpec, contract: SpecialistSpec, acting: frozenset[str] = frozenset()
) -> AgentHandoff:
    job = SimulatedJob()
    job.acting = acting
    job.advance()
    job.make_plan(a_plan(a=""))
    step = Step(id=StepId("a"), specialist=stand_in.name, task="Classify it.")
    return build_step_handoff(
        job.state, step, stand_in, stand_in.content_digest, ResultTexts({}), None, contract
    )


def test_a_stand_in_answers_in_the_schema_of_the_planned_specialist() -> None:
    handoff = handoff_to(a_spec(name="generalist"), classifier_spec())
    assert handoff.expected_output_format == LABEL


@pytest.mark.parametrize(("own_limit", "planned", "lowest"), [(None, 0.5, 0.5), (0.1, 0.5, 0.1)])
def test_a_stand_in_may_spend_no_more_than_the_planned_specialist(
    own_limit: float | None, planned: float, lowest: float
) -> None:
    stand_in = a_spec(name="generalist").model_copy(update={"max_usd": own_limit})
    handoff = handoff_to(stand_in, classifier_spec(max_usd=planned, max_seconds=60))
    assert handoff.limits.max_microusd == int(lowest * 1_000_000)
    assert handoff.limits.max_seconds == 60


def test_a_substitute_gets_no_effects_that_the_planned_specialist_does_not_have() -> None:
    stand_in = a_spec("send_mail", name="generalist")
    acting = frozenset({"researcher"})  # the specialist of the plan
    assert handoff_to(stand_in, classifier_spec(tools=("now",)), acting).acts_with == ("now",)
    assert handoff_to(stand_in, classifier_spec(tools=("send_mail",))).acts_with == ()
    assert handoff_to(stand_in, stand_in).acts_with is None


def handoffs_of(shell: Shell, job_id: JobId, step: str) -> list[AgentHandoff]:
    issued = [
        event
        for event in shell.events(job_id)
        if isinstance(event, HandoffIssued) and event.step_id == step
    ]
    texts = shell.store.payloads.get(job_id, [event.handoff.digest for event in issued])
    return [AgentHandoff.from_json(texts[event.handoff.digest]) for event in issued]


def test_a_row_that_the_generalist_takes_keeps_its_schema(shell: Shell, tmp_path: Path) -> None:
    shell.announce(classifier_spec(), a_spec(name="generalist"))
    flow = make_workflow(tmp_path, "id: sort, specialist: classifier, task: Sort it.", UNREVIEWED)
    job_id = shell.jobs.submit(Request("Sort it.", workflow=flow))
    for _ in range(4):
        shell.advance(job_id)
        for event in shell.open(job_id):
            shell.do(job_id, event, ResultStatus.FAILED, stop_reason=StopReason.INVALID_OUTPUT)

    given = handoffs_of(shell, job_id, "sort")
    assert [handoff.assigned_to for handoff in given] == [*["classifier"] * 3, "generalist"]
    assert [handoff.expected_output_format for handoff in given] == [LABEL] * 4
    shell.advance(job_id)
    assert shell.jobs.info(job_id).status is JobStatus.FAILED, "and is not an answer"


def test_a_team_that_does_the_last_step_answers_in_the_schema_of_the_job(
    shell: Shell, tmp_path: Path
) -> None:
    flow = make_workflow(tmp_path, "id: team, specialist: supervisor, task: Sort it.", UNREVIEWED)
    job_id = shell.jobs.submit(Request("Sort it.", workflow=flow, answer_schema=LABEL))
    shell.advance(job_id)

    (child,) = child_ids_of(shell, job_id)
    first = shell.events(child)[0]
    assert isinstance(first, JobSubmitted)
    assert first.answer_schema is not None
    (handoff,) = handoffs_of(shell, job_id, "team")
    assert handoff.expected_output_format == LABEL


def test_a_step_that_the_replanner_gives_to_another_specialist_keeps_its_contract() -> None:
    before = Step(id=StepId("sort"), specialist="classifier", task="Sort it.")
    plan = Plan(steps=(before,))
    reading = PatchFormat(("classifier", "generalist", "writer"), (StepId("sort"),), 4, plan, {})

    for specialist in ("generalist", "writer"):
        patch = reading.read_calls(
            [{"name": "change_step", "input": {"step": "sort", "specialist": specialist}}],
            last_try=True,
        )
        (changed,) = Patch.from_value(patch.output).change
        assert (changed.specialist, changed.contract_of) == (specialist, "classifier")
