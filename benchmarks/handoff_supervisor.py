"""The supervisor's app, unchanged except for its model: the instant model, or the provider's
if calls go over HTTP.
"""

from __future__ import annotations

from benchmarks.processor_time import measure_from_now_on
from benchmarks.timed_model import make_model
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.supervisor.assembly import make_supervisor_app

measure_from_now_on()
settings = load_settings()
app = make_supervisor_app(settings, make_model if settings.is_offline else None)
