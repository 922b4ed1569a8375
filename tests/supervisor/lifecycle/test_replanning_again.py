"""The replanner of a retried adaptive job changes the plan while earlier results stay valid."""

from __future__ import annotations

from handoff_queue.shared.types.events import HandoffIssued, JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Patch, Repeat
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from tests.doubles.simulated_job import SimulatedJob, finish_steps

FINALIZE = Patch(finalize=True)


def adaptive_job() -> SimulatedJob:
    """Return an adaptive job with the steps a, b, c and d. a and b are issued."""
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(a="", b="", c="a b", d="c")
    job.advance()
    return job


def job_with_gap() -> SimulatedJob:
    """Return an ended job in which b failed and c ran without its result."""
    job = adaptive_job()
    run_to_end(job, "b")
    assert job.state.status is JobStatus.PARTIAL
    return job


def run_to_end(job: SimulatedJob, *failing: str) -> list[str]:
    """Run the job to its end. Return the ids of the issued handoffs, except the replanner's."""
    before = len(job.events(HandoffIssued))
    while not job.state.ended:
        for name in sorted(job.open_names):
            if name == "replanner":
                job.patch_plan()
            elif name == "assessor":
                job.review()
            else:
                job.finish(name, "failed" if name in failing else "ok")
        job.advance()
    issued = job.events(HandoffIssued)[before:]
    return [event.handoff_id for event in issued if event.assigned_to != "replanner"]


def assignees(job: SimulatedJob) -> list[str]:
    return [event.assigned_to for event in job.events(HandoffIssued)]


def answer_json(job: SimulatedJob) -> str:
    return assemble(job.state, job.state.status, job.texts, None).to_json()


def retry_keeping_results(job: SimulatedJob, *, fills_gaps: bool = False) -> SimulatedJob:
    job.append(RetryRequested(keeps_results=True, fills_gaps=fills_gaps))
    job.advance()
    assert (job.open_names, job.state.kept.steps) == ({"b"}, ("c", "d"))
    return job


def test_a_final_patch_keeps_begun_steps_even_if_they_are_repeated() -> None:
    job = retry_keeping_results(job_with_gap())
    finish_steps(job, "b")
    assert job.open_names == {"c", "replanner"}
    job.patch_plan(FINALIZE)
    job.advance()

    assert run_to_end(job) == ["d.2", "assessor.2"]
    assert (job.state.status, {*job.state.steps}) == (JobStatus.OK, {*"abcd"})


def test_a_final_patch_over_a_lasting_gap_lets_the_kept_results_be_reviewed() -> None:
    job = retry_keeping_results(job_with_gap())
    job.finish("b", "failed")
    job.advance()
    assert job.open_names == {"replanner"}
    job.patch_plan(FINALIZE)
    job.advance()

    assert job.open_names == {"assessor"}
    assert [job.step(name).attempt for name in "cd"] == [1, 1]


def test_a_step_added_behind_a_kept_result_waits_until_the_result_is_confirmed() -> None:
    job = retry_keeping_results(job_with_gap())
    finish_steps(job, "b")
    job.patch_plan(
        Patch(
            add=(
                Step(
                    id=StepId("e"),
                    specialist="researcher",
                    task="Check d.",
                    depends_on=(StepId("d"),),
                ),
            )
        )
    )
    job.advance()

    assert job.open_names == {"c"}
    assert run_to_end(job)[:2] == ["d.2", "e.1"]


def test_a_retry_of_gaps_asks_no_replanner_and_an_unchanged_answer_keeps_the_reason() -> None:
    job = adaptive_job()
    job.finish("a")
    job.finish("b", "failed")
    job.advance()
    job.patch_plan(Patch(repeats=(Repeat(step=StepId("e"), earlier=StepId("a")),)))
    run_to_end(job, "b")
    before = answer_json(job)
    looks = assignees(job).count("replanner")
    retry_keeping_results(job, fills_gaps=True)

    assert run_to_end(job, "b") == []
    assert assignees(job).count("replanner") == looks
    assert "asked for the same work again" in before
    assert answer_json(job) == before
