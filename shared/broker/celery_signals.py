"""Receivers of Celery's worker signals that act for the worker of one app only.

Celery sends these signals to every receiver of the process. A host service may import our
packages and run its own worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, signals

Receiver = Callable[..., None]


class WorkerSignals:
    """Connects receivers for one app. The app holds the only references to them, so the
    receivers are dropped with their app.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._hostname: str | None = None
        """Name of this app's worker after its start. Some signals give only this name as sender."""
        self._receivers: list[Receiver] = []
        vars(app).setdefault("worker_signals", []).append(self)
        self.connect(signals.worker_init, self._record_hostname)

    def connect(self, signal: Any, receiver: Receiver) -> None:
        """Call `receiver` with the arguments of this signal each time that this app's worker
        sends it.
        """

        def receive(sender: Any = None, **signal_arguments: Any) -> None:
            if self._is_own(sender, signal_arguments.get("instance")):
                receiver(sender=sender, **signal_arguments)

        self._receivers.append(receive)
        signal.connect(receive)

    def _is_own(self, sender: Any, worker: Any) -> bool:
        """Return whether a worker, its consumer, its heartbeat, or its name is this app's."""
        if isinstance(sender, str) and worker is None:
            return sender == self._hostname
        if worker is None:
            owner = sender
        else:
            owner = worker
        owner = getattr(owner, "eventer", owner)
        return getattr(owner, "app", None) is self._app

    def _record_hostname(self, sender: Any, **_: Any) -> None:
        self._hostname = str(sender.hostname)
