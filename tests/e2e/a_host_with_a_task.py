"""A service with a stock Celery app. Its task records each call in its own Redis."""

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
    """Note the end of the job and the other arguments."""
    with redis.Redis.from_url(URL) as host_redis:
        host_redis.rpush(CALLS, json.dumps([self.request.id, end, args, kwargs]))


@app.task(name="host.stock", bind=True, shared=False)  # type: ignore[untyped-decorator]
def stock(self: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Note the call. Return once the key `host:go` is set."""
    with redis.Redis.from_url(URL) as host_redis:
        host_redis.rpush(CALLS, json.dumps([self.request.id, call, [], {}]))
        host_redis.blmove("host:go", "host:gone", 60)
    return {"article": call["task"], "items": 12}
