"""The workers' Celery app: `celery -A handoff_queue.workers.app worker -Q researcher -c 50`."""

from __future__ import annotations

from celery import Celery

from handoff_queue.shared.broker.celery_app import make_app_or_exit


def _make() -> Celery:
    from handoff_queue.shared.settings.placeholder_passwords import load_process_settings

    # Imported here, because the module imports packages that a client does not have.
    from handoff_queue.workers.assembly import make_workers_app

    return make_workers_app(load_process_settings())


app = make_app_or_exit(_make, __name__)
