"""Publish again the message of a dead letter."""

from __future__ import annotations

from handoff_queue.shared.store.dead_letters import DeadLetter, handoff_in
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId, is_job_id
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.client.job_lookup import get_standing


def put_back(store: Store, dispatcher: Dispatcher, letter: DeadLetter) -> None:
    """Publish the message of a dead letter again, and drop the letter.

    Raises:
        UserError: see `Client.requeue_dead`.
    """
    if is_job_id(letter.body):
        if get_standing(store, JobId(letter.body)).status.ended:
            raise UserError(f"{letter.body} has ended meanwhile: its letter can only be dropped")
        dispatcher.wake(JobId(letter.body))
    elif named := handoff_in(letter.body):
        store.dead_letters.publish_again(named[0], named[1])
    else:
        raise UserError(
            f"letter {letter.id} is no message of ours, and there is nothing to try again: drop it"
        )
    store.dead_letters.drop(letter)
