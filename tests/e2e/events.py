"""Flower's view of the fleet: Celery's `State`, fed with the events that the broker delivers."""

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

PROBE = "receiver-probe"


class FlowerView:
    """Current state of each task, as Flower would show it, and its earlier states."""

    def __init__(self) -> None:
        self._state = State()
        self._shown: defaultdict[str, list[str]] = defaultdict(list)
        self.has_probe = False

    def see(self, event: dict[str, Any]) -> None:
        self.has_probe = self.has_probe or event["type"] == PROBE
        self._state.event(event)
        if event["type"].startswith("task-"):
            self._shown[event["uuid"]].append(self._state.tasks[event["uuid"]].state)

    def states_of(self, job_id: JobId, handoff_id: str) -> list[str]:
        return self._shown[f"{job_id}:{handoff_id}"]

    def wait_for_state(self, job_id: JobId, handoff_id: str, state: str) -> Any:
        """Wait until the latest state of a task is `state`, and return the task.

        Raises:
            AssertionError: the task did not reach the state. The message gives its states.
        """
        uuid = f"{job_id}:{handoff_id}"
        try:
            wait_until(lambda: self.states_of(job_id, handoff_id)[-1:] == [state], expected=state)
        except AssertionError as error:
            raise AssertionError(
                f"{uuid} was shown as {self.states_of(job_id, handoff_id)}, and never as {state} in"
                " the end"
            ) from error
        return self._state.tasks[uuid]


@contextmanager
def watched_events(app: Celery) -> Iterator[FlowerView]:
    """Receive the fleet's events inside the block, and yield the view of its tasks."""
    view = FlowerView()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": view.see})
        thread = threading.Thread(
            target=lambda: receiver.capture(limit=None, timeout=None, wakeup=False),
            name="events",
            daemon=True,
        )
        thread.start()
        wait_until(lambda: _is_subscribed(app, view), expected="an event to be seen")
        yield view
        receiver.should_stop = True
        thread.join(10)


def _is_subscribed(app: Celery, view: FlowerView) -> bool:
    """Send a probe, and return whether the receiver has got any probe yet.

    Redis subscribes the receiver some time after the receiver reports that it consumes, and
    events before that are lost.
    """
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send(PROBE)
    return view.has_probe
