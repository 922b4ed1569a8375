"""What follows from a planner's answer to steps that need something."""

from __future__ import annotations

from shared.wire.events import NeedsResolved
from shared.wire.ids import StepId
from shared.wire.resolutions import Resolution, Resolutions
from supervisor.roles.needs import NeedsReading
from supervisor.roles.outcomes import asked_before, outcome_of
from tests.doubles.handoffs import a_handoff, a_result
from tests.doubles.life import planned

ANSWERED = Resolutions(resolutions=(Resolution(step=StepId("a"), answer="1999"),)).model_dump(mode="json")


def after_needs(*needs: str) -> NeedsResolved:
    """What the planner's answer to the last of these makes true; it has answered those before."""
    life = planned(a="", b="")
    for need in needs[:-1]:
        life.finishes("a", "needs_input", needs=need)
        life.goes_on()
        life.answers_needs(a="1999")
        life.goes_on()
    life.finishes("a", "needs_input", needs=needs[-1])
    handoff = a_handoff(assigned_to="planner", expected_output_format=dict(NeedsReading(("a",)).schema))
    known = {ref.digest for ref in asked_before(handoff, life.state)}
    assert len(known) == len(needs), "no more is read than is held against each other"
    (event,), _ = outcome_of(handoff, life.state, a_result("planner", ANSWERED), "", life.words)
    assert isinstance(event, NeedsResolved)
    return event


def test_a_step_that_asks_again_in_other_words_for_what_was_answered_is_given_up() -> None:
    event = after_needs("Which year does the licence change refer to?", "Please tell me the year of the licence change.")

    assert (event.answered, event.given_up, event.repeats) == ((), ("a",), ("a",))


def test_a_step_that_asks_for_something_else_is_answered() -> None:
    event = after_needs("Which year does the licence change refer to?", "Who are the readers?")

    assert (event.answered, event.given_up, event.repeats) == (("a",), (), ())


def test_a_first_need_is_answered() -> None:
    assert after_needs("Which year?").answered == ("a",)
