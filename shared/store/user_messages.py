"""Messages of users to the agents of a job. A message is an event and a payload, and it is stored
once for each id.
"""

from __future__ import annotations

from enum import StrEnum

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.payloads import payload_arguments
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import json_argument
from handoff_queue.shared.types.events import JobStatus, UserMessageSent
from handoff_queue.shared.types.ids import JobId

MOST_MESSAGES = 100
"""Most messages of a job. An agent that begins later has all these messages in its task."""


class Refusal(StrEnum):
    """Reason why a message was not stored."""

    UNKNOWN = "unknown"
    """There is no such job."""
    ENDED = "ended"
    """The job has ended, or is cancelled."""
    FULL = "full"
    """The job has `MOST_MESSAGES` messages."""
    OTHER = "other"
    """The id belongs to another message of the job."""


class UserMessages:
    """The messages of all jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, job_id: JobId, event: UserMessageSent, text: str) -> int | Refusal:
        """Append the event and store its text, at any version of the journal. Return the version
        of the event, or the reason why nothing was stored.

        A message that is sent again has the version of the first one.
        """
        open_statuses: list[str] = []
        for status in JobStatus:
            if not status.ended:
                open_statuses.append(status.value)
        arguments = [
            event.to_json(),
            event.message_id,
            event.text.digest,
            event.step or "",
            json_argument({"open": open_statuses}),
            MOST_MESSAGES,
            *payload_arguments([text]),
        ]
        answer = self._connection.script("say", [keys.job(job_id), keys.DUE], arguments)
        if answer[0] == b"ok":
            return int(answer[1])
        return Refusal(answer[0].decode())
