"""The jobs of an evaluation have the options of the evaluation."""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import create_job_id
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.review import Criterion, Rubric
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import check_request
from handoff_queue.supervisor.client.submission import build_submission
from handoff_queue.supervisor.evaluation.answer_grader import AnswerGrader
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
from handoff_queue.supervisor.evaluation.trials import EvaluationPlan, Variant

SETTINGS = Settings(offline=True)


@pytest.mark.parametrize("is_of_the_grader", [False, True])
def test_the_jobs_of_an_evaluation_with_a_deadline_go_through_batches(
    *, is_of_the_grader: bool
) -> None:
    rubric = Rubric(criteria=(Criterion(name="depth", means="It names the layers."),))
    case = GoldenCase(id="one", request="How does HNSW work?", rubric=rubric)
    plan = EvaluationPlan(
        "nightly",
        (case,),
        (Variant(Mode.SINGLE),),
        grader=AnswerGrader(),
        priority=Priority.BATCH,
        deadline_s=21_600,
    )
    (trial,) = plan.trials
    job = plan.build_job(trial)
    if is_of_the_grader:
        answered = JobResult(job_id=create_job_id(), status=JobStatus.OK, answer="By layers.")
        job = plan.build_grader_job(trial, answered)
    request = job.request
    check_request(request, SETTINGS)
    event = build_submission(request, SETTINGS).event
    assert (event.is_batched, event.limits.max_seconds) == (True, 21_600)
