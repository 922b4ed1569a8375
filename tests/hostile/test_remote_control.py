"""A program that reaches Redis cannot stop, change or question a worker with Celery's remote
control. Only `ping` and the commands about the worker's queues and tasks are obeyed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from celery import Celery
from celery.app.control import Control as CeleryControl
from celery.worker import WorkController
from celery.worker import state as worker_state
from celery.worker.consumer.control import Control
from celery.worker.control import Panel
from kombu import pidbox
from pydantic import SecretStr
from redis import Redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.remote_control import REMOTE_CONTROL
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.cli.doctor_processes import ask_for_queues
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ARGUMENTS: dict[str, dict[str, Any]] = {
    "add_consumer": {"queue": "two"},
    "cancel_consumer": {"queue": "one"},
    "rate_limit": {"task_name": "specialist.one", "rate_limit": "1/h"},
    "revoke": {"task_id": "j-0123456789ab/a.1", "terminate": True, "signal": "SIGKILL"},
    "revoke_by_stamped_headers": {"headers": {"for": "j-0123456789ab/a.1"}},
    "terminate": {"task_id": "j-0123456789ab/a.1", "signal": "SIGKILL"},
    "time_limit": {"task_name": "specialist.one", "hard": 1},
    "hello": {"from_node": "attacker@h", "revoked": {"j-0123456789ab/a.1": 1}},
    "query_task": {"ids": ["j-0123456789ab/a.1"]},
    "objgraph": {"type": "Request", "n": 1},
}
"""Arguments of the commands that need some."""
NO_BINDINGS = ["garbage", "", "a\x06\x16b", "a\x06\x16b\x06\x16c\x06\x16d", b"\xff"]
"""Members of a set of bindings that are not bindings."""
DEEP = "[" * 5_000
TASK_LISTS = {"active", "reserved", "scheduled", "revoked"}
REFUSED = sorted({*Panel.data} - {*REMOTE_CONTROL} - TASK_LISTS)


@dataclass
class Worker:
    """A Celery worker of this project that listens to its control channel in this thread."""

    attacker: Celery
    consumer: Any

    def answer(self, command: str) -> Any:
        """Publish a command as an attacker does, have the worker read it, and return its answer."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                CeleryControl(self.attacker).broadcast,  # ours sends no arguments
                command,
                arguments=ARGUMENTS.get(command),
                reply=True,
                timeout=5,
                limit=1,
            )
            while not asked.done():
                self.read()
        (answer,) = asked.result()
        return answer["test@here"]

    def send(self, command: dict[str, Any], headers: dict[str, Any] | None = None) -> None:
        """Publish a message to the control channel, and have the worker read it."""
        exchange = self.attacker.control.mailbox.exchange
        with self.attacker.amqp.producer_pool.acquire() as producer:
            producer.publish(command, exchange=exchange, declare=[exchange], headers=headers)
        self.read()

    def read(self) -> None:
        """Have the worker read messages for a moment. Its first read subscribes to its channel."""
        with suppress(TimeoutError):
            self.consumer.connection.drain_events(timeout=0.05)


@pytest.fixture(scope="module")
def worker(redis_server: str, redis_client: Redis) -> Iterator[Worker]:
    app, attacker = (make_app("test", redis_server, Settings(), ["one"]) for _ in range(2))
    consumer = WorkController(app=app, hostname="test@here", pool_cls="solo").consumer
    (control,) = (step for step in consumer.steps if isinstance(step, Control))
    with app.connection_for_read() as connection:
        consumer.connection = connection
        consumer.task_consumer = app.amqp.TaskConsumer(connection)
        consumer.task_consumer.consume()
        patterns = redis_client.pubsub_numpat()
        control.start(consumer)
        worker = Worker(attacker, consumer)

        def is_subscribed() -> bool:
            worker.read()
            return bool(redis_client.pubsub_numpat() > patterns)

        wait_until(is_subscribed, expected="the worker's subscription")
        yield worker
        control.stop(consumer)
    app.close()
    attacker.close()


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_that_changes_or_questions_a_worker_is_refused(
    worker: Worker, command: str
) -> None:
    before = {*worker_state.revoked}

    assert worker.answer(command) == {"error": f"{command} is refused"}

    assert {*worker_state.revoked} == before
    assert worker.consumer.task_consumer.consuming_from("one")
    assert not worker.consumer.task_consumer.consuming_from("two")


@pytest.mark.parametrize("command", sorted(TASK_LISTS))
def test_a_worker_lists_no_task_of_anybody(worker: Worker, command: str) -> None:
    assert worker.answer(command) == []


def test_a_worker_answers_the_commands_of_doctor_and_flower(worker: Worker) -> None:
    assert worker.answer("ping") == {"ok": "pong"}
    assert [queue["name"] for queue in worker.answer("active_queues")] == ["one"]
    assert worker.answer("stats")["pid"] > 0


@pytest.mark.parametrize("matcher", ["pcre", "glob"])
def test_a_worker_matches_no_pattern(worker: Worker, matcher: str) -> None:
    """A regular expression of an attacker would stop all processes with one message."""
    called: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pidbox, "match", lambda *_: called.append("match"))

        worker.send({"method": "ping", "pattern": "(.|.|.|.|.|.)*!", "matcher": matcher})

    assert worker.answer("ping") == {"ok": "pong"}
    assert called == []


def test_a_worker_takes_over_no_clock_of_a_sender(worker: Worker) -> None:
    """Python writes no number of more than 4,300 digits, so the worker could send no event."""
    worker.send({"method": "ping"}, {"clock": 10**4_300 - 1})

    assert worker.answer("ping") == {"ok": "pong"}
    assert worker.consumer.app.clock.value < 10**9


