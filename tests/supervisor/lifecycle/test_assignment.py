"""A step goes to the least busy capable specialist. After a failure it goes to another one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import OnFailure
from handoff_queue.supervisor.lifecycle.commands import IssueGroup
from handoff_queue.supervisor.lifecycle.handoffs import find_reassignments
from handoff_queue.supervisor.lifecycle.observations import Observations, SpecialistLoad
from handoff_queue.supervisor.lifecycle.step_failure import MAX_RETRIES
from tests.doubles.simulated_job import SimulatedJob, a_plan

ROLES = frozenset({"researcher", "searcher", "generalist"})


def observations_of(**queued: int) -> Observations:
    """Return observations with these queue lengths, for specialists with one slot each."""
    return Observations(
        ROLES,
        loads={
            name: SpecialistLoad("look-up", waiting, slots=1) for name, waiting in queued.items()
        },
    )


def job_with_policy(policy: OnFailure = OnFailure.RETRY) -> SimulatedJob:
    """Return a job with three independent steps for the researcher, and the step d, which
    depends on them.
    """
    job = SimulatedJob()
    job.advance()
    plan = a_plan(a="", b="", c="", d="a b c")
    job.make_plan(
        Plan(steps=tuple(step.model_copy(update={"on_failure": policy}) for step in plan.steps))
    )
    return job


def assignees_of(job: SimulatedJob, observations: Observations) -> dict[str, str]:
    (issue,) = [
        command for command in job.next_commands(observations) if isinstance(command, IssueGroup)
    ]
    return {step: dict(issue.instead).get(step, "researcher") for step in issue.steps}


def test_the_less_busy_specialist_comes_first() -> None:
    assert assignees_of(job_with_policy(), observations_of(researcher=5, searcher=0)) == {
        "a": "searcher",
        "b": "searcher",
        "c": "searcher",
    }


def test_handoffs_of_the_same_decision_count_as_load() -> None:
    assert sorted(
        assignees_of(job_with_policy(), observations_of(researcher=0, searcher=0)).values()
    ) == [
        "researcher",
        "researcher",
        "searcher",
    ]


def test_a_specialist_without_a_capability_gets_the_planned_step() -> None:
    assert set(assignees_of(job_with_policy(), Observations(ROLES)).values()) == {"researcher"}


def test_more_slots_take_more() -> None:
    loads = {
        "researcher": SpecialistLoad("look-up", 4, slots=8),
        "searcher": SpecialistLoad("look-up", 1, slots=1),
    }

    assert set(assignees_of(job_with_policy(), Observations(ROLES, loads=loads)).values()) == {
        "researcher"
    }


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 30))
def test_steps_are_assigned_so_that_queue_lengths_converge(
    researcher_load: int, searcher_load: int, steps: int
) -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(a_plan(**{f"s{n}": "" for n in range(steps)}))
    ids = [StepId(f"s{n}") for n in range(steps)]

    to_other = len(
        find_reassignments(
            job.state, ids, observations_of(researcher=researcher_load, searcher=searcher_load)
        )
    )

    ends = sorted((researcher_load + steps - to_other, searcher_load + to_other))
    assert ends[1] - ends[0] <= max(1, abs(researcher_load - searcher_load) - steps)


def fail_step_a(job: SimulatedJob, observations: Observations) -> None:
    job.finish("a", "failed", error="no")
    job.advance(observations)


def job_failed_by_all(policy: OnFailure) -> SimulatedJob:
    """Return a job in which every specialist has failed at the step a."""
    observations = observations_of(researcher=0, searcher=0)
    job = job_with_policy(policy)
    job.advance(Observations(ROLES))
    for _ in range(MAX_RETRIES + 3):
        fail_step_a(job, observations)
    return job


def test_a_failed_step_goes_to_its_equals_and_then_to_the_generalist() -> None:
    observations = observations_of(researcher=0, searcher=0)
    job = job_with_policy()
    job.advance(Observations(ROLES))
    assignees = []
    for _ in range(MAX_RETRIES + 3):
        assignees.append(job.step("a").specialist)
        fail_step_a(job, observations)

    assert assignees == ["researcher"] * (1 + MAX_RETRIES) + ["searcher", "generalist"]
    assert job.step("a").attempt == MAX_RETRIES + 3, "and nobody after that"


def test_without_another_specialist_a_person_is_asked_if_the_plan_says_so() -> None:
    job = job_failed_by_all(OnFailure.ASK)

    assert job.state.question
    assert job.state.question.what == "failure"
    assert job.open_names == {"b", "c"}, "what runs goes on meanwhile"


def test_a_person_gives_a_step_up() -> None:
    job = job_failed_by_all(OnFailure.ASK)
    job.approve()
    for step in ("b", "c"):
        job.finish(step)
        job.advance(observations_of(researcher=0, searcher=0))

    assert job.open_names == {"d"}
    assert job.step("a").attempt == MAX_RETRIES + 3


def test_a_person_retries_a_step_with_a_note() -> None:
    job = job_failed_by_all(OnFailure.ASK)
    note = job.reject("Look in the cellar.")
    job.advance(observations_of(researcher=0, searcher=0))

    assert job.step("a").specialist == "researcher"
    assert job.handoffs[f"a.{MAX_RETRIES + 4}"].feedback[-1].text == job.payloads[note.digest]


def test_a_step_that_may_be_dropped_is_not_asked_about() -> None:
    job = job_with_policy(OnFailure.DROP)
    job.advance(Observations(ROLES))
    fail_step_a(job, observations_of(researcher=0, searcher=0))

    assert job.state.question is None
    assert job.step("a").attempt == 1


def test_a_job_with_an_unanswered_failure_ends_in_time() -> None:
    job = job_failed_by_all(OnFailure.ASK)
    assert job.state.question
    job.now = job.state.question.until
    job.advance()

    assert job.state.status is JobStatus.CANCELLED


def test_a_person_is_asked_if_the_planner_does_not_know_either() -> None:
    job = job_with_policy(OnFailure.ASK)
    job.advance(Observations(ROLES))
    job.finish("a", "needs_input", needs="the number of the house")
    job.advance()
    job.resolve_needs(a=None)
    job.advance(Observations(ROLES))
    assert job.state.question

    job.reject("It is number 9.")
    job.advance(Observations(ROLES))

    assert job.handoffs["a.2"].feedback[-1].text == "It is number 9."


def test_only_the_steps_of_the_question_are_given_up() -> None:
    job = job_failed_by_all(OnFailure.ASK)
    job.finish("b", "failed", error="no")
    job.approve()
    job.advance(Observations(ROLES))

    assert job.step("a").is_released
    assert not job.step("b").is_released
    assert "b" in job.open_names, "it has its own second chances"


def test_a_retry_begins_with_all_chances() -> None:
    job = job_failed_by_all(OnFailure.ASK)
    job.approve()
    for step in ("b", "c", "d"):
        job.advance(observations_of(researcher=0, searcher=0))
        job.finish(step)
    job.advance(Observations(ROLES))
    job.review()
    job.advance()
    job.append(RetryRequested())

    assert (job.step("a").failures, job.step("a").tried, job.step("a").is_released) == (
        0,
        (),
        False,
    )
