"""Messages of users to the agents of a job: sending a message, and reading the sent messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.observability.redaction import without_credentials
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.store.user_messages import MAX_MESSAGES, Refusal
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import Conflict, UnknownJob, UserError
from handoff_queue.shared.types.events import RecordedEvent, UserMessageSent, UserMessageTaken
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import JobId, StepId, create_word
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import NAME_PATTERN
from handoff_queue.supervisor.client.argument_types import check_type
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.user_messages import (
    find_only_readers,
    find_open_readers,
    is_read_later,
)

MAX_MESSAGE_CHARS = 10_000
"""Most characters of a message. A longer text belongs in a document of a new job."""
MAX_TRIES = 100
"""Tries to store a message. After each try, new events may have ended the last reader."""
MAX_STEP_NAMES_CHARS = 1_000
"""Most characters of the names of steps in an error."""
MAX_CHARS_IN_A_NOTE = 200
"""Most characters of a message in a note."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that was stored."""

    message_id: str
    """The id of the message. Events name it."""
    version: int
    """The version of its event in the journal."""
    running: tuple[str, ...] = ()
    """The steps and the roles that run now. They take the message before their next turn."""
    is_redacted: bool = False
    """True if a part of the text looked like a credential and was replaced by `[redacted]`."""


def say(
    store: Store,
    job_id: JobId,
    text: str,
    step: str | None = None,
    key: str | None = None,
    actor: Actor | None = None,
) -> SentMessage:
    """Store a message to all agents of a job, or to the agents of one step.

    Args:
        key: idempotency key; None: each call is another message.

    Raises:
        UnknownJob: there is no such job.
        UserError: the text is empty or too long, the job has no such step, or no agent will read
            the message.
        Conflict: the key was used for another message of the job.
    """
    clean = without_credentials(_check_message_text(text))
    message_id = create_word()
    if key is not None:
        message_id = compute_digest(f"{job_id}\0{key}")[:16]
    step_id = None
    if step is not None:
        check_type("the step", step, str)
        step_id = StepId(step)
    may_be_stored = step_id is None or re.fullmatch(NAME_PATTERN, step_id) is not None
    state = None
    outcome: int | Refusal = Refusal.CHANGED
    for _ in range(MAX_TRIES):
        version = state.version if state else 0
        state = fold(job_id, state, store.journal.read(job_id, version))
        if state is None:
            raise UnknownJob.for_job(job_id)
        is_stored = any(message.message_id == message_id for message in state.messages)
        is_repeated = is_stored and may_be_stored
        if not is_repeated:  # a repeated call succeeds, also after the end of the readers
            _check_readers(state, step_id)
        event = UserMessageSent(
            message_id=message_id, text=make_ref(clean), step=step_id, actor=actor
        )
        readers = find_only_readers(state, step_id)
        outcome = store.user_messages.send(job_id, event, clean, state.version, readers)
        if outcome is not Refusal.CHANGED:
            break
    if isinstance(outcome, Refusal):
        raise _build_error(job_id, outcome)
    assert state is not None
    running = tuple(issued.step_id for issued in find_open_readers(state, step_id))
    return SentMessage(message_id, outcome, running, clean != text)


def _check_message_text(text: str) -> str:
    """Return the text.

    Raises:
        UserError: the text is not text, blank, too long, or not UTF-8.
    """
    check_type("the message", text, str)
    if not text.strip():
        raise UserError("the message is empty: write what the agents should do differently")
    if len(text) > MAX_MESSAGE_CHARS:
        raise UserError(
            f"the message has {len(text):,} characters: write at most {MAX_MESSAGE_CHARS:,}"
        )
    if has_lone_surrogate(text):
        raise UserError("the message is not UTF-8 text: convert it to UTF-8")
    return text


