"""A worker that knows this version's messages, and those of the next, which names its tasks
otherwise: its Celery app.
"""

from __future__ import annotations

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.workers.assembly import make_workers_app

NEXT = "@2"
"""At the end of the next version's names."""

app = make_workers_app(load_settings())
for name, task in list(app.tasks.items()):
    if name.startswith("specialist."):
        app.tasks[name + NEXT] = task
