"""An event of another program breaks no page of Flower."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
from celery import Celery
from celery.events.receiver import EventReceiver
from celery.events.state import Task
from flower.events import Events, EventsState, PrometheusMetrics
from flower.inspector import Inspector
from flower.utils.tasks import SORT_KEYS, iter_tasks
from tornado.escape import url_escape, xhtml_escape

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.flower import (
    MAX_CHARS,
    MAX_NAMES,
    MAX_SERIES,
    check_events,
    check_replies,
    is_usable_reply,
    select_usable_event,
)
from handoff_queue.shared.settings.settings import Settings

pytestmark = pytest.mark.slow

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
OTHER_TYPES: list[Any] = [
    7,
    ["x"],
    {"x": 1},
    True,
    1e300,
    float("nan"),
    -1e300,
    "x" * 200_000,
    "\ud800",
]
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
    assert prometheus_client.generate_latest()
    for name in state.counter:
        assert url_escape(name)
    events = SimpleNamespace(state=state)
    for key in SORT_KEYS:
        for _, task in iter_tasks(events, sort_by=key, search="researcher"):
            task.as_dict()
        for _, task in iter_tasks(events, sort_by=f"-{key}"):
            assert task.as_dict()["uuid"]
            for value in task.as_dict().values():
                assert xhtml_escape(str(value)).encode() or not str(value)
    for worker in state.workers.values():
        assert worker.alive in (True, False)
        assert isinstance(sum(worker.loadavg or ()), int | float)


@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_a_hostile_event_breaks_no_page(number: int) -> None:
    state = EventsState()
    for event in ({**TASK, "uuid": "good"}, EVENTS[number], {**TASK, "uuid": "later"}):
        if clean := select_usable_event(event):
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
        assert select_usable_event(event) == without_none


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check events until the end of the test."""
    for owner, name in (
        (Events, "on_event"),
        (EventReceiver, "event_from_message"),
        (PrometheusMetrics, "observe_task"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    check_events()


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize(
    "field", ["uuid", "hostname", "name", "args", "kwargs", "result", "parent_id", "traceback"]
)
def test_flower_keeps_no_long_text(field: str) -> None:
    state = EventsState()
    keep(state, {**TASK, field: "x" * (MAX_CHARS + 1)})

    assert "x" * (MAX_CHARS + 1) not in str([task.as_dict() for task in state.tasks.values()])
    assert not {len(name) for name in state.counter} - set(range(MAX_CHARS + 1))


@pytest.mark.usefixtures("checked")
def test_flower_keeps_a_bounded_number_of_names() -> None:
    state = EventsState()
    for number in range(MAX_NAMES):
        keep(state, {**TASK, "uuid": f"{number}", "name": f"name{number}"})
        keep(state, {**TASK, "uuid": f"{number}", "hostname": f"host{number}"})

    assert len(state.counter) + len(state.task_types()) <= MAX_NAMES


@pytest.mark.usefixtures("checked")
def test_flower_has_a_bounded_number_of_time_series() -> None:
    metrics = EventsState().metrics
    before = len(list(metrics.events.collect()[0].samples))
    for number in range(MAX_SERIES + 100):
        metrics.observe_task(f"host{number}", TASK, Task(uuid="1", name="name"))

    after = len(list(metrics.events.collect()[0].samples))
    metrics.remove_workers({f"host{number}" for number in range(MAX_SERIES + 100)})
    assert after - before <= 2 * MAX_SERIES  # a counter has two samples for each combination


def keep(state: EventsState, event: dict[str, Any]) -> None:
    """Have Flower keep an event at once."""
    loop = SimpleNamespace(add_callback=lambda callback: callback())
    Events.on_event(SimpleNamespace(io_loop=loop, state=state), event)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("clock", [10**4_300 - 1, "x", -1, 1.5, float("nan"), None], ids=range(6))
def test_flower_takes_over_no_clock_that_it_cannot_write(clock: Any) -> None:
    """Python writes no number of more than 4,300 digits, so Flower could ask no worker again."""
    app = Celery(set_as_current=False)
    receiver = EventReceiver(None, app=app)

    _, event = receiver.event_from_message({**TASK, "clock": clock})

    assert event["clock"] == app.clock.value < 10


def test_an_event_without_a_type_leaves_flower_connected(redis_url: str) -> None:
    """kombu takes a KeyError for the loss of the connection. Flower would then connect again and
    again, and lose the events of a second each time.
    """
    app = make_app("test", redis_url, Settings(), ["known"])
    seen: list[str] = []
    with app.connection_for_read() as reader, app.connection_for_write() as writer:
        receiver = EventReceiver(
            reader, handlers={"*": lambda event: seen.append(event["type"])}, app=app
        )
        with receiver.consumer_context() as (connection, _, _):
            producer = writer.Producer(exchange=receiver.exchange, serializer="json")
            while not seen:  # the first drain subscribes
                for event in ({"hostname": "w@h"}, TASK):
                    producer.publish(event, routing_key="task.multi")
                with suppress(TimeoutError):
                    connection.drain_events(timeout=1)
    app.close()

    assert {*seen} == {TASK["type"]}


QUEUE = {
    "name": "researcher",
    "alias": None,
    "auto_delete": False,
    "binding_arguments": None,
    "durable": True,
    "exclusive": False,
    "no_ack": False,
    "queue_arguments": None,
    "routing_key": "researcher",
}
STATISTICS = {
    "total": {"specialist.researcher": 3},
    "pid": 7,
    "uptime": 12,
    "rusage": {"utime": 0.5, "stime": 0.1},
    "broker": {"hostname": "127.0.0.1"},
    "pool": {"max-concurrency": 1},
}
REPLIES: list[tuple[str, Any]] = [
    ("stats", STATISTICS),
    ("active_queues", [QUEUE]),
    ("registered", ["specialist.researcher"]),
    ("active", []),
    ("conf", {"error": "conf is refused"}),
]
NO_REPLIES: list[tuple[str, Any]] = [
    *((method, value) for method, _ in REPLIES for value in (7, "x", [7], {"x": 7}, ["\ud800"])),
    *(
        ("stats", {**STATISTICS, name: value})
        for name in STATISTICS
        if name != "pid"  # shown as it is
        for value in ("x", ["x"])
    ),
    *(("stats", {**STATISTICS, name: {"x": ["x"]}}) for name in ("total", "rusage")),
    ("active_queues", [{"name": "researcher"}]),
    ("registered", ["x"] * 200_000),
    ("active", [{"name": "x"}]),
]


@pytest.mark.parametrize(("method", "reply"), REPLIES, ids=range(len(REPLIES)))
def test_flower_keeps_the_reply_of_a_process(method: str, reply: Any) -> None:
    assert is_usable_reply(method, reply)


@pytest.mark.parametrize(("method", "reply"), NO_REPLIES, ids=range(len(NO_REPLIES)))
def test_flower_keeps_no_reply_that_breaks_the_page_of_a_process(
    monkeypatch: pytest.MonkeyPatch, method: str, reply: Any
) -> None:
    monkeypatch.setattr(Inspector, "_on_update", Inspector._on_update)
    check_replies()
    inspector = Inspector(None, None, 1.0)
    inspector._on_update("w@h", *REPLIES[0])

    inspector._on_update("w@h", method, reply)

    assert inspector.workers["w@h"].items() >= {"stats": STATISTICS}.items()
    assert method == "stats" or method not in inspector.workers["w@h"]
