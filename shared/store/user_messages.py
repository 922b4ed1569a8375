"""Messages of users to the agents of a job. A message is an event and a payload, and it is stored
once for each id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.payloads import build_payload_arguments
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import encode_json
from handoff_queue.shared.trust.event_signatures import sign_events
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust
from handoff_queue.shared.types.events import OPEN_STATUSES, UserMessageSent
from handoff_queue.shared.types.ids import Digest, HandoffId, JobId, StepId

MAX_MESSAGES = 100
"""Most messages of a job. An agent that begins later has all these messages in its task."""


class Refusal(StrEnum):
    """Reason why a message was not stored."""

    UNKNOWN = "unknown"
    """There is no such job."""
    ENDED = "ended"
    """The job has ended, or is cancelled."""
    FULL = "full"
    """The job has `MAX_MESSAGES` messages."""
    OTHER = "other"
    """The id belongs to another message of the job."""
    LAST_TURN = "last_turn"
    """The only readers have begun their last turn."""
    CHANGED = "changed"
    """The journal has grown since the sender found a reader."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in the hash of its job."""

    message_id: str
    digest: Digest
    """Digest of its text."""
    at: float
    """Unix time in seconds."""
    step: StepId | None
    """The step whose agents get the message; None: all agents."""
    taken: tuple[tuple[HandoffId, int], ...]
    """The handoffs that took the message while they ran, each with the turn."""


def parse_stored_message(message_json: bytes, takers: bytes) -> StoredMessage:
    """Return a message.

    Args:
        message_json: JSON in the hash of the job.
        takers: JSON in the progress of the job; empty: no agent has taken the message.
    """
    fields = json.loads(message_json)
    return StoredMessage(
        message_id=fields["id"],
        digest=fields["digest"],
        at=fields["at"] / 1000,
        step=StepId(fields["step"]) if "step" in fields else None,
        taken=_parse_takers(takers),
    )


def _parse_takers(takers_json: bytes) -> tuple[tuple[HandoffId, int], ...]:
    """Return the handoffs that took a message, and their turns. A text of a worker that has no
    takers is empty.
    """
    try:
        takers: list[tuple[HandoffId, int]] = []
        for handoff_id, turn in json.loads(takers_json or b"[]"):
            takers.append((HandoffId(str(handoff_id)), int(turn)))
        return tuple(takers)
    except (TypeError, ValueError, RecursionError):
        return ()


class UserMessages:
    """The messages of all jobs."""

    def __init__(self, connection: Connection, trust: Trust = NO_TRUST) -> None:
        self._connection = connection
        self._trust = trust

    def send(
        self,
        job_id: JobId,
        event: UserMessageSent,
        text: str,
        checked: int | None = None,
        readers: Sequence[HandoffId] = (),
    ) -> int | Refusal:
        """Append the event and store its text. Return the version of the event, or the reason
        why nothing was stored.

        A message that is sent again has the version of the first one.

        Args:
            checked: version of the journal at which the sender found a reader. Only at this
                version a new message is stored. None: at any version.
            readers: open handoffs that are the only readers. Empty: there are others.
        """
        conditions = {"open": OPEN_STATUSES, "readers": list(readers), "version": checked}
        arguments = [
            sign_events(self._trust, job_id, [event])[0],
            event.message_id,
            event.text.digest,
            event.step or "",
            encode_json(conditions),
            MAX_MESSAGES,
            *build_payload_arguments(self._connection.sealing, job_id, [text]),
        ]
        answer = self._connection.run_script(
            "send_user_message", [keys.job(job_id), keys.DUE], arguments
        )
        if answer[0] == b"ok":
            return int(answer[1])
        return Refusal(answer[0].decode())
