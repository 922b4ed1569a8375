"""Every task ends in a way that Celery's pools support, and the process detects a lost slot."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.trace import build_tracer
from celery.worker import state as worker_state

from handoff_queue.shared.broker.task_outcome import register
from handoff_queue.shared.broker.worker_slots import Slots
from handoff_queue.shared.types.errors import StoreUnavailable


class UncaughtByExceptException(BaseException):
    """Exception that no `except Exception` catches."""


@pytest.fixture
def app() -> Celery:
    return Celery("test", broker="memory://", backend="disabled", set_as_current=False)


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        UncaughtByExceptException(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_celery_is_notified_of_every_end_of_a_task(app: Celery, error: BaseException) -> None:
    def body(_task: object, _text: object) -> str:
        raise error

    register(app, "test.task", body)
    trace = build_tracer("test.task", app.tasks["test.task"], app=app)

    outcome = trace("t1", ("a message",), {}, {"id": "t1"})

    assert outcome.info.state == "IGNORED"


def test_an_error_of_a_task_is_celerys(app: Celery) -> None:
    def body(_task: object, _text: object) -> str:
        raise StoreUnavailable("away")

    register(app, "test.task", body)
    trace = build_tracer("test.task", app.tasks["test.task"], app=app)

    assert trace("t1", ("a message",), {}, {"id": "t1"}).info.state == "FAILURE"


def test_celery_checks_a_messages_arguments_against_the_bodys_signature(app: Celery) -> None:
    def body(_task: object, _text: object) -> str:
        return ""

    register(app, "test.task", body)

    with pytest.raises(TypeError):
        app.tasks["test.task"].__header__("one", "two")


THREADS: Any = SimpleNamespace(uses_semaphore=False)


@pytest.fixture
def request_of_t1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Celery count the task `t1` as running."""
    monkeypatch.setattr(worker_state, "active_requests", [SimpleNamespace(id="t1")])


class TestLostSlots:
    pytestmark = pytest.mark.usefixtures("request_of_t1")

    def test_a_task_that_celery_counts_and_nothing_runs_has_lost_its_slot(self) -> None:
        slots = Slots()

        assert [slots.count_lost_slots(THREADS), slots.count_lost_slots(THREADS)] == [0, 1]

    def test_a_task_that_runs_keeps_its_slot(self) -> None:
        slots = Slots()
        with slots.count_as_running("t1"):
            assert [slots.count_lost_slots(THREADS), slots.count_lost_slots(THREADS)] == [0, 0]

    def test_a_task_that_runs_long_after_its_deadline_has_lost_its_slot(self) -> None:
        slots = Slots()
        with slots.count_as_running("t1"):
            slots.set_time_left("t1", -3_600)
            assert [slots.count_lost_slots(THREADS), slots.count_lost_slots(THREADS)] == [0, 1]

    def test_tasks_in_other_processes_are_left_to_celery(self) -> None:
        slots, prefork = Slots(), SimpleNamespace(uses_semaphore=True)

        assert [slots.count_lost_slots(prefork), slots.count_lost_slots(prefork)] == [0, 0]
