"""A user's service with a plain Celery app. Its tasks record each call in the service's Redis."""

from __future__ import annotations

import json
import os
from typing import Any

import redis
from celery import Celery

URL = os.environ.get("HOST_REDIS_URL", "redis://127.0.0.1:1/0")
CALLS = "host:calls"

app = Celery("host", broker=URL, backend=URL, set_as_current=False)
app.conf.task_routes = {"host.*": {"queue": "billing"}}


@app.task(name="host.notify", bind=True, shared=False)  # type: ignore[untyped-decorator]
def notify(self: Any, end: dict[str, Any], *args: Any, **kwargs: Any) -> None:
    """Record the message about the job's end, and the other arguments."""
    with redis.Redis.from_url(URL) as host_redis:
        host_redis.rpush(CALLS, json.dumps([self.request.id, end, args, kwargs]))


@app.task(name="host.stock", bind=True, shared=False)  # type: ignore[untyped-decorator]
def stock(self: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Record the call, and return after the test pushes to `host:go`."""
    with redis.Redis.from_url(URL) as host_redis:
        host_redis.rpush(CALLS, json.dumps([self.request.id, call, [], {}]))
        host_redis.blmove("host:go", "host:gone", 60)
    return {"article": call["task"], "items": 12}
