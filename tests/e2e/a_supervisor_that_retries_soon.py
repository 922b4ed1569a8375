"""Celery app of a supervisor that soon counts a try without an outcome as lost."""

from __future__ import annotations

from importlib import import_module

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.supervisor.assembly import make_supervisor_app

GIVEN_UP_AFTER_S = 2.0
"""Seconds after which the supervisor repeats a try, instead of `WEBHOOK_GIVEN_UP_AFTER_S`."""

job_end = vars(import_module("handoff_queue.supervisor.lifecycle.job_end"))
assert job_end["WEBHOOK_GIVEN_UP_AFTER_S"] > GIVEN_UP_AFTER_S
job_end["WEBHOOK_GIVEN_UP_AFTER_S"] = GIVEN_UP_AFTER_S
app = make_supervisor_app(load_settings())
