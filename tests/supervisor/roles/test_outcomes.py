"""The events that follow from a planner's answer, to a request and to steps in need."""

from __future__ import annotations

from handoff_queue.shared.types.events import JobStatus, NeedsResolved
from handoff_queue.shared.types.handoff import ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan, Resolution, Resolutions
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.roles.input_requests import NeedsFormat
from handoff_queue.supervisor.roles.outcomes import earlier_results, outcome_of
from handoff_queue.supervisor.roles.planner import PlanFormat
from tests.doubles.handoffs import a_handoff, a_result
from tests.doubles.life import Life, planned
from tests.doubles.needs import a_helper

ANSWERED = Resolutions(resolutions=(Resolution(step=StepId("a"), answer="1999"),)).model_dump(
    mode="json"
)


def after_needs(*needs: str) -> NeedsResolved:
    """Return the event of the planner's answer to the last need. The earlier needs are already
    answered.
    """
    life = planned(a="", b="")
    for need in needs[:-1]:
        life.finishes("a", "needs_input", needs=need)
        life.goes_on()
        life.answers_needs(a="1999")
        life.goes_on()
    life.finishes("a", "needs_input", needs=needs[-1])
    handoff = a_handoff(
        assigned_to="planner", expected_output_format=dict(NeedsFormat(("a",)).schema)
    )
    known = {ref.digest for ref in earlier_results(handoff, life.state)}
    assert len(known) == len(needs), "no more is read than is held against each other"
    (event,), _ = outcome_of(handoff, life.state, a_result("planner", ANSWERED), "", life.words)
    assert isinstance(event, NeedsResolved)
    return event


def test_a_step_that_asks_again_in_other_words_for_what_was_answered_is_given_up() -> None:
    event = after_needs(
        "Which year does the licence change refer to?",
        "Please tell me the year of the licence change.",
    )

    assert (event.answered, event.given_up, event.repeats) == ((), ("a",), ("a",))


def test_a_step_that_asks_for_something_else_is_answered() -> None:
    event = after_needs("Which year does the licence change refer to?", "Who are the readers?")

    assert (event.answered, event.given_up, event.repeats) == (("a",), (), ())


def test_a_first_need_is_answered() -> None:
    assert after_needs("Which year?").answered == ("a",)


def test_what_was_made_of_a_plan_stands_with_the_answer() -> None:
    reading, life = PlanFormat(("generalist",), max_steps=1), Life()
    read = reading.read(
        '{"steps": [{"id": "a", "specialist": "chemist", "task": "Look."}]}', last_try=False
    )
    life.goes_on()
    handoff = a_handoff(assigned_to="planner", expected_output_format=dict(reading.schema))
    life.finishes("planner", output=read.output, notes=read.notes)
    planner = life.words.result(life.result_of("planner.1"))
    (made,), _ = outcome_of(handoff, life.state, planner, "Look.", life.words)
    life.keeps(Plan.of(read.output).to_json())
    life.happens(made)
    life.goes_on()
    life.finishes("a")
    life.goes_on()
    life.judges()
    life.goes_on()

    assert life.state.status is JobStatus.OK
    answer = assemble(life.state, JobStatus.OK, life.words, None)
    assert answer.notes == (
        "The plan: step a was meant for chemist, which is no specialist that is there: generalist takes it.",
    )


def test_a_need_that_a_helper_could_not_meet_may_still_be_answered() -> None:
    for status, answered in (("failed", ("a",)), ("ok", ())):
        life = planned(a="", b="")
        life.finishes("a", "needs_input", needs="Which year?")
        life.goes_on()
        life.answers_needs(a=a_helper("h"))
        life.goes_on()
        while "h" in life.out:
            life.finishes("h", status)
            life.goes_on()
        life.finishes("a", "needs_input", needs="Which year?")
        handoff = a_handoff(
            assigned_to="planner", expected_output_format=dict(NeedsFormat(("a",)).schema)
        )
        (event,), _ = outcome_of(handoff, life.state, a_result("planner", ANSWERED), "", life.words)
        assert isinstance(event, NeedsResolved)
        assert event.answered == answered


def test_what_finds_out_a_need_is_added_to_the_plan_and_waited_for() -> None:
    life = planned(a="", b="a")
    life.finishes("a", "needs_input", needs="Which year?")
    life.goes_on()
    said = Resolutions(resolutions=(Resolution(step=StepId("a"), by=a_helper("h")),)).model_dump(
        mode="json"
    )
    handoff = a_handoff(
        assigned_to="planner", expected_output_format=dict(NeedsFormat(("a",)).schema)
    )
    (event,), (text,) = outcome_of(handoff, life.state, a_result("planner", said), "", life.words)

    assert isinstance(event, NeedsResolved)
    assert [(one.id, one.depends_on, one.helpers) for one in event.changed] == [
        ("a", ("h",), ("h",))
    ]
    assert [one.id for one in event.added] == ["h"]
    assert event.plan == ref(text)
    assert [(step.id, step.depends_on) for step in Plan.from_json(text).steps] == [
        ("a", ("h",)),
        ("b", ("a",)),
        ("h", ()),
    ]
