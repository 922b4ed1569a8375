"""What Flower makes of the fleet's events: Celery's own state of the cluster, fed with what
really comes over the wire.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.events.state import State

from handoff_queue.shared.types.ids import JobId
from tests.waiting import wait_until

BEGUN = "watching-begun"


class Watched:
    """Every task as Flower would show it now, and as it has shown it before."""

    def __init__(self) -> None:
        self._state = State()
        self._shown: defaultdict[str, list[str]] = defaultdict(list)
        self.has_begun = False

    def see(self, event: dict[str, Any]) -> None:
        self.has_begun = self.has_begun or event["type"] == BEGUN
        self._state.event(event)
        if event["type"].startswith("task-"):
            self._shown[event["uuid"]].append(self._state.tasks[event["uuid"]].state)

    def shown(self, job_id: JobId, handoff_id: str) -> list[str]:
        return self._shown[f"{job_id}:{handoff_id}"]

    def becomes(self, job_id: JobId, handoff_id: str, state: str) -> Any:
        """The task, once it is shown in this state. Fails if it never is."""
        uuid = f"{job_id}:{handoff_id}"
        try:
            wait_until(lambda: self.shown(job_id, handoff_id)[-1:] == [state], what=state)
        except AssertionError as error:
            raise AssertionError(
                f"{uuid} was shown as {self.shown(job_id, handoff_id)}, and never as {state} in the end"
            ) from error
        return self._state.tasks[uuid]


@contextmanager
def watching(app: Celery) -> Iterator[Watched]:
    """Sees all events from here on."""
    watched = Watched()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": watched.see})
        thread = threading.Thread(
            target=lambda: receiver.capture(limit=None, timeout=None, wakeup=False),
            name="events",
            daemon=True,
        )
        thread.start()
        wait_until(lambda: _is_heard(app, watched), what="an event to be seen")
        yield watched
        receiver.should_stop = True
        thread.join(10)


def _is_heard(app: Celery, watched: Watched) -> bool:
    """Redis subscribes the receiver some time after the receiver says that it consumes. Earlier
    events are lost.
    """
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send(BEGUN)
    return watched.has_begun
