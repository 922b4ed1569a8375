"""Minimal Celery app, for tests of settings in a real worker."""

from __future__ import annotations

import os
import threading

import redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.readiness import touch_while_alive
from handoff_queue.shared.observability.logs import get_log, logged_as
from handoff_queue.shared.settings.settings import Settings

_URL = os.environ.get("HANDOFF_REDIS_URL", "redis://127.0.0.1:1/0")
app = make_app("test", _URL, Settings(), ["known"])
touch_while_alive(app)


@app.task(name="where", shared=False)  # type: ignore[untyped-decorator]
def where() -> None:
    with logged_as(job_id="j1"):
        get_log(__name__).info("here", url=_URL)
    with redis.Redis.from_url(_URL) as client:
        client.set("where", threading.current_thread().name)
