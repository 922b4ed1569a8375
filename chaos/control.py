"""The control: a chord as Celery's documentation writes it, with the settings that promise most, and no ledger."""

from __future__ import annotations

from typing import Any

from celery import Celery, chord

from shared import failpoints
from shared.readiness import touch_while_alive

VISIBILITY_TIMEOUT_S = 3
"""Short, so that nobody can say that the broker's redelivery was not waited for."""
BODIES = "bodies"
"""The queue of chords' bodies."""
PART, BODY = "control.part", "control.body"


def make_control_app(redis_url: str, *, deduplicates: bool = False) -> Celery:
    """An app with one part and one body. `deduplicates`: Celery's own answer to a task that comes twice."""
    app = Celery("control", broker=redis_url, backend=redis_url)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_deduplicate_successful_tasks=deduplicates,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "priority_steps": [0],
        },
    )
    if failpoints.folder() is not None:
        from shared.failing_broker import use_failpoints

        use_failpoints(app)
    touch_while_alive()
    app.task(part, name=PART, shared=False)
    app.task(body, name=BODY, shared=False)
    return app


def part(name: str) -> str:
    return f"{name} is done"


def body(parts: list[str], name: str) -> str:
    return f"{name}: {', '.join(parts)}"


def begin(app: Celery, name: str, queue: str) -> None:
    """A chord of one part on this queue; its body's task has the chord's name."""
    header = [app.signature(PART, args=(name,), queue=queue)]
    chord(header, app=app)(app.signature(BODY, args=(name,), queue=BODIES, task_id=name))


def is_done(app: Celery, name: str) -> bool:
    backend: Any = app.backend
    return bool(backend.get_state(name) == "SUCCESS")
