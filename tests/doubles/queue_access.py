"""Publish handoffs to a specialist's queue, and take its messages as a worker does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery

from handoff_queue.shared.store.fair_queue import FIRST_HEADER, MEMBER_HEADER
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import issue
from tests.doubles.sweep_states import QUEUE


@contextmanager
def queue_consumer(app: Celery) -> Iterator[Any]:
    """Yield a consumer of the queue, whose `get` returns the next message."""
    with app.connection_for_read() as connection, connection.SimpleQueue(QUEUE) as queue:
        yield queue


def send(app: Celery, store: Store, job_id: JobId, *handoff_ids: str, again: bool = False) -> None:
    """Issue and publish handoffs of a job. `again`: with the priority of a repeated handoff."""
    issue(store, job_id, *handoff_ids, group=f"g-{handoff_ids[0]}")
    for handoff_id in handoff_ids:
        headers: dict[str, Any] = {MEMBER_HEADER: f"{job_id}/{handoff_id}"} | (
            {FIRST_HEADER: True} if again else {}
        )
        app.send_task(
            "specialist.x", args=[handoff_id], queue=QUEUE, headers=headers, ignore_result=True
        )


def step_of(message: Any) -> str:
    return str(message.headers[MEMBER_HEADER].partition("/")[2])
