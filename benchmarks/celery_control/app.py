"""The Celery app of the control's processes. Settings come from the environment."""

from __future__ import annotations

import os
from functools import cache

from benchmarks.celery_control.tasks import DEDUPLICATES, make_control_app
from handoff_queue.shared.providers.anthropic.client_factory import model_from
from handoff_queue.shared.settings.settings import load_settings, redis_url_of

_settings = load_settings()
app = make_control_app(
    redis_url_of(_settings),
    cache(lambda: model_from(_settings)),
    deduplicates=DEDUPLICATES in os.environ,
)
