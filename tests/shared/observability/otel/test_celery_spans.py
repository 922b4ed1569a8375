"""Spans of Celery tasks are made from Celery's signals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Celery, Task, signals
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor

from handoff_queue.shared.observability.otel.celery_spans import CelerySpans
from tests.shared.observability.otel.test_spans import RecordedTelemetry

MESSAGE = "j-000000000001:a.1"


@pytest.fixture
def recorded_telemetry() -> Iterator[RecordedTelemetry]:
    telemetry = RecordedTelemetry()
    spans = CelerySpans(lambda _: None)
    spans.instrument(tracer_provider=telemetry.provider)
    yield telemetry
    spans.uninstrument()


@pytest.fixture
def task() -> Task:
    def nothing() -> None:
        """Do nothing. The spans come from signals."""

    traced_task: Task = Celery("traced", set_as_current=False).task(
        nothing, name="specialist.researcher", shared=False
    )
    return traced_task


def run_message(task: Task, has_begun: threading.Event, may_end: threading.Event) -> bool:
    """Send the signals of one run of the message. Return whether the thread is in no span
    afterwards.
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
    recorded_telemetry: RecordedTelemetry, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, first_may_end, second_may_end = (threading.Event() for _ in range(4))
    with ThreadPoolExecutor(2) as threads:
        whole = threads.submit(run_message, task, first, first_may_end)
        first.wait(30)
        copy = threads.submit(run_message, task, second, second_may_end)
        second.wait(30)
        second_may_end.set()
        assert copy.result(30)
        assert len(recorded_telemetry.named("run/")) == 1, "the other one goes on"
        first_may_end.set()
        assert whole.result(30)

    assert [
        (span.attributes or {})["messaging.message.id"] for span in recorded_telemetry.named("run/")
    ] == [
        MESSAGE,
        MESSAGE,
    ]
    assert caplog.messages == []


def test_tasks_of_the_host_have_no_spans(recorded_telemetry: RecordedTelemetry) -> None:
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
    assert run_message(task, threading.Event(), may_end)
    signals.task_failure.send(sender=task, task_id=MESSAGE, exception=ValueError())

    assert recorded_telemetry.named("") == []
    assert seen_within == [False]
    host.close()


def test_the_host_may_use_celerys_instrumentation_together_with_ours(
    recorded_telemetry: RecordedTelemetry,
) -> None:
    celerys = CeleryInstrumentor()  # type: ignore[no-untyped-call]

    assert not isinstance(celerys, CelerySpans)
    assert not celerys.is_instrumented_by_opentelemetry
