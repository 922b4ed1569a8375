"""`handoff retry` repeats gaps. A dependent of a gap runs again only if the new result differs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import (
    Arbitrated,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    Rejected,
    RetryRequested,
    Reviewed,
)
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.names import CLOSING_ROLES, Role
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.job_retry import build_retry
from tests.doubles.random_job import RandomJob
from tests.doubles.simulated_job import SimulatedJob
from tests.property_settings import draws

LASTING_ERROR = "it is not there"


def job_with_gap(
    *, gaps: tuple[str, ...] = ("b",), approvals: Approvals | None = None, **depends_on: str
) -> SimulatedJob:
    """Return an ended job in which the steps `gaps` failed."""
    job = SimulatedJob(approvals=approvals or Approvals())
    job.advance()
    job.make_plan(**depends_on)
    job.advance()
    run_to_end(job, *gaps)
    assert job.state.status is JobStatus.PARTIAL
    return job


def run_to_end(job: SimulatedJob, *failing: str) -> None:
    """Run the job to its end. All handoffs succeed except `failing`, and all questions are
    approved.
    """
    while not job.state.ended:
        if job.state.question:
            job.approve()
        for name in sorted(job.open_names):
            if name == "assessor":
                job.review()
            else:
                job.finish(
                    name,
                    *(("failed",) if name in failing else ()),
                    **({"error": LASTING_ERROR} if name in failing else {}),
                )
        job.advance()


def retry_to_end(job: SimulatedJob, *failing: str, fills_gaps: bool = True) -> list[str]:
    """Retry the job, run it to its end, and return the ids of the issued handoffs in order."""
    before = len(job.events(HandoffIssued))
    job.append(RetryRequested(fills_gaps=fills_gaps, keeps_results=True))
    job.advance()
    run_to_end(job, *failing)
    return [event.handoff_id for event in job.events(HandoffIssued)[before:]]


def test_a_retry_of_an_answer_with_gaps_fills_the_gaps() -> None:
    job = job_with_gap(a="", b="", c="a b")

    assert build_retry(job.state, {}, None, NewLimits()).fills_gaps
    assert not build_retry(job.state, {}, "b", NewLimits()).fills_gaps


def test_a_retry_of_a_job_without_an_answer_leaves_its_joins_as_they_are() -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(a="", b="a")
    job.advance()
    run_to_end(job, "a")

    assert job.state.status is JobStatus.FAILED
    assert not build_retry(job.state, {}, None, NewLimits()).fills_gaps


def answer_json(job: SimulatedJob) -> str:
    assert job.state.ended
    return assemble(job.state, job.state.ended.status, job.texts, None).to_json()


def test_finish_pays_only_for_a_persistent_gap_and_keeps_the_answer() -> None:
    job = job_with_gap(a="", b="", c="a b", d="c")
    before = answer_json(job)

    for attempt in (2, 3):
        assert retry_to_end(job, "b") == [f"b.{attempt}"]
        assert answer_json(job) == before


def test_a_gap_that_is_filled_is_built_on_again_and_reviewed() -> None:
    job = job_with_gap(a="", b="", c="a b", d="c", e="a")

    assert retry_to_end(job) == ["b.2", "c.2", "d.2", "assessor.2"]
    assert job.state.status is JobStatus.OK


def test_the_dependents_of_a_step_that_fails_again_keep_their_results() -> None:
    job = job_with_gap(a="", b="", c="a b", d="c")
    d = job.step("d").result

    issued = retry_to_end(job, "c")

    assert issued == ["b.2", "c.2", "assessor.2"]
    assert job.step("d").result == d


def test_a_gap_after_a_held_result_waits_until_the_result_is_confirmed() -> None:
    job = job_with_gap(gaps=("b", "d"), a="", b="", c="a b", d="c")

    assert retry_to_end(job) == ["b.2", "c.2", "d.2", "assessor.2"]


def test_a_gap_after_a_held_result_is_repeated_once_the_result_is_confirmed() -> None:
    job = job_with_gap(gaps=("b", "d"), a="", b="", c="a b", d="c")

    assert retry_to_end(job, "b") == ["b.2", "d.2", "assessor.2"]


def test_a_retry_of_all_failed_steps_reviews_the_answer_in_any_case() -> None:
    job = job_with_gap(a="", b="", c="a b")

    assert retry_to_end(job, "b", fills_gaps=False) == ["b.2", "assessor.2"]


def test_an_unchanged_answer_needs_no_second_approval() -> None:
    job = job_with_gap(approvals=Approvals(what=(ApprovalOf.ANSWER,)), a="", b="", c="a b")
    approvals = job.state.approved

    retry_to_end(job, "b")

    assert approvals == job.state.approved == (ApprovalOf.ANSWER,)
    assert job.state.question is None


def test_a_retry_of_a_named_step_repeats_the_step_and_its_dependents() -> None:
    job = job_with_gap(a="", b="", c="a b", d="c")
    before = len(job.events(HandoffIssued))
    job.append(build_retry(job.state, {}, "b", NewLimits()))
    job.advance()
    run_to_end(job, "b")

    assert [event.handoff_id for event in job.events(HandoffIssued)[before:]] == [
        "b.2",
        "c.2",
        "d.2",
        "assessor.2",
    ]


def test_a_retry_of_an_older_version_repeats_everything() -> None:
    job = job_with_gap(a="", b="", c="a b")
    job.append(RetryRequested(fills_gaps=True))
    job.advance()
    run_to_end(job, "b")

    assert [event.handoff_id for event in job.events(HandoffIssued)][-3:] == [
        "b.2",
        "c.2",
        "assessor.2",
    ]


@pytest.mark.slow
@draws(50)
@given(st.integers(0, 10**9))
def test_every_handoff_of_a_finish_has_a_reason(seed: int) -> None:
    job = RandomJob(Random(seed))
    job.run()
    state = job.state
    gaps = {name for name, step in state.steps.items() if not step.is_whole}
    assume(gaps and state.synthesized is not None)
    at = len(job.journal)
    job.append(RetryRequested(fills_gaps=True, keeps_results=True))
    job.runs += 1
    job.run()
    job.check_end()

    fresh = set[str]()
    for event in (recorded.event for recorded in job.journal[at:]):
        match event:
            case (
                Reviewed(steps=(_, *_))
                | GatesChecked(is_sent_back=True)
                | FactsChecked(is_sent_back=True)
                | Rejected()
                | Arbitrated()
            ):
                return  # a step that was sent back has its own reason
            case HandoffFinished() if event.status in (ResultStatus.OK, ResultStatus.PARTIAL):
                fresh.add(event.handoff_id.rpartition(".")[0])
            case HandoffIssued(step_id=step) if step in state.steps:
                assert step in gaps or fresh & {*state.steps[step].outline.depends_on}
            case HandoffIssued(assigned_to=role) if role in (*CLOSING_ROLES, Role.JUDGE):
                assert fresh & state.steps.keys()
            case _:
                pass
