"""Celery app that fails when its worker is ready."""

from __future__ import annotations

import os

from celery import signals

from handoff_queue.shared.broker.celery_app import make_app, make_exit_on_error
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UserError

app = make_app(
    "test", os.environ.get("HANDOFF_REDIS_URL", "redis://127.0.0.1:1/0"), Settings(), ["known"]
)


def begin(**_: object) -> None:
    raise (
        UserError("TWO\nlines") if os.environ["FAILS"] == "by a person" else RuntimeError("of ours")
    )


signals.worker_ready.connect(make_exit_on_error(begin), weak=False)
