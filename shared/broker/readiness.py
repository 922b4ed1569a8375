"""Readiness of a Celery worker, for the process that started it: a file that exists while the
worker takes work, and that each heartbeat touches.

A check costs one `stat`. `celery inspect ping` would start a Python process and ask every
worker of the fleet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

READY_FILE = "HANDOFF_READY_FILE"
"""Variable that names the file. Without it, the worker writes no file."""


def touch_while_alive(app: Any) -> None:
    """Have the worker of this Celery app create the file when it is ready, and touch it with each
    heartbeat. The worker removes it when it begins to shut down. It removes the file of a process
    that was killed when it starts.
    """
    from celery import signals

    from handoff_queue.shared.broker.celery_signals import WorkerSignals

    def mark_ready(**_: Any) -> None:
        if (file := _get_file()) is not None:
            file.touch()

    def heartbeat(**_: Any) -> None:
        if (file := _get_file()) is not None and file.exists():
            file.touch()

    def remove(**_: Any) -> None:
        if (file := _get_file()) is not None:
            file.unlink(missing_ok=True)

    worker = WorkerSignals(app)
    worker.connect(signals.worker_init, remove)
    worker.connect(signals.worker_ready, mark_ready)
    worker.connect(signals.heartbeat_sent, heartbeat)
    worker.connect(signals.worker_shutting_down, remove)


def _get_file() -> Path | None:
    file_name = os.environ.get(READY_FILE)
    if file_name:
        return Path(file_name)
    return None
