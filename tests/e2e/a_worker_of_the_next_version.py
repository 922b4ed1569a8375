"""Celery app of a worker that serves the tasks of this version and of the next version.

The next version's task names end with `NEXT`.
"""

from __future__ import annotations

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.workers.assembly import make_workers_app

NEXT = "@2"
"""Suffix of the next version's task names."""

app = make_workers_app(load_settings())
for name, task in list(app.tasks.items()):
    if name.startswith("specialist."):
        app.tasks[name + NEXT] = task
