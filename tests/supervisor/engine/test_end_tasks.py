"""The task at a job's end is a message of stock Celery. Each repeat has the same id."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection
from structlog.testing import capture_logs

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.host_celery_tasks import check_transport
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import EndTaskTried, JobEnded, JobStatus
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.supervisor.client.celery_signatures import parse_end_task
from handoff_queue.supervisor.engine.end_tasks import DEAD_LETTER_QUEUE, NOT_SET, EndTasks
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.lifecycle.job_end import WEBHOOK_BACKOFF_S
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.jobs import a_job

SETTINGS = Settings(offline=True)
SIGNATURE = {"task": "host.notify", "args": [7], "kwargs": {"order": "A"}}
PASSWORD = "canary-of-a-broker-5519"


def ended_state(store: Store, library: PayloadCache, **signature: Any) -> JobState:
    """Return an ended job with this task."""
    job_id = a_job(store)
    store.journal.append(job_id, JobEnded(status=JobStatus.PARTIAL, reason="its time was over"))
    state = StateCache(store.journal).load(job_id)
    assert state is not None
    text = parse_end_task({**SIGNATURE, **signature}).to_json()
    library.remember([text], job_id)
    submitted = state.submitted.model_copy(update={"on_end": make_ref(text)})
    return state.model_copy(update={"submitted": submitted})


@pytest.fixture
def library(store: Store) -> PayloadCache:
    return PayloadCache(store)


def end_tasks(
    store: Store,
    library: PayloadCache,
    redis_url: str,
    broker: str | None,
    allowed: tuple[str, ...] = ("host.*",),
) -> EndTasks:
    app = make_app("supervisor", redis_url, SETTINGS, ())
    return EndTasks(store, library, app, broker, allowed)


def last_attempt(store: Store, state: JobState) -> EndTaskTried:
    event = store.journal.read(state.job_id)[-1].event
    assert isinstance(event, EndTaskTried)
    return event


def messages(url: str, queue: str) -> Iterator[Any]:
    """Yield the messages of a queue as stock kombu reads them."""
    with Connection(url) as connection, connection.SimpleQueue(queue) as messages:
        for _ in range(messages.qsize()):
            message = messages.get_nowait()
            message.ack()
            yield message


def test_the_message_is_one_of_stock_celery_with_the_end_before_the_arguments(
    store: Store, library: PayloadCache, redis_url: str
) -> None:
    state = ended_state(store, library)
    end_tasks(store, library, redis_url, redis_url).send(state, 1)

    (message,) = messages(redis_url, "celery")
    args, kwargs, _ = message.decode()
    end = {"job_id": state.job_id, "status": "partial", "reason": "its time was over"}
    assert (args, kwargs) == ([end, 7], {"order": "A"})
    assert message.headers["task"] == "host.notify"
    assert message.headers["id"] == message.properties["correlation_id"]
    assert last_attempt(store, state) == EndTaskTried(attempt=1, delivered=True, end=2)


def test_repeated_messages_have_the_same_id_and_the_end_of_a_retry_has_another(
    store: Store, library: PayloadCache, redis_url: str
) -> None:
    state = ended_state(store, library)
    sender = end_tasks(store, library, redis_url, redis_url)
    for attempt in (1, 2):
        sender.send(state, attempt)
    sender.send(state.model_copy(update={"ended_version": 9}), 1)

    first, again, other = [message.headers["id"] for message in messages(redis_url, "celery")]
    assert first == again != other


def test_an_immutable_signature_gets_only_its_own_arguments_and_goes_to_its_queue(
    store: Store, library: PayloadCache, redis_url: str
) -> None:
    state = ended_state(store, library, immutable=True, options={"queue": "billing"})
    end_tasks(store, library, redis_url, redis_url).send(state, 1)

    raw = json.loads(store.connection.redis.lpop("billing"))
    assert json.loads(base64.b64decode(raw["body"]))[:2] == [[7], {"order": "A"}]


def test_the_task_is_sent_to_another_kind_of_broker(
    store: Store, library: PayloadCache, redis_url: str
) -> None:
    state = ended_state(store, library, options={"queue": "on-another-broker"})
    end_tasks(store, library, redis_url, "memory://").send(state, 1)

    (message,) = messages("memory://", "on-another-broker")
    assert message.headers["task"] == "host.notify"


@pytest.mark.parametrize(
    ("broker", "why"),
    [
        (None, NOT_SET),
        (f"redis://:{PASSWORD}@127.0.0.1:1/0", "Error"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1:1//", "Error"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_a_failed_try_without_its_url(
    store: Store, library: PayloadCache, redis_url: str, broker: str | None, why: str
) -> None:
    state = ended_state(store, library)
    with capture_logs() as lines:
        end_tasks(store, library, redis_url, broker).send(state, 2)

    event = last_attempt(store, state)
    assert (event.attempt, event.delivered) == (2, False)
    assert why in event.detail
    assert PASSWORD not in f"{lines}{event}"
    assert store.dead_letters.list_newest() == []


@pytest.mark.parametrize("allowed", [(), ("shop.*",), ("host.notif",), ("HOST.*",), ("notify",)])
def test_a_task_that_the_supervisors_do_not_allow_is_never_sent(
    store: Store, library: PayloadCache, redis_url: str, allowed: tuple[str, ...]
) -> None:
    state = ended_state(store, library)
    end_tasks(store, library, redis_url, redis_url, allowed).send(state, 1)

    event = last_attempt(store, state)
    assert not event.delivered
    assert event.detail.startswith("HANDOFF_ON_END_TASKS does not allow the task 'host.notify'")
    assert store.connection.redis.exists("celery") == 0


@pytest.mark.parametrize("allowed", [("*",), ("shop.*", "host.n?tify"), ("host.notify",)])
def test_a_task_that_a_pattern_allows_is_sent(
    store: Store, library: PayloadCache, redis_url: str, allowed: tuple[str, ...]
) -> None:
    state = ended_state(store, library)
    end_tasks(store, library, redis_url, redis_url, allowed).send(state, 1)

    assert last_attempt(store, state).delivered


def test_after_the_last_try_the_task_is_a_dead_letter(
    store: Store, library: PayloadCache, redis_url: str
) -> None:
    state = ended_state(store, library)
    end_tasks(store, library, redis_url, None).send(state, len(WEBHOOK_BACKOFF_S))

    (letter,) = store.dead_letters.list_newest()
    assert letter.queue == DEAD_LETTER_QUEUE
    assert letter.reason == f"the task host.notify of {state.job_id} was not sent: {NOT_SET}"


@pytest.mark.parametrize("url", ["redsi://:canary@host/0", "sqs://canary:canary@"])
def test_a_broker_that_kombu_cannot_talk_to_ends_a_supervisor_at_its_start(url: str) -> None:
    with pytest.raises(UserError) as refused:
        check_transport("HANDOFF_ON_END_BROKER_URL", url)

    assert f"no transport for {url.partition(':')[0]}://" in str(refused.value)
    assert "canary" not in str(refused.value)
