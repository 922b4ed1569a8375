"""A service with its own Celery app imports our client: no global state of its process changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE
from tests.warm_interpreter import WarmInterpreter

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
Host = Callable[..., dict[str, Any]]
START = """
import gc, json, logging, os, sys, threading, warnings
import celery, celery.utils.dispatch, kombu.pools, kombu.transport, redis
from celery import Celery, shared_task, signals

@shared_task(name="host.note")
def note():
    pass

def host_app():
    url = os.environ["HOST_REDIS_URL"]
    app = Celery("host", broker=url, backend=url)
    app.conf.broker_pool_limit = 3
    app.set_default()
    return app

def seen():
    receivers = {
        name: len(signal.receivers or ()) for name, signal in vars(signals).items()
        if isinstance(signal, celery.utils.dispatch.Signal)
    }
    return [
        receivers, dict(kombu.transport.TRANSPORT_ALIASES), kombu.pools.get_limit(),
        sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count(), dict(os.environ),
        len(logging.getLogger().handlers), logging.getLogger().level, len(warnings.filters),
        redis.SSLConnection._wrap_socket_with_ssl.__module__, threading.active_count(),
    ]

def submit():
    from handoff_queue.supervisor.client import client
    from handoff_queue.supervisor.client.request import Request
    before = seen()
    jobs = client.connect(os.environ["HANDOFF_REDIS_URL"])
    job_id = jobs.submit(Request("Compare Qdrant and pgvector"))
    assert seen() == before, [pair for pair in zip(before, seen()) if pair[0] != pair[1]]
    return job_id

def current_apps():
    found = [celery.current_app.main]
    thread = threading.Thread(target=lambda: found.append(celery.current_app.main))
    thread.start()
    thread.join()
    return found
"""
ORDERS = {
    "the host's Celery first": "host = host_app(); note.delay(); job = submit(); note.delay()",
    "our client first": "job = submit(); host = host_app(); note.delay(); note.delay()",
    "our client after the host's app, before its first message": (
        "host = host_app(); job = submit(); note.delay(); note.delay()"
    ),
}
END = """
kind = type(host.connection_for_write().transport)
print(json.dumps({"job": job, "current": current_apps(), "transport": kind.__module__}))
"""


def submissions_queued(store: Store) -> list[str]:
    """Return the ids of the announced jobs."""
    frames = store.connection.redis.lrange(SUBMISSIONS_QUEUE, 0, -1)
    return [json.loads(frame)["headers"][MEMBER_HEADER] for frame in frames]


@pytest.fixture(scope="module")
def host_interpreter() -> Iterator[WarmInterpreter]:
    """Yield a process that has imported Celery, but has no app yet and not our client."""
    with WarmInterpreter(START, ROOT) as interpreter:
        yield interpreter


@pytest.fixture
def host_process(host_interpreter: WarmInterpreter) -> Host:
    """Return a function that runs code in a process of the host service."""

    def run(code: str, **environment: str) -> dict[str, Any]:
        return last_line(host_interpreter.run(code + END, **environment))

    return run


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the last line of the output, parsed as JSON."""
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


@pytest.mark.parametrize("order", ORDERS)
def test_a_hosts_tasks_reach_its_own_queue_and_our_jobs_are_submitted(
    host_process: Host, store: Store, redis_url: str, order: str
) -> None:
    report = host_process(ORDERS[order], HOST_REDIS_URL=redis_url, HANDOFF_REDIS_URL=redis_url)

    assert set(report["current"]) == {"host"}
    assert report["transport"] == "kombu.transport.redis"
    with redis.Redis.from_url(redis_url) as client:
        names = [json.loads(text)["headers"]["task"] for text in client.lrange("celery", 0, -1)]
    assert names == ["host.note"] * 2
    assert submissions_queued(store) == [report["job"]]


def test_a_host_process_with_celery_variables_submits_to_our_redis(
    host_process: Host, store: Store, redis_url: str
) -> None:
    """The host's app uses these variables. Our app ignores them."""
    nowhere = "redis://127.0.0.1:1/0"

    report = host_process(
        "host = host_app(); job = submit(); assert host.conf.broker_url =="
        " os.environ['CELERY_BROKER_URL']",
        HOST_REDIS_URL=nowhere,
        HANDOFF_REDIS_URL=redis_url,
        CELERY_BROKER_URL=nowhere,
        CELERY_BROKER_READ_URL=nowhere,
        CELERY_BROKER_WRITE_URL=nowhere,
        CELERY_RESULT_BACKEND=nowhere,
    )

    assert submissions_queued(store) == [report["job"]]


def test_our_client_never_asks_for_the_current_app(store: Store, redis_url: str) -> None:
    """With C_STRICT_APP set, Celery raises an error if code asks for the current app.

    Celery reads it during its import, so this process is new.
    """
    done = subprocess.run(
        [sys.executable, "-c", START + "print(json.dumps({'job': submit()}))"],
        cwd=ROOT,
        env={
            **os.environ,
            "HOST_REDIS_URL": redis_url,
            "HANDOFF_REDIS_URL": redis_url,
            "C_STRICT_APP": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert submissions_queued(store) == [last_line(done)["job"]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CELERY_CONFIG_MODULE", "no_such_module"),
        ("CELERY_LOADER", "no_such_module:Loader"),
        ("DJANGO_SETTINGS_MODULE", "no_such_module"),
    ],
)
def test_a_variable_that_configures_a_hosts_celery_does_not_reach_our_app(
    host_process: Host, store: Store, redis_url: str, name: str, value: str
) -> None:
    code = (
        "job = submit(); del os.environ[NAME]; celery._state.default_app = None; host = host_app()"
    )

    report = host_process(
        code.replace("NAME", repr(name)),
        HOST_REDIS_URL=redis_url,
        HANDOFF_REDIS_URL=redis_url,
        **{name: value},
    )

    assert submissions_queued(store) == [report["job"]]
