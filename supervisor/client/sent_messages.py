"""The messages that users have sent to the agents of a job, for readers of its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handoff_queue.shared.types.events import RecordedEvent, UserMessageSent, UserMessageTaken
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState

MOST_CHARS_IN_A_NOTE = 200
"""Most characters of a message in a note."""


def messages_in(
    events: Sequence[RecordedEvent], payloads: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return the messages in a journal, oldest first, each with the agents that took it."""
    messages: dict[str, dict[str, Any]] = {}
    for recorded in events:
        match event := recorded.event:
            case UserMessageSent():
                messages[event.message_id] = {
                    "message_id": event.message_id,
                    "at": recorded.at,
                    "by": event.actor.name if event.actor else None,
                    "step": event.step,
                    "text": payloads[event.text.digest],
                    "taken": [],
                }
            case UserMessageTaken() if event.message_id in messages:
                taken = {"handoff_id": event.handoff_id, "turn": event.turn}
                messages[event.message_id]["taken"].append(taken)
            case _:
                pass
    return tuple(messages.values())


def message_line(message: Mapping[str, Any]) -> str:
    """Return a message of `messages_in` with its recipients in one line."""
    to = f" to {message['step']}" if message["step"] else ""
    taken: list[str] = []
    for delivery in message["taken"]:
        taken.append(f"{delivery['handoff_id']} took it at turn {delivery['turn']}")
    how = ", ".join(taken) or "in the task of later agents"
    return f"message{to}: {' '.join(message['text'].split())} ({how})"


def missed_messages(state: JobState, texts: ResultTexts) -> tuple[str, ...]:
    """Return a note for each message that no agent of an ended job has seen, for example because
    the only agent failed before its next turn.
    """
    if not state.ended:
        return ()
    notes: list[str] = []
    for message in state.messages:
        if message.taken or message.in_tasks:
            continue
        to = f" to {message.step}" if message.step else ""
        text = " ".join(texts.texts[message.text.digest].split())[:MOST_CHARS_IN_A_NOTE]
        notes.append(
            f"the job ended before an agent took the message{to}: {text} (a retry gives it to the"
            " agents that it starts)"
        )
    return tuple(notes)
