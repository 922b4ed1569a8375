"""Messages of users to the agents of a job: their recipients, and the effect of their events.

An agent that runs when a message comes takes it before its next model call. An agent that begins
later has the message in its task. A message to one step is for the agents of that step. The
planner, the replanner, the assessor and the synthesizer take every message, because they judge or
use the work of all steps. The judge and the fact-checker decide by evidence alone.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.types.events import (
    AnswerMethod,
    HandoffIssued,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import TAKES_NO_MESSAGES, Role
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.answer import choose_method
from handoff_queue.supervisor.lifecycle.state import (
    AttemptFeedback,
    JobState,
    Phase,
    TakenMessage,
    UserMessage,
)

MAX_DELIVERIES_SHOWN = 20
MAX_CHARS_IN_A_BRIEF = 20_000
"""Most characters of all messages in the brief of a role. The newest messages come first."""


def apply_message_event(
    state: JobState, event: UserMessageSent | UserMessageTaken, version: int
) -> dict[str, Any]:
    """Return the changes after a message was sent or taken.

    Args:
        version: version of the event.
    """
    if isinstance(event, UserMessageSent):
        new_message = UserMessage(
            message_id=event.message_id, version=version, text=event.text, step=event.step
        )
        return {"messages": (*state.messages, new_message)}
    delivery = TakenMessage(handoff_id=event.handoff_id, turn=event.turn)
    messages: list[UserMessage] = []
    for message in state.messages:
        if message.message_id == event.message_id:
            messages.append(message.model_copy(update={"taken": (*message.taken, delivery)}))
        else:
            messages.append(message)
    return {"messages": tuple(messages)}


def apply_issue(state: JobState, event: HandoffIssued) -> tuple[UserMessage, ...]:
    """Return the messages after a handoff was issued, whose task has the messages for it."""
    if not state.messages or event.step_id in TAKES_NO_MESSAGES:
        return state.messages
    messages: list[UserMessage] = []
    for message in state.messages:
        if event.is_role_handoff or message.step in (None, event.step_id):
            messages.append(message.model_copy(update={"in_tasks": message.in_tasks + 1}))
        else:
            messages.append(message)
    return tuple(messages)


def list_message_texts(state: JobState, step_id: StepId) -> tuple[BlobRef, ...]:
    """Return the texts of the messages to the next attempt at a step."""
    texts: list[BlobRef] = []
    for message in state.messages:
        if message.step in (None, step_id):
            texts.append(message.text)
    return tuple(texts)


def list_remarks(state: JobState, step_id: StepId) -> tuple[AttemptFeedback, ...]:
    """Return the feedback for the next attempt at a step, and then the messages to it."""
    remarks = list(state.steps[step_id].remarks)
    for text in list_message_texts(state, step_id):
        remarks.append(AttemptFeedback(author="user", result=text))
    return tuple(remarks)


def is_read_later(state: JobState, step_id: StepId | None) -> bool:
    """Return whether an agent can still read a message to a step, or to all agents (None)."""
    return _has_later_readers(state, step_id) or bool(find_only_readers(state, step_id))


def find_only_readers(state: JobState, step_id: StepId | None) -> tuple[HandoffId, ...]:
    """Return the open handoffs that take a message to a step, or to all agents (None). Empty if
    an agent that begins later has the message in its task. A child job has its own messages.
    """
    if _has_later_readers(state, step_id):
        return ()
    return tuple(issued.handoff_id for issued in find_open_readers(state, step_id))


def find_open_readers(state: JobState, step_id: StepId | None) -> list[HandoffIssued]:
    """Return the open handoffs that take a message to a step, or to all agents (None)."""
    readers: list[HandoffIssued] = []
    for issued in state.open.values():
        is_asked = issued.is_role_handoff or step_id in (None, issued.step_id)
        if is_asked and issued.child is None and issued.step_id not in TAKES_NO_MESSAGES:
            readers.append(issued)
    return readers


def _has_later_readers(state: JobState, step_id: StepId | None) -> bool:
    """Return whether an agent that begins later will probably read a message."""
    if state.plan is None or _has_roles_to_come(state):
        return True
    open_steps = {issued.step_id for issued in state.open.values() if not issued.is_role_handoff}
    if step_id is None:
        return state.step_index.unsettled > len(open_steps)
    return not state.steps[step_id].is_settled and step_id not in open_steps


def _has_roles_to_come(state: JobState) -> bool:
    """Return whether a replanner, an assessor or a synthesizer will probably begin."""
    if state.phase is Phase.WORKING:
        has_review = (
            state.is_reviewed and not state.review_over and not state.has_open(Role.ASSESSOR)
        )
        is_replanned = state.mode is Mode.ADAPTIVE and state.step_index.unsettled > 0
        return has_review or is_replanned or _may_be_synthesized(state)
    if state.phase is Phase.SYNTHESIZING and not state.has_open(Role.SYNTHESIZER):
        return choose_method(state) is AnswerMethod.SYNTHESIZED
    return False


def _may_be_synthesized(state: JobState) -> bool:
    """Return whether a synthesizer may write the answer after the steps have ended."""
    if len(state.sinks) == 1 or state.plan is None:
        return False
    return state.submitted.answer_schema is not None or state.plan.synthesis is Synthesis.RECONCILE


def describe_recipients(message: UserMessage) -> str:
    """Return the recipients of a message, and the agents that have taken it."""
    to = "to all agents" if message.step is None else f"to step {message.step}"
    deliveries: list[str] = []
    for delivery in message.taken[:MAX_DELIVERIES_SHOWN]:
        deliveries.append(f"{delivery.handoff_id} took it at turn {delivery.turn}")
    return f"{to}; {', '.join(deliveries)}" if deliveries else to


def add_messages_to_request(request: str, messages: Sequence[tuple[UserMessage, str]]) -> str:
    """Return the request of a job with the messages that users have sent since.

    Args:
        messages: each message with its text, the oldest first.
    """
    if not messages:
        return request
    parts: list[str] = []
    left = MAX_CHARS_IN_A_BRIEF
    for message, text in reversed(messages):
        part = f"({describe_recipients(message)}) {text}"
        left -= len(part)
        if left < 0:
            break
        parts.insert(0, part)
    messages_text = "\n\n".join(parts)
    return f"{request}\n\nThe user has added since, as a part of the request:\n\n{messages_text}"
