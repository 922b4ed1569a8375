"""A service with a stock Celery app. Its task notes each call in its own Redis."""

from __future__ import annotations

import json
import os
from typing import Any

import redis
from celery import Celery

URL = os.environ.get("HOST_REDIS_URL", "redis://127.0.0.1:1/0")
CALLS = "host:calls"

app = Celery("host", broker=URL, set_as_current=False)
app.conf.task_routes = {"host.notify": {"queue": "billing"}}


@app.task(name="host.notify", bind=True, shared=False)  # type: ignore[untyped-decorator]
def notify(self: Any, end: dict[str, Any], *args: Any, **kwargs: Any) -> None:
    """Note the end of the job and the other arguments."""
    with redis.Redis.from_url(URL) as store:
        store.rpush(CALLS, json.dumps([self.request.id, end, args, kwargs]))
