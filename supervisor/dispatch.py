"""Everything that the supervisor publishes: chords of handoffs, single ones again, and wake-ups for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from celery import Celery
from celery.canvas import Signature
from kombu.exceptions import BatchPublishError, OperationalError

from shared.broker import tell_chord_size
from shared.celery_app import declare_queues
from shared.wire.handoff import AgentHandoff
from shared.wire.ids import HandoffId, JobId
from shared.wire.names import ADVANCE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE, queue_of, task_of

SHOWN_CHARS = 60
"""Of a task, in Flower and in logs."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One handoff to be published: the bytes that the ledger knows, and its place in its chord."""

    handoff: AgentHandoff
    text: str
    group: str
    index: int
    group_size: int = 0
    """How many are in that chord; 0: it is in none."""


def task_id_of(job_id: JobId, handoff_id: HandoffId) -> str:
    """What Celery and Flower call an attempt: found by searching for the job or the step."""
    return f"{job_id}:{handoff_id}"


class Dispatcher:
    """Publishes on one Celery app. All ids are fixed by job and handoff: published twice, a chord's body runs once."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def publish_group(self, job_id: JobId, outgoing: Sequence[Outgoing]) -> None:
        """A chord: these handoffs, then `supervisor.advance`.

        Put together by hand, message for message what `chord(header)(body)` sends, for two reasons: Celery's canvas tells the backend the
        chord's size only with its last message, and it subscribes to a result of every handoff, which nobody sends and nobody cancels.
        """
        with self._left_to_the_sweeper(job_id):
            self._app.backend.set_chord_size(self._group_id(job_id, outgoing[0].group), len(outgoing))
            self._send_all(job_id, outgoing)

    def publish_again(self, job_id: JobId, outgoing: Sequence[Outgoing]) -> None:
        """Messages that were lost, or whose workers were: with the same ids and the same place in their chords."""
        with self._left_to_the_sweeper(job_id):
            for group, size in {item.group: item.group_size for item in outgoing if item.group_size}.items():
                tell_chord_size(self._app, self._group_id(job_id, group), size)
            self._send_all(job_id, outgoing)

    def think(self, handoff: AgentHandoff, text: str) -> None:
        """A role's handoff, to any supervisor that has a slot."""
        with self._left_to_the_sweeper(handoff.job_id):
            self._signature(Outgoing(handoff, text, "", 0)).apply_async()

    def wake(self, job_id: JobId, suspects: Sequence[HandoffId] = (), *, remembered: bool = False) -> None:
        """Have some supervisor look at the job. `suspects`: handoffs that something may be wrong with. `remembered`: the ledger knows
        of this wake-up, and wants to hear that it was taken.
        """
        with self._left_to_the_sweeper(job_id):
            self._advance(job_id, suspects, SUPERVISOR_QUEUE if remembered else "").apply_async()

    def announce(self, job_id: JobId) -> None:
        """The first wake-up of a new job, which the ledger remembers since its submission."""
        with self._left_to_the_sweeper(job_id):
            self._advance(job_id, (), SUBMISSIONS_QUEUE).set(queue=SUBMISSIONS_QUEUE).apply_async()

    @contextmanager
    def _left_to_the_sweeper(self, job_id: JobId) -> Iterator[None]:
        """What is to be done stands in the ledger already: what cannot be sent is as good as lost, and a sweeper sends it again."""
        try:
            yield
        except (OperationalError, BatchPublishError, *self._app.backend.connection_errors) as error:
            log.warning("left to the sweeper", job_id=job_id, why=type(error).__name__)

    def _send_all(self, job_id: JobId, outgoing: Sequence[Outgoing]) -> None:
        """In one round trip."""
        declare_queues(self._app, {queue_of(item.handoff.assigned_to) for item in outgoing})
        bodies = {name: self._body(job_id, name) for name in {item.group for item in outgoing}}
        with self._app.producer_or_acquire() as producer, producer.batch():
            for item in outgoing:
                group_id, body = self._group_id(job_id, item.group), bodies[item.group]
                self._signature(item).apply_async(group_id=group_id, group_index=item.index, chord=body, producer=producer)

    def _advance(self, job_id: JobId, suspects: Sequence[HandoffId], remembered_in: str = "") -> Signature:
        shown = f"({job_id}{', ' + ' '.join(suspects) if suspects else ''})"
        return self._app.signature(
            ADVANCE,
            args=(job_id, list(suspects), *([remembered_in] if remembered_in else [])),
            immutable=True,
            queue=SUPERVISOR_QUEUE,
            ignore_result=True,
            argsrepr=shown,
            kwargsrepr="{}",
        )

    def _body(self, job_id: JobId, name: str) -> Signature:
        return self._advance(job_id, ()).set(task_id=f"{job_id}:{name}:fan-in")

    def _signature(self, item: Outgoing) -> Signature:
        handoff = item.handoff
        shown = " ".join(handoff.task_description.split())
        shown = shown if len(shown) <= SHOWN_CHARS else shown[: SHOWN_CHARS - 1] + "…"
        return self._app.signature(
            task_of(handoff.assigned_to),
            args=(item.text,),
            queue=queue_of(handoff.assigned_to),
            task_id=task_id_of(handoff.job_id, handoff.handoff_id),
            ignore_result=True,  # or the publisher subscribes to a result that nobody sends, for as long as it lives
            argsrepr=f"({handoff.job_id}, {handoff.handoff_id}, {shown})",
            kwargsrepr="{}",
        )

    def _group_id(self, job_id: JobId, name: str) -> str:
        return f"{job_id}:{name}"
