"""The settings apply to the publisher, to a running worker and to every kind of URL."""

from __future__ import annotations

import json
import os
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from celery.exceptions import QueueNotFound

from handoff_queue.shared.broker.celery_app import declare_queues, make_app
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import UNROUTED_QUEUE
from tests import forked_processes
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
WORKER_APP = "tests.shared.minimal_celery_app"


def test_publishing_to_an_undeclared_queue_is_an_error(redis_url: str) -> None:
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


def test_all_threads_have_one_result_backend() -> None:
    app = make_app("test", "redis://127.0.0.1:1/0", Settings(), ["known"])

    with ThreadPoolExecutor(1) as another:
        assert another.submit(lambda: app.backend).result() is app.backend


def test_building_an_app_connects_to_nothing() -> None:
    app = make_app("test", "redis://192.0.2.1:1/0", Settings(), ["a"])

    assert set(app.amqp.queues) == {"a", UNROUTED_QUEUE}
    assert set(app.amqp.queues.consume_from) == {"a"}


@pytest.mark.parametrize(
    ("url", "kind", "checks"),
    [
        ("rediss://h:1/0", "required", ssl.CERT_REQUIRED),
        ("rediss://h:1/0?ssl_cert_reqs=none", "none", ssl.CERT_NONE),
        ("sentinel://h:1/0?ssl=true", "required", ssl.CERT_REQUIRED),
        ("sentinel://h:1/0?ssl=true&ssl_cert_reqs=none", "none", ssl.CERT_NONE),
    ],
)
def test_certificates_are_checked_unless_the_url_disables_the_check(
    url: str, kind: str, checks: ssl.VerifyMode
) -> None:
    app = make_app("t", url, Settings(), [])

    assert app.connection_for_read().ssl == {"ssl_cert_reqs": kind, "ssl_check_hostname": True}
    assert app.backend.connparams["ssl_cert_reqs"] == checks
    assert issubclass(app.backend.connparams["connection_class"], redis.SSLConnection)


def test_each_of_several_sentinels_gets_the_credentials_and_the_primarys_name() -> None:
    """Celery tries one URL after another, and copies no option from one URL to the next."""
    app = make_app(
        "t", "sentinel://me:p%40ss@a:1/3?master_name=main;sentinel://[::1]", Settings(), []
    )

    assert app.conf.broker_url == "sentinel://me:p%40ss@a:1/3;sentinel://me:p%40ss@[::1]:26379/3"
    assert app.conf.broker_transport_options["master_name"] == "main"
    assert app.conf.result_backend_transport_options["master_name"] == "main"


def test_a_processs_description_of_its_connection_holds_no_password() -> None:
    app = make_app(
        "t", "sentinel://:canary-1@a:1/0?sentinel_password=canary-2;sentinel://b", Settings(), []
    )

    description = app.connection_for_read().info()

    assert description["transport_options"]["master_name"] == "mymaster"
    assert "canary-2" not in repr(description)


@pytest.mark.slow
def test_a_plain_celery_worker_uses_threads_without_gossip_and_reports_that_it_is_ready(
    redis_url: str, processes: Processes
) -> None:
    command = [sys.executable, "-m", "celery", "-A", WORKER_APP, "worker", "-Q", "known"]
    environment = {"HANDOFF_REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    processes.start(ChildSpec("worker", command, environment))
    processes.wait_until_ready()

    app = make_app("test", redis_url, Settings(), ["known"])
    app.send_task("where", queue="known")

    with redis.Redis.from_url(redis_url) as client:
        answer = wait_until(lambda: client.get("where"), expected="the task")
        assert not client.exists("_kombu.binding.gossip")
    log = processes.get_log_path("worker").read_text()
    assert isinstance(answer, bytes)
    assert answer.startswith(b"ThreadPoolExecutor")
    assert '"job_id": "j1"' in log, log
    assert redis_url not in log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fails", "message", "code"),
    [
        ("by a person", "\nhandoff: TWO lines\n", UserError.exit_code),
        ("by a defect", '"at": "begin", "event": "this process cannot begin its work"', 1),
    ],
)
def test_a_process_that_cannot_begin_its_work_ends(
    redis_url: str, fails: str, message: str, code: int
) -> None:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tests.shared.celery_app_failing_at_start",
        "worker",
        "-Q",
        "known",
    ]
    environment = {
        **os.environ,
        "HANDOFF_REDIS_URL": redis_url,
        "PYTHONPATH": str(ROOT),
        "FAILS": fails,
    }
    process = forked_processes.run(command, environment, ROOT, "", 60)

    assert (process.returncode, message in process.stderr) == (code, True), process.stderr


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0", "sentinel://h:1/0"])
def test_a_channel_with_a_closed_connection_fails_like_a_connection(url: str) -> None:
    """Celery reconnects after this error."""
    connection = make_app("t", url, Settings(), []).connection()
    transport = connection.transport
    channel = object.__new__(transport.Channel)
    channel.connection = transport
    connection.close()

    with pytest.raises(transport.connection_errors):
        channel._get_pool()
