"""The settings hold where it matters: at the publisher, in a running worker, and for every kind of URL."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import redis
from celery.exceptions import QueueNotFound

from shared.celery_app import declare_queues, make_app
from shared.config import Settings
from shared.local.processes import ChildSpec, Processes
from shared.wire.names import UNROUTED_QUEUE
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
WORKER_APP = "tests.shared.celery_app_in_a_worker"


def test_a_queue_that_nobody_declared_is_an_error_where_it_is_published(redis_url: str) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])

    with pytest.raises(QueueNotFound):
        app.send_task("anything", queue="unknown")


def test_a_queue_can_be_declared_later(redis_url: str) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])

    declare_queues(app, ["later", "later", "known"])
    app.send_task("anything", queue="later")

    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("later") == 1


def test_a_message_holds_no_arguments_repr_that_its_sender_did_not_choose(redis_url: str) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])

    app.send_task("anything", args=("private",), argsrepr="(job j1)", queue="known")

    with redis.Redis.from_url(redis_url) as client:
        (message,) = client.lrange("known", 0, -1)
    assert json.loads(message)["headers"]["argsrepr"] == "(job j1)"


def test_building_an_app_connects_to_nothing() -> None:
    app = make_app("test", "redis://192.0.2.1:1/0", Settings(), ["a"])

    assert set(app.amqp.queues) == {"a", UNROUTED_QUEUE}
    assert set(app.amqp.queues.consume_from) == {"a"}


def test_a_tls_url_is_given_certificate_checks_unless_it_says_otherwise() -> None:
    assert make_app("t", "rediss://h:1/0", Settings(), []).conf.broker_url == "rediss://h:1/0?ssl_cert_reqs=required"
    told = "rediss://h:1/0?ssl_cert_reqs=none"
    assert make_app("t", told, Settings(), []).conf.result_backend == told


def test_a_sentinel_url_keeps_its_hosts_and_names_its_master() -> None:
    app = make_app("t", "sentinel://a:1/0?master_name=main;sentinel://b:2/0", Settings(), [])

    assert app.conf.broker_url == "sentinel://a:1/0;sentinel://b:2/0"
    assert app.conf.broker_transport_options["master_name"] == "main"
    assert app.conf.result_backend_transport_options["master_name"] == "main"


@pytest.mark.slow
def test_a_plain_celery_worker_runs_threads_without_gossip_and_says_when_it_is_ready(redis_url: str, processes: Processes) -> None:
    command = [sys.executable, "-m", "celery", "-A", WORKER_APP, "worker", "-Q", "known"]
    environment = {"HANDOFF_REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    processes.start(ChildSpec("worker", command, environment))
    processes.wait_until_ready()

    app = make_app("test", redis_url, Settings(), ["known"])
    app.send_task("where", queue="known")

    with redis.Redis.from_url(redis_url) as client:
        answer = wait_until(lambda: client.get("where"), what="the task")
        assert not client.exists("_kombu.binding.gossip")
    log = processes.log_of("worker").read_text()
    assert isinstance(answer, bytes)
    assert answer.startswith(b"ThreadPoolExecutor")
    assert '"job_id": "j1"' in log, log
    assert redis_url not in log


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0", "sentinel://h:1/0"])
def test_a_channel_whose_connection_is_closed_fails_as_a_connection_does(url: str) -> None:
    """An error that Celery connects again after. Without a connection there is nothing that it could be sent to."""
    connection = make_app("t", url, Settings(), []).connection()
    transport = connection.transport
    channel = object.__new__(transport.Channel)
    channel.connection = transport
    connection.close()

    with pytest.raises(transport.connection_errors):
        channel._get_pool()
