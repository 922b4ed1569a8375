"""The supervisor's Celery app: `celery -A supervisor.app worker -Q supervisor,submissions,think`."""

from __future__ import annotations

from shared.config import load_settings
from supervisor.assembly import make_supervisor_app

app = make_supervisor_app(load_settings())
