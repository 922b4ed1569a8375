"""An event of another program breaks no page of Flower."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.events.receiver import EventReceiver
from flower.events import Events, EventsState
from flower.utils.tasks import SORT_KEYS, iter_tasks

from handoff_queue.shared.broker.flower import check_events, usable_event

TASK = {
    "type": "task-received",
    "uuid": "j-0123456789ab/a.1",
    "hostname": "w@h",
    "timestamp": 1_790_000_000.0,
    "local_received": 1_790_000_000.0,
    "clock": 7,
    "name": "specialist.researcher",
    "args": "()",
    "kwargs": "{}",
    "retries": 0,
    "eta": None,
}
OTHER_TYPES: list[Any] = [7, ["x"], {"x": 1}, True, 1e300, float("nan"), -1e300, "x" * 200_000]
EVENTS: list[Any] = [
    *({**TASK, field: value} for field in TASK for value in OTHER_TYPES),
    *({**TASK, field: "x"} for field in ("received", "started", "runtime", "children", "worker")),
    *({name: value for name, value in TASK.items() if name != field} for field in TASK),
    *(
        {**TASK, "type": kind}
        for kind in ("task-", "task-x y", "worker-", "-", "other", "task-ready")
    ),
    {**TASK, "type": "task-succeeded", "runtime": "long", "result": {}},
    {**TASK, "type": "task-failed", "exception": 7, "traceback": []},
    {**TASK, "type": "worker-heartbeat", "active": "many", "loadavg": ["a"], "freq": "often"},
    {**TASK, "state": [], "ready": 1, "as_dict": 1, "__class__": "x"},
    *([], "x", None, 7),
]


def search_and_format(state: EventsState) -> None:
    """Do what the pages of Flower do with its tasks and workers."""
    events = SimpleNamespace(state=state)
    for key in SORT_KEYS:
        for _, task in iter_tasks(events, sort_by=key, search="researcher"):
            task.as_dict()
        for _, task in iter_tasks(events, sort_by=f"-{key}"):
            assert task.as_dict()["uuid"]
    for worker in state.workers.values():
        assert worker.alive in (True, False)
        assert isinstance(sum(worker.loadavg or ()), int | float)


@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_a_hostile_event_breaks_no_page(number: int) -> None:
    state = EventsState()
    for event in ({**TASK, "uuid": "good"}, EVENTS[number], {**TASK, "uuid": "later"}):
        if clean := usable_event(event):
            state.event(clean)

    search_and_format(state)

    assert {"good", "later"} <= {*state.tasks}


def test_an_event_of_this_project_keeps_its_fields() -> None:
    sent = {**TASK, "eta": "2026-11-28T12:00:00", "queue": "researcher", "root_id": "j-1"}
    ended = {
        **TASK,
        "type": "task-succeeded",
        "received": 1_790_000_000.0,
        "started": 1_790_000_001.0,
        "runtime": 1.5,
        "result": "'ok'",
    }
    heartbeat = {
        "type": "worker-heartbeat",
        "hostname": "w@h",
        "timestamp": 1.0,
        "local_received": 1.0,
        "clock": 2**40,
        "pid": 7,
        "utcoffset": -1,
        "freq": 2.0,
        "active": 1,
        "processed": 3,
        "loadavg": [0.1, 0.2, 0.3],
        "sw_ident": "py-celery",
        "sw_ver": "5",
        "sw_sys": "Linux",
    }

    for event in (sent, ended, heartbeat):
        without_none = {name: value for name, value in event.items() if value is not None}
        assert usable_event(event) == without_none


@pytest.mark.parametrize("clock", [10**4_300 - 1, "x", -1, 1.5, float("nan"), None], ids=range(6))
def test_flower_takes_over_no_clock_that_it_cannot_write(
    monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """Python writes no number of more than 4,300 digits, so Flower could ask no worker again."""
    monkeypatch.setattr(Events, "on_event", Events.on_event)
    monkeypatch.setattr(EventReceiver, "event_from_message", EventReceiver.event_from_message)
    check_events()
    app = Celery(set_as_current=False)
    receiver = EventReceiver(None, app=app)

    _, event = receiver.event_from_message({**TASK, "clock": clock})

    assert event["clock"] == app.clock.value < 10