def test_a_worker_tells_no_attribute_of_its_tasks(worker: Worker) -> None:
    ARGUMENTS["registered"] = {"taskinfoitems": ["app", "backend"], "builtins": True}

    answer = worker.answer("registered")

    assert not [task for task in answer if "=" in task or task.startswith("celery.")]


VICTIM = "handoff:out:submissions"
"""A key that a supervisor may write, and a worker may not."""
SENDER = "0a1b2c3d-0000-1111-2222-333344445555"
REPLIES = "reply.handoff.control.pidbox"
ADDRESSES: dict[str, dict[str, Any]] = {
    "a key": {"exchange": "", "routing_key": VICTIM},
    "a bound queue": {"exchange": "unrouted", "routing_key": "one"},
    "no sender": {"exchange": REPLIES, "routing_key": "_kombu.binding"},
    "a forged binding": {"exchange": REPLIES, "routing_key": SENDER},
}
"""Addresses of replies that name no reply queue of a sender."""


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_reply_goes_to_no_key_that_an_attacker_chooses(
    worker: Worker, redis_server: str, name: str
) -> None:
    mailbox = worker.attacker.control.mailbox
    command = {"method": "ping", "arguments": {}, "ticket": "t", "reply_to": ADDRESSES[name]}
    assert worker.answer("ping") == {"ok": "pong"}, "the worker listens"
    with Redis.from_url(redis_server) as connection:
        connection.delete(VICTIM, "one")
        connection.sadd(f"_kombu.binding.{REPLIES}", f"{SENDER}\x06\x16\x06\x16{VICTIM}")
        connection.sadd("_kombu.binding.unrouted", f"one\x06\x16\x06\x16{VICTIM}")
        with worker.attacker.amqp.producer_pool.acquire() as producer:
            producer.publish(command, exchange=mailbox.exchange, declare=[mailbox.exchange])

        assert worker.answer("ping") == {"ok": "pong"}

        assert not connection.exists(VICTIM, "one")
        assert connection.type(f"_kombu.binding.{REPLIES}") == b"set"


def test_a_worker_answers_although_another_has_written_false_bindings(
    worker: Worker, redis_server: str
) -> None:
    with Redis.from_url(redis_server) as connection:
        connection.sadd(f"_kombu.binding.{REPLIES}", *NO_BINDINGS)

        assert worker.answer("ping") == {"ok": "pong"}


@pytest.mark.parametrize("exchange", [REPLIES, "unrouted"])
def test_no_process_reads_the_bindings_that_a_worker_has_written(
    worker: Worker, redis_server: str, exchange: str
) -> None:
    """A worker can write GB of bindings, and each answer would need twice as much memory."""
    reply_to = {"exchange": exchange, "routing_key": SENDER}
    with Redis.from_url(redis_server) as connection:
        connection.sadd(f"_kombu.binding.{exchange}", "x" * 2**22)
        before = int(connection.info("stats")["total_net_output_bytes"])

        worker.send({"method": "ping", "arguments": {}, "ticket": "t", "reply_to": reply_to})
        assert worker.answer("ping") == {"ok": "pong"}

        assert int(connection.info("stats")["total_net_output_bytes"]) - before < 2**20
        connection.srem(f"_kombu.binding.{exchange}", "x" * 2**22)


REPLY_FORMS = ["[1]", "null", "5", '{"n": [1]}', '{"n": [{}]}', '{"n": [{"name": [1]}]}', DEEP]
"""Bodies of replies that are not lists of queues."""


@pytest.mark.parametrize("body", REPLY_FORMS, ids=range(len(REPLY_FORMS)))
def test_a_forged_reply_does_not_stop_the_command_that_asks(redis_server: str, body: str) -> None:
    """A worker sees each control command, and may write to the reply queue of its sender."""
    settings = Settings(redis_url=SecretStr(redis_server))
    with Redis.from_url(redis_server) as attacker, attacker.pubsub() as channel:
        channel.psubscribe("/*.handoff.control.pidbox")
        assert channel.get_message(timeout=5), "the attacker listens"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask_for_queues, settings)
            command = channel.get_message(timeout=30)
            assert command
            forged = json.loads(command["data"])
            command_body = json.loads(base64.b64decode(forged["body"]))
            forged["body"] = base64.b64encode(body.encode()).decode()
            forged["headers"] = {"ticket": command_body["ticket"]}
            address = command_body["reply_to"]
            attacker.lpush(f"{address['routing_key']}.{address['exchange']}", json.dumps(forged))

            assert set().union(*asked.result(timeout=60).values()) == set()


def test_replies_without_end_do_not_hold_up_the_command_that_asks(redis_server: str) -> None:
    settings = Settings(redis_url=SecretStr(redis_server))
    with Redis.from_url(redis_server) as attacker, attacker.pubsub() as channel:
        channel.psubscribe("/*.handoff.control.pidbox")
        assert channel.get_message(timeout=5), "the attacker listens"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask_for_queues, settings)
            command = channel.get_message(timeout=30)
            assert command
            forged = json.loads(command["data"])
            body = json.loads(base64.b64decode(forged["body"]))
            forged["body"] = base64.b64encode(b"{}").decode()
            forged["headers"] = {"ticket": body["ticket"]}
            queue = f"{body['reply_to']['routing_key']}.{body['reply_to']['exchange']}"

            def has_ended() -> bool:
                attacker.lpush(queue, json.dumps(forged))
                return asked.done()

            wait_until(has_ended, expected="the end of the command")

            assert asked.result() == {}
