"""The events that follow from a planner's answer to a request and to needs."""

from __future__ import annotations

from handoff_queue.shared.types.events import HandoffIssued, JobStatus, NeedsResolved, PlanMade
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Patch, Plan, Resolution, Resolutions
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from handoff_queue.supervisor.roles.planner import PlanFormat
from handoff_queue.supervisor.roles.role_events import build_outcome, list_earlier_results
from tests.doubles.handoffs import a_handoff, a_result
from tests.doubles.input_resolutions import an_input_step
from tests.doubles.simulated_job import SimulatedJob, a_plan, finish_steps, planned

ANSWERED = Resolutions(resolutions=(Resolution(step=StepId("a"), answer="1999"),)).model_dump(
    mode="json"
)


def last_need_resolved(*needs: str) -> NeedsResolved:
    """Return the event of the planner's answer to the last need. The earlier needs are answered."""
    job = planned(a="", b="")
    for need in needs[:-1]:
        job.finish("a", "needs_input", needs=need)
        job.advance()
        job.resolve_needs(a="1999")
        job.advance()
    job.finish("a", "needs_input", needs=needs[-1])
    handoff = a_handoff(
        assigned_to="planner", expected_output_format=dict(NeedsFormat(("a",)).schema)
    )
    known = {ref.digest for ref in list_earlier_results(handoff, job.state)}
    assert len(known) == len(needs), "no more is read than is held against each other"
    (event,), _ = build_outcome(handoff, job.state, a_result("planner", ANSWERED), "", job.texts)
    assert isinstance(event, NeedsResolved)
    return event


def test_a_step_that_rewords_an_answered_need_is_given_up() -> None:
    event = last_need_resolved(
        "Which year does the licence change refer to?",
        "Please tell me the year of the licence change.",
    )

    assert (event.answered, event.given_up, event.repeats) == ((), ("a",), ("a",))


def test_a_step_with_a_new_need_is_answered() -> None:
    event = last_need_resolved(
        "Which year does the licence change refer to?", "Who are the readers?"
    )

    assert (event.answered, event.given_up, event.repeats) == (("a",), (), ())


def test_a_first_need_is_answered() -> None:
    assert last_need_resolved("Which year?").answered == ("a",)


def test_changes_to_a_plan_are_in_its_answer() -> None:
    reading, job = PlanFormat(("generalist",), max_steps=1), SimulatedJob()
    read = reading.read(
        '{"steps": [{"id": "a", "specialist": "chemist", "task": "Look."}]}', last_try=False
    )
    job.advance()
    handoff = a_handoff(assigned_to="planner", expected_output_format=dict(reading.schema))
    job.finish("planner", output=read.output, notes=read.notes)
    planner = job.texts.get_result(job.result_of("planner.1"))
    (event,), _ = build_outcome(handoff, job.state, planner, "Look.", job.texts)
    job.store_text(Plan.from_value(read.output).to_json())
    job.append(event)
    job.advance()
    job.finish("a")
    job.advance()
    job.review()
    job.advance()

    assert job.state.status is JobStatus.OK
    answer = assemble(job.state, JobStatus.OK, job.texts, None)
    assert answer.notes == (
        (
            "The plan: step a was meant for chemist, which is not an available specialist:"
            " generalist takes it."
        ),
    )


def test_the_specialist_reads_the_request_in_a_task_that_asks_for_it() -> None:
    reading, job = PlanFormat(("generalist",), max_steps=1), SimulatedJob()
    read = reading.read(
        '{"steps": [{"id": "a", "specialist": "generalist", "task": "{request}"}]}',
        last_try=False,
    )
    job.advance()
    handoff = a_handoff(assigned_to="planner", expected_output_format=dict(reading.schema))
    job.finish("planner", output=read.output)
    planner = job.texts.get_result(job.result_of("planner.1"))

    _, (text,) = build_outcome(handoff, job.state, planner, "Compare A with B.", job.texts)

    assert Plan.from_json(text).steps[0].task == "Compare A with B."


