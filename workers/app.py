"""The workers' Celery app: `celery -A workers.app worker -Q researcher -c 50`."""

from __future__ import annotations

from shared.celery_app import app_or_exit
from shared.config import load_settings
from workers.assembly import make_workers_app

app = app_or_exit(lambda: make_workers_app(load_settings()), __name__)
