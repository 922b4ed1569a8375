"""A user's service with a plain Celery app. It imports our client and our apps, submits jobs from
its tasks, and runs a worker.
"""

from __future__ import annotations

import os

import redis
from celery import Celery

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.supervisor.assembly import make_supervisor_app
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.workers.assembly import make_workers_app

URL = os.environ.get("HOST_REDIS_URL", "redis://127.0.0.1:1/0")
STARTED, MAY_END, ENDED = "host:started", "host:may-end", "host:ended"

if os.environ.get("IMPORTED_FIRST") == "ours":
    HANDOFF_PROJECT = (make_supervisor_app(load_settings()), make_workers_app(load_settings()))
app = Celery("host", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={
        "visibility_timeout": 2,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 2,
    },
)
if os.environ.get("IMPORTED_FIRST") == "theirs":
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1)
    HANDOFF_PROJECT = (make_supervisor_app(load_settings()), make_workers_app(load_settings()))


@app.task(name="host.hold")  # type: ignore[untyped-decorator]
def hold() -> None:
    """Submit a job, report its id, and return after the test pushes to `MAY_END`."""
    with redis.Redis.from_url(URL) as host_redis:
        job_id = client.connect().submit(Request("Compare Qdrant and pgvector"))
        host_redis.rpush(STARTED, job_id)
        host_redis.blpop([MAY_END], 60)
        host_redis.incr(ENDED)
