"""The jobs of an evaluation have the options of the evaluation."""

from __future__ import annotations

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.client.request import check_request
from handoff_queue.supervisor.client.submission import submission_of
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
from handoff_queue.supervisor.evaluation.trials import EvaluationPlan, Variant

SETTINGS = Settings(offline=True)


def test_the_jobs_of_an_evaluation_with_a_deadline_go_through_batches() -> None:
    case = GoldenCase(id="one", request="How does HNSW work?", gates=Gates(required=("graph",)))
    plan = EvaluationPlan(
        "nightly", (case,), (Variant(Mode.SINGLE),), priority=Priority.BATCH, deadline_s=21_600
    )
    request = plan.job_of(plan.trials[0]).request
    check_request(request, SETTINGS)
    event = submission_of(request, SETTINGS).event
    assert (event.is_batched, event.limits.max_seconds) == (True, 21_600)