def test_a_need_that_a_helper_could_not_meet_may_still_be_answered() -> None:
    for status, answered in (("failed", ("a",)), ("ok", ())):
        job = planned(a="", b="")
        job.finish("a", "needs_input", needs="Which year?")
        job.advance()
        job.resolve_needs(a=an_input_step("h"))
        job.advance()
        while "h" in job.open_names:
            job.finish("h", status)
            job.advance()
        job.finish("a", "needs_input", needs="Which year?")
        handoff = a_handoff(
            assigned_to="planner", expected_output_format=dict(NeedsFormat(("a",)).schema)
        )
        (event,), _ = build_outcome(
            handoff, job.state, a_result("planner", ANSWERED), "", job.texts
        )
        assert isinstance(event, NeedsResolved)
        assert event.answered == answered


def test_an_input_step_is_added_to_the_plan_and_awaited() -> None:
    job = planned(a="", b="a")
    job.finish("a", "needs_input", needs="Which year?")
    job.advance()
    resolutions = Resolutions(
        resolutions=(Resolution(step=StepId("a"), by=an_input_step("h")),)
    ).model_dump(mode="json")
    handoff = a_handoff(
        assigned_to="planner", expected_output_format=dict(NeedsFormat(("a",)).schema)
    )
    (event,), (text,) = build_outcome(
        handoff, job.state, a_result("planner", resolutions), "", job.texts
    )

    assert isinstance(event, NeedsResolved)
    assert [(outline.id, outline.depends_on, outline.helpers) for outline in event.changed] == [
        ("a", ("h",), ("h",))
    ]
    assert [outline.id for outline in event.added] == ["h"]
    assert event.plan == make_ref(text)
    assert [(step.id, step.depends_on) for step in Plan.from_json(text).steps] == [
        ("a", ("h",)),
        ("b", ("a",)),
        ("h", ()),
    ]


PLAN_OF_TWO = a_plan(find="", send="find").model_dump(mode="json")


def job_without_review(result: HandoffResult, *acting: str, mode: Mode = Mode.TEAM) -> SimulatedJob:
    """Return a job without a review whose planner has this result."""
    job = SimulatedJob(is_reviewed=False, mode=mode)
    job.acting = frozenset(acting)
    job.advance()
    handoff = a_handoff(
        assigned_to="planner",
        expected_output_format=dict(PlanFormat(("generalist", "researcher"), 3).schema),
    )
    job.finish("planner")
    (event,), texts = build_outcome(handoff, job.state, result, "Go.", job.texts, acting)
    assert isinstance(event, PlanMade)
    for text in (*texts, result.to_json()):
        job.store_text(text)
    job.append(event)
    job.advance()
    return job


def test_a_team_without_a_review_goes_from_its_last_step_to_its_answer() -> None:
    job = job_without_review(a_result("planner", PLAN_OF_TWO))
    finish_steps(job, "find")
    finish_steps(job, "send")

    assert (job.state.status, job.state.rounds) == (JobStatus.OK, ())
    assert "assessor" not in {issued.assigned_to for issued in job.events(HandoffIssued)}


def test_the_plan_for_a_failed_planner_has_no_review_either() -> None:
    job = job_without_review(a_result("planner", status=ResultStatus.FAILED, error="No plan."))

    assert not job.state.is_reviewed


def test_a_plan_with_a_step_that_acts_after_other_steps_is_reviewed_in_any_case() -> None:
    plan = a_plan(find="", send="find")
    send = plan.steps[1].model_copy(update={"specialist": "writer"})
    plan = plan.model_copy(update={"steps": (plan.steps[0], send)})
    job = job_without_review(a_result("planner", plan.model_dump(mode="json")), "writer")
    finish_steps(job, "find")

    assert job.open_names == {"assessor"}


def test_a_step_that_acts_and_is_added_later_waits_for_a_review_in_any_case() -> None:
    plan = a_plan(find="").model_dump(mode="json")
    job = job_without_review(a_result("planner", plan), "writer", mode=Mode.ADAPTIVE)
    finish_steps(job, "find")
    assert job.open_names == {"replanner"}
    send = Step(id=StepId("send"), specialist="writer", task="Send.", depends_on=(StepId("find"),))
    job.patch_plan(Patch(add=(send,)))
    job.advance()

    assert job.open_names == {"assessor"}
