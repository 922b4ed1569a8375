"""Put dead letters back into their queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handoff_queue.shared.store.dead_letters import DeadLetter, parse_handoff
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId, is_job_id
from handoff_queue.supervisor.client.job_lookup import get_job_info

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.handoff_publishing import Dispatcher


def put_back(store: Store, dispatcher: Dispatcher, letter: DeadLetter) -> None:
    """Repeat the message of a dead letter, and drop the letter.

    A letter that holds a job id becomes a new wake-up of the job. A letter that holds a
    handoff makes the sweeper publish the handoff again.

    Raises:
        UserError: see `Client.requeue_dead`.
    """
    handoff = parse_handoff(letter.body)
    if is_job_id(letter.body):
        if get_job_info(store, JobId(letter.body)).status.has_ended:
            raise UserError(f"{letter.body} has ended: drop its dead letter")
        dispatcher.wake(JobId(letter.body))
    elif handoff is not None:
        job_id, handoff_id, _ = handoff
        store.dead_letters.publish_again(job_id, handoff_id)
    else:
        raise UserError(f"letter {letter.id} holds no handoff, so it cannot be requeued: drop it")
    store.dead_letters.drop(letter)
