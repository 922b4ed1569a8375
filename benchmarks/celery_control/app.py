"""The Celery app of the control's processes. Settings come from the environment."""

from __future__ import annotations

import os
from functools import cache

from benchmarks.celery_control.tasks import DEDUPLICATES, make_control_app
from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.settings.settings import get_redis_url, load_settings

_settings = load_settings()
app = make_control_app(
    get_redis_url(_settings),
    cache(lambda: create_model(_settings)),
    deduplicates=DEDUPLICATES in os.environ,
)
