"""The messages that users have sent to the agents of a job, for readers of its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handoff_queue.shared.types.events import RecordedEvent, UserMessageSent, UserMessageTaken


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
    how = ", ".join(taken) or "for the task of the next agents"
    return f"message{to}: {' '.join(message['text'].split())} ({how})"
