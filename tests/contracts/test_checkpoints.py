"""Contract of every `CheckpointStore`.

`MAKERS` lists the implementations. Each entry is a function that takes a store and returns a
`StoredHandoff`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from handoff_queue.shared.agent.checkpoint_store import CallAnswer, CheckpointStore
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.store.tool_call_approvals import answer_call
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
    PromptReason,
    ToolCallStarted,
    ToolObserved,
    UserPrompted,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    ApprovalAwaited,
    Cancelled,
    Interrupted,
    LimitReached,
    MessagesWaiting,
)
from handoff_queue.shared.types.events import (
    AnsweredCall,
    Approved,
    CancelRequested,
    UserMessageSent,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, create_word
from handoff_queue.shared.types.usage import Usage
from tests.doubles.call_questions import a_question
from tests.doubles.jobs import a_job, claim, expire_lease, issue
from tests.doubles.memory_checkpoints import NO_MORE, MemoryCheckpoints


@dataclass(frozen=True, slots=True)
class StoredHandoff:
    """A claimed handoff of a job with a budget of 1,000 tokens, and functions that disturb it."""

    checkpoints: CheckpointStore
    claim_again: Callable[[], CheckpointStore]
    """Let the lease of the claim expire, and claim the handoff again."""
    cancel: Callable[[], None]
    """Cancel the job."""
    say: Callable[[str], None]
    """Send a message to the agents of the job."""
    approve: Callable[[str, int], None]
    """Approve the call with this id. The number is the version of its question in the journal."""


def in_memory(_store: Store) -> StoredHandoff:
    checkpoints = MemoryCheckpoints(most_tokens=1_000)
    return StoredHandoff(
        checkpoints,
        checkpoints.reopened,
        lambda: setattr(checkpoints, "interrupt_with", Cancelled("by the user")),
        lambda text: checkpoints.messages.append(UserPrompted(message_id=create_word(), text=text)),
        lambda call_id, _: checkpoints.answers.update({call_id: CallAnswer(is_approved=True)}),
    )


def in_the_store(store: Store) -> StoredHandoff:
    job_id = a_job(store, max_tokens=1_000)
    issue(store, job_id, "find.1")
    first = claim(store, job_id, "find.1")

    def claim_again() -> CheckpointStore:
        expire_lease(store, first)
        return claim(store, job_id, "find.1")

    def cancel() -> None:
        store.journal.append(job_id, CancelRequested(), {"cancelled": 1})

    def say(text: str) -> None:
        event = UserMessageSent(message_id=create_word(), text=make_ref(text))
        store.user_messages.send(job_id, event, text)

    def approve(call_id: str, asked: int) -> None:
        call = AnsweredCall(handoff_id=HandoffId("find.1"), call_id=call_id)
        approved = Approved(asked=asked, call=call)
        assert answer_call(store.connection, store.trust, job_id, approved, HandoffId("find.1"), [])

    return StoredHandoff(first, claim_again, cancel, say, approve)


MAKERS = [pytest.param(in_memory, id="memory"), pytest.param(in_the_store, id="store")]

REPLIED = ModelReplied(
    content=({"type": "tool_use", "id": "t1", "name": "look", "input": {"q": "é"}},),
    stop_reason="tool_use",
    usage=Usage(input_tokens=600, output_tokens=100),
    model="some-model",
)
PROMPTED = AgentPrompted(reason=PromptReason.EMPTY_ANSWER, text="go on")
EVERY_KIND: tuple[Checkpoint, ...] = (
    REPLIED,
    ToolCallStarted(tool_use_id="t1"),
    ToolObserved(tool_use_id="t1", text="found", is_error=True),
    PROMPTED,
    UserPrompted(message_id="0123456789abcdef", text="shorter"),
    ModelCallFailed(error="cut", usage=Usage(cost_microusd=None)),
)


@pytest.fixture(params=MAKERS)
def stored(request: pytest.FixtureRequest, store: Store) -> StoredHandoff:
    handoff: StoredHandoff = request.param(store)
    return handoff


def test_a_fresh_handoff_has_no_checkpoints(stored: StoredHandoff) -> None:
    assert stored.checkpoints.load_earlier_checkpoints() == ()


def test_the_next_claim_finds_every_checkpoint_in_order(stored: StoredHandoff) -> None:
    stored.checkpoints.reserve(WorstCase(700, 100, 0))
    stored.checkpoints.checkpoint(*EVERY_KIND[:2])
    for checkpoint in EVERY_KIND[2:]:
        stored.checkpoints.checkpoint(checkpoint)
    assert stored.claim_again().load_earlier_checkpoints() == EVERY_KIND


def test_a_waiting_reply_is_stored_before_the_next_write(stored: StoredHandoff) -> None:
    stored.checkpoints.reserve(WorstCase(700, 100, 0))
    stored.checkpoints.checkpoint(REPLIED, deferrable=True)
    stored.checkpoints.checkpoint(PROMPTED)
    assert stored.claim_again().load_earlier_checkpoints() == (REPLIED, PROMPTED)


def test_a_call_that_can_never_fit_the_budget_is_a_limit(stored: StoredHandoff) -> None:
    with pytest.raises(LimitReached) as reached:
        stored.checkpoints.reserve(WorstCase(900, 200, 0))
    assert (reached.value.level, reached.value.limit) == ("job", "max_tokens")
    assert str(reached.value).startswith(f"max_tokens: {NO_MORE}"), "it names the limit of the job"


def test_the_cost_of_a_reply_is_taken_from_the_budget(stored: StoredHandoff) -> None:
    stored.checkpoints.reserve(WorstCase(900, 100, 0))
    stored.checkpoints.checkpoint(REPLIED)
    with pytest.raises(LimitReached):
        stored.checkpoints.reserve(WorstCase(300, 100, 0))


def test_the_unused_part_of_a_reservation_is_free_again(stored: StoredHandoff) -> None:
    stored.checkpoints.reserve(WorstCase(900, 100, 0))
    stored.checkpoints.checkpoint(REPLIED)
    assert stored.checkpoints.reserve(WorstCase(200, 100, 0)) is None, "it need not wait"


def test_a_heartbeat_changes_nothing(stored: StoredHandoff) -> None:
    stored.checkpoints.heartbeat("thinking", "a draft")
    assert stored.claim_again().load_earlier_checkpoints() == ()


def test_after_a_cancel_nothing_more_is_written(stored: StoredHandoff) -> None:
    stored.cancel()
    with pytest.raises(Interrupted):
        stored.checkpoints.checkpoint(REPLIED)


def test_no_call_is_reserved_before_a_message_is_taken(stored: StoredHandoff) -> None:
    stored.say("shorter")
    with pytest.raises(MessagesWaiting):
        stored.checkpoints.reserve(WorstCase(700, 100, 0), takes_messages=True)

    (message,) = stored.checkpoints.take_messages(1)

    assert message.text == "shorter"
    assert stored.checkpoints.reserve(WorstCase(700, 100, 0), takes_messages=True) is None
    assert stored.claim_again().load_earlier_checkpoints() == (message,)


def test_an_agent_that_takes_no_messages_may_call(stored: StoredHandoff) -> None:
    stored.say("shorter")

    assert stored.checkpoints.reserve(WorstCase(700, 100, 0)) is None


def test_a_question_ends_the_claim_and_the_next_claim_has_the_answer(
    stored: StoredHandoff,
) -> None:
    stored.checkpoints.checkpoint(REPLIED, deferrable=True)
    with pytest.raises(ApprovalAwaited):
        stored.checkpoints.ask_about_calls([a_question("toolu_1"), a_question("toolu_2")], 60)
    with pytest.raises(Interrupted):
        stored.checkpoints.heartbeat("too late")
    first_question = 3  # after the submission and the issue
    stored.approve("toolu_1", first_question)

    again = stored.claim_again()

    assert again.load_earlier_checkpoints() == (REPLIED,)
    assert again.read_call_answers() == {"toolu_1": CallAnswer(is_approved=True)}
    with pytest.raises(ApprovalAwaited):
        again.ask_about_calls([a_question("toolu_2")], 60)


def test_a_call_with_an_answer_is_not_asked_about_again(stored: StoredHandoff) -> None:
    with pytest.raises(ApprovalAwaited):
        stored.checkpoints.ask_about_calls([a_question("toolu_1")], 60)
    stored.approve("toolu_1", 3)
    again = stored.claim_again()

    again.ask_about_calls([a_question("toolu_1")], 60)

    again.heartbeat("still here")
