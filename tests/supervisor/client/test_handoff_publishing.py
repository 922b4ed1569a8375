"""Published chords have fixed ids. A chord that is published twice counts once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, build_handoff_id
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.handoff_publishing import (
    SHOWN_CHARS,
    Dispatcher,
    OutgoingHandoff,
)
from tests.doubles.handoffs import JOB, a_handoff

MAX_PER_PUBLICATION_S = 3.0
"""Upper bound of one failed publication, in seconds. Its retries take 0.6 s if the connection is
refused at once.
"""
OWN_QUEUES = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", redis_url, Settings(), OWN_QUEUES)
    yield app
    app.close()


def outgoing(step: str, index: int, **changes: Any) -> OutgoingHandoff:
    handoff = a_handoff(step_id=StepId(step), handoff_id=build_handoff_id(step, 1), **changes)
    return OutgoingHandoff(handoff, handoff.to_json(), "g1", index)


def headers_in(queues: Any, queue: str) -> list[dict[str, Any]]:
    """Return the headers of the messages in a queue, oldest message first."""
    return [json.loads(message)["headers"] for message in reversed(queues.lrange(queue, 0, -1))]


def body_of(message: bytes) -> Any:
    from base64 import b64decode

    return json.loads(b64decode(json.loads(message)["body"]))


def test_a_group_is_a_chord_with_fixed_ids(app: Celery, queues: Any) -> None:
    Dispatcher(app).publish_group(JobId(JOB), [outgoing("a", 0), outgoing("b", 1)])

    sent = headers_in(queues, "researcher")
    assert [(header["id"], header["group"], header["group_index"]) for header in sent] == [
        (f"{JOB}:a.1", f"{JOB}:g1", 0),
        (f"{JOB}:b.1", f"{JOB}:g1", 1),
    ]


def test_a_single_handoff_is_published_as_a_chord(app: Celery, queues: Any) -> None:
    Dispatcher(app).publish_group(JobId(JOB), [outgoing("a", 0)])

    (message,) = queues.lrange("researcher", 0, -1)
    assert json.loads(message)["headers"]["group"] == f"{JOB}:g1"
    assert body_of(message)[2]["chord"]["task"] == "supervisor.advance"


def test_a_finished_chord_leaves_no_counter_in_redis(app: Celery, queues: Any) -> None:
    Dispatcher(app).publish_group(JobId(JOB), [outgoing("a", 0), outgoing("b", 1)])

    assert queues.keys("celery*") == []


def test_the_body_of_a_chord_is_advance_with_a_fixed_id(app: Celery, queues: Any) -> None:
    Dispatcher(app).publish_group(JobId(JOB), [outgoing("a", 0)])

    (message,) = queues.lrange("researcher", 0, -1)
    body = body_of(message)[2]["chord"]
    assert (body["task"], body["args"], body["immutable"]) == (
        "supervisor.advance",
        [JOB, []],
        True,
    )
    assert body["options"]["task_id"] == f"{JOB}:g1:fan-in"
    assert body["options"]["queue"] == SUPERVISOR_QUEUE


def test_a_republished_message_keeps_its_id_and_its_group_index(app: Celery, queues: Any) -> None:
    dispatcher = Dispatcher(app)
    dispatcher.publish_group(JobId(JOB), [outgoing("a", 0), outgoing("b", 1)])
    dispatcher.publish_again(JobId(JOB), [outgoing("b", 1)])

    again, _, first = reversed(queues.lrange("researcher", 0, -1))
    keep = ("id", "task", "group", "group_index", "argsrepr")
    assert [json.loads(first)["headers"][name] for name in keep] == [
        json.loads(again)["headers"][name] for name in keep
    ]
    assert body_of(first)[0] == body_of(again)[0] == [outgoing("b", 1).text]
    assert (
        body_of(first)[2]["chord"]["options"]["task_id"]
        == body_of(again)[2]["chord"]["options"]["task_id"]
    )


def test_a_republished_message_is_delivered_next(app: Celery, queues: Any) -> None:
    dispatcher = Dispatcher(app)
    dispatcher.publish_group(JobId(JOB), [outgoing("a", 0), outgoing("b", 1)])
    dispatcher.publish_again(JobId(JOB), [outgoing("lost", 2)])
    dispatcher.publish_group(JobId(JOB), [outgoing("c", 0)])

    with app.connection_for_read() as connection, connection.SimpleQueue("researcher") as queue:
        taken = [queue.get(timeout=5) for _ in range(4)]
        assert [message.headers["id"].partition(":")[2] for message in taken] == [
            "lost.1",
            "a.1",
            "b.1",
            "c.1",
        ]
        for message in taken:
            message.ack()


def test_the_publisher_waits_for_no_result(app: Celery, queues: Any) -> None:
    dispatcher = Dispatcher(app)
    dispatcher.publish_group(JobId(JOB), [outgoing("a", 0)])
    dispatcher.publish_again(JobId(JOB), [outgoing("a", 0)])
    dispatcher.wake(JobId(JOB))
    dispatcher.announce(JobId(JOB))

    assert queues.pubsub_channels() == []


def test_flower_shows_the_job_the_handoff_and_the_first_words_of_the_task(
    app: Celery, queues: Any
) -> None:
    Dispatcher(app).publish_group(
        JobId(JOB), [outgoing("a", 0, task_description="Find\n out " + "x" * 500)]
    )

    (shown,) = [headers["argsrepr"] for headers in headers_in(queues, "researcher")]
    assert shown.startswith(f"({JOB}, a.1, Find out xxx")
    assert len(shown) < SHOWN_CHARS + 40


def test_a_specialist_that_is_announced_later_has_a_queue(app: Celery, queues: Any) -> None:
    Dispatcher(app).publish_group(JobId(JOB), [outgoing("a", 0, assigned_to="astronomer")])

    assert [headers["task"] for headers in headers_in(queues, "astronomer")] == [
        "specialist.astronomer"
    ]


def test_wake_ups_name_the_job_and_the_suspect_handoffs(app: Celery, queues: Any) -> None:
    dispatcher = Dispatcher(app)
    dispatcher.wake(JobId(JOB), [HandoffId("a.1")])
    dispatcher.announce(JobId(JOB))

    (woken,) = queues.lrange(SUPERVISOR_QUEUE, 0, -1)
    assert body_of(woken)[0] == [JOB, ["a.1"]]
    assert [headers["argsrepr"] for headers in headers_in(queues, SUBMISSIONS_QUEUE)] == [
        f"({JOB})"
    ]


def test_every_message_names_its_purpose_including_the_wake_up_of_a_chord(
    app: Celery, queues: Any
) -> None:
    dispatcher, planner = (
        Dispatcher(app),
        a_handoff(
            assigned_to="planner",
            step_id=StepId("planner"),
            handoff_id=build_handoff_id("planner", 1),
        ),
    )
    dispatcher.publish_group(JobId(JOB), [outgoing("a", 0)])
    dispatcher.publish_again(JobId(JOB), [outgoing("b", 1)])
    dispatcher.send_role(planner, planner.to_json())
    dispatcher.wake(JobId(JOB))
    dispatcher.announce(JobId(JOB))

    sent = {
        queue: [headers[MEMBER_HEADER] for headers in headers_in(queues, queue)]
        for queue in ("researcher", *OWN_QUEUES)
    }
    assert sent == {
        "researcher": [f"{JOB}/b.1", f"{JOB}/a.1"],
        SUPERVISOR_QUEUE: [JOB],
        SUBMISSIONS_QUEUE: [JOB],
        ROLES_QUEUE: [f"{JOB}/planner.1"],
    }
    (message, _) = queues.lrange("researcher", 0, -1)
    assert body_of(message)[2]["chord"]["options"]["headers"] == {MEMBER_HEADER: JOB}


def test_a_role_goes_to_any_supervisor_with_a_free_slot(app: Celery, queues: Any) -> None:
    handoff = a_handoff(
        assigned_to="planner", step_id=StepId("planner"), handoff_id=build_handoff_id("planner", 1)
    )
    Dispatcher(app).send_role(handoff, handoff.to_json())

    assert [
        (headers["task"], headers["id"], headers["group"])
        for headers in headers_in(queues, ROLES_QUEUE)
    ] == [("specialist.planner", f"{JOB}:planner.1", None)]


def test_the_handoffs_of_a_group_keep_their_order_in_each_queue(app: Celery, queues: Any) -> None:
    Dispatcher(app).publish_group(
        JobId(JOB),
        [outgoing(f"s{n}", n, assigned_to=("analyst", "writer")[n % 2]) for n in range(20)],
    )

    assert [headers[MEMBER_HEADER] for headers in headers_in(queues, "writer")] == [
        f"{JOB}/s{n}.1" for n in range(1, 20, 2)
    ]


@pytest.mark.slow
def test_a_failed_publication_is_left_to_the_sweeper_soon(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = make_app("test", "redis://127.0.0.1:1/0", Settings(), OWN_QUEUES)
    app.conf.result_backend_transport_options = {
        "retry_policy": {"max_retries": 1, "interval_start": 0}
    }

    dispatcher, planner, began_at = (
        Dispatcher(app),
        a_handoff(assigned_to="planner"),
        time.monotonic(),
    )
    assert not dispatcher.publish_again(JobId(JOB), [outgoing("a", 0)])
    assert not dispatcher.send_role(planner, planner.to_json())
    dispatcher.wake(JobId(JOB))

    assert time.monotonic() - began_at < 3 * MAX_PER_PUBLICATION_S
    assert capsys.readouterr().out == "", "a command prints a job's id there"
    app.close()
