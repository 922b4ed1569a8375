"""Spans of Celery tasks, made from Celery's own signals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Celery, Task, signals
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor

from handoff_queue.shared.observability.otel.celery_spans import CelerySpans
from tests.shared.observability.otel.test_spans import Told

MESSAGE = "j-000000000001:a.1"


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    spans = CelerySpans(lambda _: None)
    spans.instrument(tracer_provider=made.provider)
    yield made
    spans.uninstrument()


@pytest.fixture
def task() -> Task:
    def nothing() -> None:
        """An empty task: its spans come from signals."""

    made: Task = Celery("traced", set_as_current=False).task(
        nothing, name="specialist.researcher", shared=False
    )
    return made


def running(task: Task, has_begun: threading.Event, may_end: threading.Event) -> bool:
    """A copy of the message, from Celery's signal before to the one after; whether its thread
    is in no span then.
    """
    task.push_request(id=MESSAGE, args=(), kwargs={})
    signals.task_prerun.send(sender=task, task_id=MESSAGE, task=task, args=(), kwargs={})
    has_begun.set()
    may_end.wait(30)
    signals.task_postrun.send(
        sender=task, task_id=MESSAGE, task=task, args=(), kwargs={}, retval=None, state="SUCCESS"
    )
    task.pop_request()
    return not trace.get_current_span().get_span_context().is_valid


def test_two_concurrent_copies_of_a_message_are_two_spans(
    told: Told, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, first_may_end, second_may_end = (threading.Event() for _ in range(4))
    with ThreadPoolExecutor(2) as threads:
        whole = threads.submit(running, task, first, first_may_end)
        first.wait(30)
        copy = threads.submit(running, task, second, second_may_end)
        second.wait(30)
        second_may_end.set()
        assert copy.result(30)
        assert len(told.named("run/")) == 1, "the other one goes on"
        first_may_end.set()
        assert whole.result(30)

    assert [(span.attributes or {})["messaging.message.id"] for span in told.named("run/")] == [
        MESSAGE,
        MESSAGE,
    ]
    assert caplog.messages == []


def test_tasks_of_the_host_have_no_spans(told: Told) -> None:
    def work() -> None:
        """Do nothing."""

    host = Celery("host", broker="memory://", set_as_current=False)
    host.conf.task_ignore_result = True
    task = host.task(work, name="host.work", shared=False)
    seen_within = []
    signals.before_task_publish.connect(
        lambda **_: seen_within.append(trace.get_current_span().get_span_context().is_valid),
        sender="host.work",
        weak=False,
    )

    task.delay()
    may_end = threading.Event()
    may_end.set()
    assert running(task, threading.Event(), may_end)
    signals.task_failure.send(sender=task, task_id=MESSAGE, exception=ValueError())

    assert told.named("") == []
    assert seen_within == [False]
    host.close()


def test_the_host_may_use_celerys_instrumentation_together_with_ours(told: Told) -> None:
    theirs = CeleryInstrumentor()  # type: ignore[no-untyped-call]

    assert not isinstance(theirs, CelerySpans)
    assert not theirs.is_instrumented_by_opentelemetry
