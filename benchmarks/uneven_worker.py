"""The workers' app as it is, with the uneven model."""

from __future__ import annotations

from benchmarks.uneven_model import make_model
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.workers.assembly import make_workers_app

app = make_workers_app(load_settings(), make_model)
