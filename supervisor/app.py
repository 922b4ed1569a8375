"""The supervisor's Celery app: `celery -A supervisor.app worker -Q supervisor,submissions,think`."""

from __future__ import annotations

from shared.celery_app import app_or_exit
from shared.config import load_settings
from supervisor.assembly import make_supervisor_app

app = app_or_exit(lambda: make_supervisor_app(load_settings()), __name__)
