"""Publish the messages of clients and supervisors: chords of handoffs, repeated messages and
wake-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from handoff_queue.shared.broker.celery_app import declare_queues
from handoff_queue.shared.broker.gil_yielding import with_pauses
from handoff_queue.shared.broker.message_publisher import (
    ChordPart,
    TaskMessage,
    build_signature,
    publish,
    publish_each,
    wake_up,
)
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.observability.trace_ids import JobSpan
from handoff_queue.shared.store.encryption_at_rest import PLAIN, Sealing
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import JOB, SUBMISSIONS_QUEUE, get_queue, get_task
from handoff_queue.shared.types.step import HIDDEN_TITLE

SHOWN_CHARS = 60
"""Most characters of a task description in Flower and in logs."""
_REVOKED: Mapping[str, Any] = {"terminated": False, "signum": None, "expired": False}
"""Fields of the event `task-revoked`."""

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class OutgoingHandoff:
    """A handoff to publish, with its place in its chord."""

    handoff: AgentHandoff
    text: str
    """The stored JSON of the handoff."""
    group: str
    """Name of the chord within the job."""
    index: int
    """Place in the chord, from 0."""


def build_task_id(job_id: JobId, handoff_id: HandoffId) -> str:
    """Return the Celery task id of a handoff. A search in Flower finds it by the job or the
    step.
    """
    return f"{job_id}:{handoff_id}"


class Dispatcher:
    """Publishes messages with one Celery app.

    The task id of a handoff depends only on the job and the handoff. A handoff whose message
    is published twice still runs once.
    """

    def __init__(self, app: Celery, trust: Trust = NO_TRUST, sealing: Sealing = PLAIN) -> None:
        """Publish with this app.

        Args:
            trust: the keys of this process, which sign the handoffs.
            sealing: encrypts the messages of tenants with a key.
        """
        self._app = app
        self._trust = trust
        self._sealing = sealing

    def close(self) -> None:
        """Close the connections to the broker."""
        self._app.close()

    def publish_group(self, job_id: JobId, outgoing: Sequence[OutgoingHandoff]) -> None:
        """Publish a chord: these handoffs, with `supervisor.advance` as its body.

        The messages are the same as those of `chord(header)(body)`. Celery's canvas would also
        store the size of the chord in the backend, and subscribe to results that no worker sends.
        The store knows the size already (`shared/broker/task_outcome.py`).
        """
        self._try_to_send(lambda: self._publish(job_id, outgoing), job_id)

    def publish_again(self, job_id: JobId, outgoing: Sequence[OutgoingHandoff]) -> bool:
        """Publish handoffs again whose message was lost or whose worker died.

        Return False if the broker did not take all messages. The ids and the places in the
        chords stay the same. The messages go to the front of their queues, because they have
        waited before.
        """
        return self._try_to_send(lambda: self._publish(job_id, outgoing, is_repeat=True), job_id)

    def send_role(self, handoff: AgentHandoff, text: str) -> bool:
        """Publish a handoff of a role for any supervisor with a free slot.

        Return False if the broker did not take the message.
        """

        def send() -> None:
            publish(self._app, self._build_task_message(handoff, text))

        return self._try_to_send(send, handoff.job_id)

    def wake(self, job_id: JobId, suspects: Sequence[HandoffId] = ()) -> None:
        """Wake a supervisor to evaluate the job.

        Args:
            suspects: handoffs that may be lost.
        """
        self._try_to_send(lambda: publish(self._app, wake_up(job_id, suspects)), job_id)

    def tell_dropped(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> None:
        """Show dropped handoffs as revoked in Flower. Otherwise Flower shows RETRY without end.

        Outside a worker, nothing is sent.
        """
        tasks = [
            {"uuid": build_task_id(job_id, handoff_id), **_REVOKED} for handoff_id in handoff_ids
        ]
        self._tell(job_id, "task-revoked", tasks)

    def tell_ended(self, end: JobSpan) -> None:
        """Show the end of a job in Flower, as a separate task `supervisor.job`.

        Outside a worker, nothing is sent.
        """
        task_fields: dict[str, Any] = {
            "uuid": f"{end.job_id}:end-{end.retries + 1}",
            "name": JOB,
            "received": end.started_at,
            "started": end.started_at,
        }
        if end.is_failed:
            event = "task-failed"
            task_fields |= {
                "exception": f"failed: see `handoff result {end.job_id}`",
                "traceback": "",
            }
        elif end.status == JobStatus.CANCELLED:
            event = "task-revoked"
            task_fields |= _REVOKED
        else:
            event = "task-succeeded"
            runtime = max(0.0, end.ended_at - end.started_at)
            task_fields |= {"result": repr(end.status), "runtime": runtime}
        self._tell(end.job_id, event, [task_fields])

    def _tell(self, job_id: JobId, event: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Send an event for each task to Flower. A failure has no effect on the job."""
        send = getattr(self._app, "send_event", None)  # see `WorkerConsumer.update_strategies`
        if send is None:
            return
        try:
            for fields in tasks:
                send(event, **fields)
        except Exception as error:  # noqa: BLE001 - whatever the broker's client raises
            log.warning(
                "cannot send an event", job_id=job_id, task_event=event, why=type(error).__name__
            )

    def announce(self, job_id: JobId) -> None:
        """Publish the first wake-up of a new job."""
        self.announce_each([job_id])

    def announce_each(self, job_ids: Sequence[JobId]) -> None:
        """Publish the first wake-ups of many jobs."""
        self._try_to_send(
            lambda: publish_each(self._app, _iterate_first_wake_ups(job_ids)), *job_ids
        )

    def _try_to_send(self, send: Callable[[], None], job_id: JobId, *others: JobId) -> bool:
        """Send messages of these jobs. Return False if the broker did not take them all: the store
        has the work, and a sweeper publishes it again.
        """
        try:
            with get_telemetry().within(job_id):
                send()
        except (OperationalError, *self._app.backend.connection_errors) as error:
            more = {"others": len(others)} if others else {}
            log.warning(
                "message not sent, the sweeper sends it again",
                job_id=job_id,
                why=type(error).__name__,
                **more,
            )
            return False
        return True

    def _publish(
        self, job_id: JobId, outgoing: Sequence[OutgoingHandoff], *, is_repeat: bool = False
    ) -> None:
        """Publish the messages.

        Args:
            is_repeat: put them in front of later messages.
        """
        queues: set[str] = set()
        fan_ins: dict[str, Mapping[str, Any]] = {}
        for item in outgoing:
            queues.add(get_queue(item.handoff.assigned_to))
            if item.group not in fan_ins:
                fan_in = wake_up(job_id, task_id=f"{job_id}:{item.group}:fan-in")
                fan_ins[item.group] = build_signature(fan_in)
        declare_queues(self._app, queues)
        messages: list[TaskMessage] = []
        for item in with_pauses(outgoing):
            part = ChordPart(f"{job_id}:{item.group}", item.index, fan_ins[item.group])
            messages.append(
                self._build_task_message(item.handoff, item.text, part, is_first=is_repeat)
            )
        publish_each(self._app, messages)

    def _build_task_message(
        self,
        handoff: AgentHandoff,
        text: str,
        part: ChordPart | None = None,
        *,
        is_first: bool = False,
    ) -> TaskMessage:
        """Return the Celery message of a handoff. A sealed message shows no words of its task.

        Args:
            text: the handoff as JSON.
            part: its part of a chord.
            is_first: whether the message goes in front of the waiting messages of its queue.
        """
        task = " ".join(handoff.task_description.split())
        if len(task) > SHOWN_CHARS:
            task = task[: SHOWN_CHARS - 1] + "…"
        job_id, handoff_id = handoff.job_id, handoff.handoff_id
        message = self._sealing.seal_message(job_id, handoff_id, text)
        if message != text:
            task = HIDDEN_TITLE
        return TaskMessage(
            task=get_task(handoff.assigned_to),
            task_id=build_task_id(job_id, handoff_id),
            queue=get_queue(handoff.assigned_to),
            args=(message,),
            visible_args=f"({job_id}, {handoff_id}, {task})",
            member=f"{job_id}/{handoff_id}",
            signature=self._trust.sign_handoff(handoff.assigned_to, text),
            is_first=is_first,
            part=part,
        )


def _iterate_first_wake_ups(job_ids: Sequence[JobId]) -> Iterator[TaskMessage]:
    for job_id in job_ids:
        with get_telemetry().within(job_id):
            yield wake_up(job_id, queue=SUBMISSIONS_QUEUE)
