"""`celery -A chaos.app worker`: the control's processes. Settings come from the environment."""

from __future__ import annotations

import os

from chaos.control import make_control_app
from shared.config import load_settings, redis_url_of

DEDUPLICATES = "HANDOFF_CHAOS_DEDUPLICATES"
"""Set: this process does."""

app = make_control_app(redis_url_of(load_settings()), deduplicates=DEDUPLICATES in os.environ)
