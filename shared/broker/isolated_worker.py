"""Celery's worker for an app of ours. Set up by methods, because receivers of Celery's signals would act on every worker of the process."""

from __future__ import annotations

from typing import Any

from celery.apps.worker import Worker

from handoff_queue.shared.broker.worker_exit import limit_wait_for_threads


class IsolatedWorker(Worker):  # type: ignore[misc]
    """Celery's worker, with our logging from its first line, and with `-c` in the app's settings.

    A thread that a tool has left behind does not keep its process.
    """

    def start(self) -> None:
        """Work until the worker is told to stop."""
        super().start()
        limit_wait_for_threads(self.exitcode or 0)

    def on_before_init(self, **options: Any) -> None:
        """Set up logging before Celery warns that the worker runs as root: Celery does both in the other order."""
        self.app.log.setup_logging_subsystem(
            options.get("loglevel"), options.get("logfile"), hostname=self.hostname
        )
        super().on_before_init(**options)

    def on_start(self) -> None:
        """Note the number of slots: announcements and the supervisor's role slots read it in the settings."""
        self.app.conf.worker_concurrency = self.concurrency
        super().on_start()
