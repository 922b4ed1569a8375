"""An adaptive job that continues after its end: the changes that its replanner can make while
earlier results stand.
"""

from __future__ import annotations

from handoff_queue.shared.types.events import HandoffIssued, JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Patch, Repeat, Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from tests.doubles.simulated_job import SimulatedJob, finish_steps

FINALIZE = Patch(finalize=True)


def adaptive() -> SimulatedJob:
    """c is made of a and b, d is built on c; a and b are out."""
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(a="", b="", c="a b", d="c")
    job.advance()
    return job


def with_a_gap() -> SimulatedJob:
    """Return an ended job: b failed, and c was made without it."""
    job = adaptive()
    ends(job, "b")
    assert job.state.status is JobStatus.PARTIAL
    return job


def ends(job: SimulatedJob, *failing: str) -> list[str]:
    """Return the steps and roles that are issued on the way, without the replanner, which leaves
    the plan unchanged.
    """
    before = len(job.events(HandoffIssued))
    while not job.state.ended:
        for one in sorted(job.open_names):
            if one == "replanner":
                job.patch_plan()
            elif one == "assessor":
                job.review()
            else:
                job.finish(one, "failed" if one in failing else "ok")
        job.advance()
    issued = job.events(HandoffIssued)[before:]
    return [event.handoff_id for event in issued if event.assigned_to != "replanner"]


def roles(job: SimulatedJob) -> list[str]:
    return [event.assigned_to for event in job.events(HandoffIssued)]


def said(job: SimulatedJob) -> str:
    return assemble(job.state, job.state.status, job.texts, None).to_json()


def goes_on_again(job: SimulatedJob, *, whole: bool = False) -> SimulatedJob:
    job.append(RetryRequested(holds=True, whole=whole))
    job.advance()
    assert (job.open_names, job.state.held.steps) == ({"b"}, ("c", "d"))
    return job


def test_a_final_patch_keeps_begun_steps_even_if_they_are_repeated() -> None:
    job = goes_on_again(with_a_gap())
    finish_steps(job, "b")
    assert job.open_names == {"c", "replanner"}
    job.patch_plan(FINALIZE)
    job.advance()

    assert ends(job) == ["d.2", "assessor.2"]
    assert (job.state.status, {*job.state.steps}) == (JobStatus.OK, {*"abcd"})


def test_a_final_patch_over_a_lasting_gap_lets_the_standing_results_be_reviewed() -> None:
    job = goes_on_again(with_a_gap())
    job.finish("b", "failed")
    job.advance()
    assert job.open_names == {"replanner"}
    job.patch_plan(FINALIZE)
    job.advance()

    assert job.open_names == {"assessor"}
    assert [job.step(name).attempt for name in "cd"] == [1, 1]


def test_a_step_added_behind_a_standing_result_waits_until_the_result_is_confirmed() -> None:
    job = goes_on_again(with_a_gap())
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
    assert ends(job)[:2] == ["d.2", "e.1"]


def test_a_retry_of_gaps_asks_no_replanner_and_an_unchanged_answer_keeps_the_reason() -> None:
    job = adaptive()
    job.finish("a")
    job.finish("b", "failed")
    job.advance()
    job.patch_plan(Patch(repeats=(Repeat(step=StepId("e"), earlier=StepId("a")),)))
    ends(job, "b")
    before = said(job)
    looks = roles(job).count("replanner")
    goes_on_again(job, whole=True)

    assert ends(job, "b") == []
    assert roles(job).count("replanner") == looks
    assert "asked for the same work again" in before
    assert said(job) == before
