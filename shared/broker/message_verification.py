"""Verification of a handoff's message on receipt: its JSON, its encryption, its agent, and the
signature of the supervisor that issued it. `shared.trust.signatures` has the cryptography.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery.exceptions import Reject

from handoff_queue.shared.broker.attempt_outcome import TaskFails, TaskWaits
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.keyring import Right
from handoff_queue.shared.types.errors import MalformedMessage, StoreError, UntrustedMessage
from handoff_queue.shared.types.handoff import AgentHandoff

log = get_log(__name__)

MAX_FOREIGN_CHARS = 10_000
"""Characters of an argument that is not a text, in a dead letter."""


def parse_and_verify_handoff(
    store: Store, agent: str, text: object, signature: object
) -> tuple[AgentHandoff, str]:
    """Return the handoff of a message, and its text.

    Args:
        agent: agent of the task that got the message.
        text: the only argument of the task.
        signature: header of the message.

    Raises:
        TaskFails: the message is now a dead letter.
        TaskWaits: another version of our code may be able to read the text.
        Reject: the store does not answer; the message goes back to its queue.
    """
    handoff, handoff_text = _parse_handoff(store, agent, text)
    _check_signature(store, agent, handoff, handoff_text, signature)
    return handoff, handoff_text


def _parse_handoff(store: Store, agent: str, text: object) -> tuple[AgentHandoff, str]:
    """Return the handoff of a message, and its text.

    Raises:
        TaskFails: the text is not a handoff for this agent; it is now a dead letter.
        TaskWaits: another version of our code may be able to read the text.
        Reject: the store does not answer; the message goes back to its queue.
    """
    try:
        if not isinstance(text, str):
            raise MalformedMessage("a handoff must be one JSON text")
        handoff_text = store.connection.sealing.open_message(text)
        handoff = AgentHandoff.from_json(handoff_text)
        if handoff.assigned_to != agent:
            raise MalformedMessage(f"a handoff for {handoff.assigned_to} came to {agent}")
        return handoff, handoff_text
    except MalformedMessage as error:
        reason = str(error)
        body = text if isinstance(text, str) else repr(text)[:MAX_FOREIGN_CHARS]
        with _put_back_without_store(agent):
            is_dead = store.dead_letters.add_unreadable(agent, reason, body)
        log.warning(
            "a message became a dead letter" if is_dead else "kept for another version",
            agent=agent,
            why=reason,
        )
        if is_dead:
            raise TaskFails(f"dead letter: {reason}") from error
        raise TaskWaits(f"kept for another version: {reason}") from error


def _check_signature(
    store: Store, agent: str, handoff: AgentHandoff, text: str, signature: object
) -> None:
    """Check that a supervisor signed the handoff. Its message otherwise becomes a dead letter, and
    the handoff still waits for the signed message.

    Raises:
        TaskFails: the message is a dead letter.
        Reject: the store does not answer; the message goes back to its queue.
    """
    if not store.trust.is_on:
        return
    try:
        store.trust.check(Right.HANDOFF, signature, text, codes=True)
    except UntrustedMessage as error:
        reason = f"a handoff that no supervisor signed: {error}"
        with _put_back_without_store(agent):
            store.refuse(handoff.job_id, agent, f"{handoff.handoff_id}: {reason}", text)
        log.warning("a message became a dead letter", agent=agent, why=reason)
        raise TaskFails(f"dead letter: {reason}") from error


@contextmanager
def _put_back_without_store(agent: str) -> Iterator[None]:
    """Store a dead letter in the block.

    Raises:
        Reject: the store does not answer; the message goes back to its queue.
    """
    try:
        yield
    except StoreError as error:
        log.exception("cannot store a dead letter", agent=agent)
        raise Reject(str(error), requeue=True) from error
