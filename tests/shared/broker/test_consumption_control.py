"""A worker that skips a queue polls Redis often, because a blocking read covers a fixed list of
queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from celery.worker import WorkController

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.consumer import READ_TIMEOUT_S, ConsumptionControl
from handoff_queue.shared.settings.settings import Settings

USUAL_S = 1


@pytest.fixture
def consumer(redis_url: str) -> Iterator[Any]:
    """Yield the consumer of a Celery worker that has just connected, on two queues."""
    app: Celery = make_app("test", redis_url, Settings(), ["one", "two"])
    consumer = WorkController(app=app, hostname="test@here", pool_cls="solo").consumer
    with app.connection_for_read() as connection:
        consumer.connection, consumer.hub = connection, None
        consumer.task_consumer = app.amqp.TaskConsumer(connection)
        consumer.task_consumer.consume()
        yield consumer
    app.close()


def attach_control(
    consumer: Any, may_take: Callable[[str], bool], *, resumes_quickly: bool = True
) -> ConsumptionControl:
    taking = ConsumptionControl()
    taking.attach(consumer, ["one", "two"], may_take, resumes_quickly=resumes_quickly)
    consumer.perform_pending_operations()
    return taking


def poll_interval_s(consumer: Any) -> float:
    """Return the seconds that the consumer waits for a message before it polls Redis again."""
    return float(consumer.task_consumer.channel.brpop_timeout)


def test_a_consumer_of_all_its_queues_waits_as_long_as_a_stock_celery_worker(consumer: Any) -> None:
    attach_control(consumer, bool)

    assert poll_interval_s(consumer) == USUAL_S


def test_a_consumer_with_a_skipped_queue_polls_again_soon(consumer: Any) -> None:
    attach_control(consumer, lambda queue: queue != "two")

    assert poll_interval_s(consumer) == READ_TIMEOUT_S
    assert not consumer.task_consumer.consuming_from("two")


def test_without_urgency_the_consumer_does_not_poll_often(consumer: Any) -> None:
    attach_control(consumer, lambda queue: queue != "two", resumes_quickly=False)

    assert poll_interval_s(consumer) == USUAL_S
    assert not consumer.task_consumer.consuming_from("two")


def test_a_consumer_of_all_queues_again_waits_as_long_as_before(consumer: Any) -> None:
    left_out = {"two"}
    changing = attach_control(consumer, lambda queue: queue not in left_out)
    assert poll_interval_s(consumer) == READ_TIMEOUT_S
    left_out.clear()
    changing.schedule_update()
    consumer.perform_pending_operations()

    assert poll_interval_s(consumer) == USUAL_S
    assert consumer.task_consumer.consuming_from("two")