def _check_readers(state: JobState, step: StepId | None) -> None:
    """Check that an agent can still read a message.

    Raises:
        UserError: the job has ended or has no such step, or no agent can read the message.
    """
    job_id = state.job_id
    if state.ended or state.cancelled_by:
        raise _build_error(job_id, Refusal.ENDED)
    if step is not None and step not in state.steps:
        known = ", ".join(state.steps) or "none yet"
        raise UserError(
            f"{job_id} has no step {step!r:.60}: its steps are {known:.{MAX_STEP_NAMES_CHARS}}"
        )
    if step is not None:
        _check_is_no_child(state, step)
    if is_read_later(state, step):
        return
    if state.question is not None:
        raise UserError(
            f"{job_id} waits for an approval, and no agent runs after it: reject the"
            " question with your text as the note",
            command=f"handoff reject {job_id} --note TEXT",
        )
    if step is not None:
        raise UserError(
            f"step {step} of {job_id} has ended, and no assessor, replanner or synthesizer runs"
            " after it: retry the job from this step after its end",
            command=f"handoff retry {job_id} --from {step}",
        )
    _check_is_no_child(state, None)
    raise UserError(
        f"no agent of {job_id} will run any more: wait for its end, and submit a job that"
        " continues it, with the field after (--after)"
    )


def _check_is_no_child(state: JobState, step: StepId | None) -> None:
    """Raise UserError if a child job does the step, or any step (None), now. Its agents have
    their own journal.
    """
    for issued in state.open.values():
        if step in (None, issued.step_id) and issued.child is not None:
            child = issued.child.job_id
            raise UserError(
                f"child job {child} does step {issued.step_id}: send the message to {child}",
                command=f"handoff say {child} TEXT",
            )


def _build_error(job_id: JobId, refusal: Refusal) -> UserError:
    """Return the error for a message that was not stored."""
    match refusal:
        case Refusal.UNKNOWN:
            return UnknownJob.for_job(job_id)
        case Refusal.ENDED:
            return UserError(
                f"{job_id} has ended, so no agent will read a message: retry it, or submit a"
                " job that continues it, with the field after (--after)",
                command=f"handoff retry {job_id}",
            )
        case Refusal.FULL:
            return UserError(
                f"{job_id} has {MAX_MESSAGES} messages, the most that a job can have: wait for its"
                " end, and submit a job that continues it, with the field after (--after)"
            )
        case Refusal.OTHER:
            return Conflict(
                f"the idempotency key belongs to another message of {job_id}: use another key"
            )
        case Refusal.LAST_TURN:
            return UserError(
                f"the last agents of {job_id} are in their last turn: wait for its end, and submit"
                " a job that continues it, with the field after (--after)"
            )
        case Refusal.CHANGED:
            return UserError(f"{job_id} changes too fast: send the message again")


def list_messages(
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
                delivery = {"handoff_id": event.handoff_id, "turn": event.turn}
                messages[event.message_id]["taken"].append(delivery)
            case _:
                pass
    return tuple(messages.values())


def format_message(message: Mapping[str, Any]) -> str:
    """Return a message of `list_messages` with its recipients in one line."""
    to = f" to {message['step']}" if message["step"] else ""
    deliveries: list[str] = []
    for delivery in message["taken"]:
        deliveries.append(f"{delivery['handoff_id']} took it at turn {delivery['turn']}")
    recipients = ", ".join(deliveries) or "in the task of later agents"
    return f"message{to}: {' '.join(message['text'].split())} ({recipients})"


def build_missed_message_notes(state: JobState, texts: ResultTexts) -> tuple[str, ...]:
    """Return a note for each message that no agent of an ended job has seen. The reason may be that
    the only agent failed before its next turn.
    """
    if not state.ended:
        return ()
    notes: list[str] = []
    for message in state.messages:
        if message.taken or message.in_tasks:
            continue
        to = f" to {message.step}" if message.step else ""
        text = " ".join(texts.texts[message.text.digest].split())[:MAX_CHARS_IN_A_NOTE]
        notes.append(
            f"the job ended before an agent took the message{to}: {text} (a retry gives it to the"
            " agents that it starts)"
        )
    return tuple(notes)
