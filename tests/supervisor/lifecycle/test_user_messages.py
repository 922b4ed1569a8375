"""Messages of users change no decision. Each agent that begins later has them in its task."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import UserMessageSent, UserMessageTaken
from handoff_queue.shared.types.ids import HandoffId, StepId, create_word
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.lifecycle.decide import decide
from handoff_queue.supervisor.lifecycle.state import TakenMessage
from handoff_queue.supervisor.lifecycle.user_messages import (
    MAX_CHARS_IN_A_BRIEF,
    add_messages_to_request,
    find_only_readers,
    is_read_later,
)
from tests.doubles.jobs import issued_event
from tests.doubles.simulated_job import SimulatedJob, finish_steps, planned

SHORTER = "Make it shorter."


def say(job: SimulatedJob, text: str = SHORTER, step: str | None = None) -> str:
    """Send a message, and return its id."""
    message_id = create_word()
    named = StepId(step) if step else None
    job.append(UserMessageSent(message_id=message_id, text=job.store_text(text), step=named))
    return message_id


def feedback_for(job: SimulatedJob, handoff_id: str) -> list[tuple[str, str]]:
    return [(item.author, item.text) for item in job.handoffs[handoff_id].feedback]


def test_a_message_changes_no_decision() -> None:
    job = planned(a="", b="a")
    before = decide(job.state, job.observations(), job.now)
    say(job)

    assert decide(job.state, job.observations(), job.now) == before


def test_the_state_says_which_agent_took_a_message_at_which_turn() -> None:
    job = planned(a="", b="")
    message_id = say(job)
    job.append(UserMessageTaken(message_id=message_id, handoff_id=HandoffId("a.1"), turn=3))

    (message,) = job.state.messages
    assert message.taken == (TakenMessage(handoff_id=HandoffId("a.1"), turn=3),)


def test_a_step_that_begins_later_has_the_message_in_its_task() -> None:
    job = planned(a="", b="a")
    say(job)
    finish_steps(job, "a")

    assert feedback_for(job, "b.1") == [("user", SHORTER)]
    assert feedback_for(job, "a.1") == []


def test_a_message_to_one_step_reaches_no_other_step() -> None:
    job = planned(a="", b="a", c="a")
    say(job, step="c")
    finish_steps(job, "a")

    assert feedback_for(job, "b.1") == []
    assert feedback_for(job, "c.1") == [("user", SHORTER)]


def test_the_next_attempt_at_a_step_has_its_messages_again() -> None:
    """The next attempt is a new conversation, which does not contain the message."""
    job = planned(a="")
    say(job, step="a")
    finish_steps(job, "a")
    job.review(a="It is wrong.")
    job.advance()

    assert feedback_for(job, "a.2") == [("assessor", "It is wrong."), ("user", SHORTER)]


def test_the_assessor_gets_the_message_to_a_step_that_has_ended() -> None:
    job = planned(a="", b="")
    job.finish("a")
    say(job, step="a")
    finish_steps(job, "b")

    assert job.open_names == {"assessor"}
    (message,) = job.state.messages
    assert message.in_tasks == 1


@pytest.mark.parametrize("step", ["a", None])
def test_a_message_is_read_while_its_step_runs_or_a_review_follows(step: str | None) -> None:
    job = planned(a="")
    named = StepId(step) if step else None
    assert is_read_later(job.state, named)
    job.finish("a")
    assert is_read_later(job.state, named), "the assessor reads it"


def test_without_a_later_agent_a_message_has_no_reader() -> None:
    job = planned(a="")
    finish_steps(job, "a")
    assert is_read_later(job.state, None), "the assessor may still take it"
    assert is_read_later(job.state, StepId("a")), "the review is not over"
    job.review()

    assert not is_read_later(job.state, None)
    assert not is_read_later(job.state, StepId("a"))


def test_an_open_agent_is_the_only_reader_if_no_agent_begins_later() -> None:
    job = planned(a="", b="")
    assert find_only_readers(job.state, None) == (), "a review follows"
    finish_steps(job, "a")
    finish_steps(job, "b")
    job.review()
    assert job.state.open == {}
    job.append(issued_event("synthesizer.1", "synthesizer", None))

    assert find_only_readers(job.state, None) == ("synthesizer.1",)
    assert find_only_readers(job.state, StepId("a")) == ("synthesizer.1",)


def test_an_open_assessor_is_the_only_reader_of_a_message_to_a_step_that_has_ended() -> None:
    job = planned(a="")
    finish_steps(job, "a")

    assert find_only_readers(job.state, StepId("a")) == ("assessor.1",)


def test_an_assessor_that_runs_is_not_a_later_reader_of_an_adaptive_job() -> None:
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(a="")
    job.advance()
    finish_steps(job, "a")
    assert job.open_names == {"replanner"}
    assert find_only_readers(job.state, StepId("a")) == (), "a review follows"
    job.patch_plan()
    job.advance()

    assert find_only_readers(job.state, StepId("a")) == ("assessor.1",)


def test_a_judge_reads_no_message() -> None:
    job = planned(a="")
    finish_steps(job, "a")
    job.review()
    job.append(issued_event("judge.1", "judge", None))

    assert job.state.open
    assert not is_read_later(job.state, None)


def test_the_request_in_a_brief_has_the_messages_in_order() -> None:
    job = planned(a="")
    first, second = say(job, "first", "a"), say(job, "second")
    job.append(UserMessageTaken(message_id=first, handoff_id=HandoffId("a.1"), turn=2))
    messages = [(message, job.payloads[message.text.digest]) for message in job.state.messages]

    text = add_messages_to_request("Compare things.", messages)

    assert second in [message.message_id for message, _ in messages]
    assert text.startswith("Compare things.\n\nThe user has added since")
    assert text.endswith("(to step a; a.1 took it at turn 2) first\n\n(to all agents) second")


def test_the_newest_messages_fit_into_a_brief() -> None:
    job = planned(a="")
    for letter in "abc":
        say(job, letter * 9_000)
    messages = [(message, job.payloads[message.text.digest]) for message in job.state.messages]

    text = add_messages_to_request("Compare things.", messages)

    assert len(text) < MAX_CHARS_IN_A_BRIEF + 200
    assert "bbb" in text
    assert "ccc" in text
    assert "aaa" not in text
