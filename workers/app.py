"""The workers' Celery app: `celery -A workers.app worker -Q researcher -c 50`."""

from __future__ import annotations

from shared.config import load_settings
from workers.assembly import make_workers_app

app = make_workers_app(load_settings())
