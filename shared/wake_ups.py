"""A wake-up as a Celery message: whoever sends it, a supervisor, a worker or a chord."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.celery_app import HOW_SENT
from shared.fair import FOR
from shared.wire.ids import HandoffId, JobId


def wake_up(job_id: JobId, suspects: Sequence[HandoffId] = ()) -> dict[str, Any]:
    """What `send_task` and `signature` take beside the name `ADVANCE` and a queue. `suspects`: handoffs that may have something wrong."""
    return {
        "args": (job_id, list(suspects)),
        "argsrepr": f"({job_id}{', ' + ' '.join(suspects) if suspects else ''})",
        "headers": {FOR: job_id},
        **HOW_SENT,
    }
