"""The ready file says that this process takes work, and not that an earlier one did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from celery import Celery, signals

from handoff_queue.shared.broker.readiness import READY_FILE, touch_while_alive


@dataclass(frozen=True)
class Worker:
    """A worker of Celery, as the sender of a signal."""

    app: Celery
    hostname: str = "w1"


def test_a_worker_removes_the_ready_file_of_a_killed_one_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ready"
    file.touch()
    monkeypatch.setenv(READY_FILE, str(file))
    app = Celery("test")
    touch_while_alive(app)

    signals.worker_init.send(Worker(app))

    assert not file.exists()
