"""Jobs of this project, as its users send them."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.driver import PATIENCE_S
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import find_private_key_file
from handoff_queue.shared.trust.keyring import CLIENT
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request


class HandoffJobs:
    """Jobs through the client, their ends read from their journals."""

    def __init__(self, url: str, keys: Path | None = None, tenant_keys: Path | None = None) -> None:
        """Connect to a fleet.

        Args:
            keys: the folder with the keys of all processes; None: nothing is signed.
            tenant_keys: a folder with keys of tenants; None: nothing is encrypted.
        """
        settings = Settings(offline=True, mode=Mode.TEAM, tenant_keys=tenant_keys)
        if keys is not None:
            signing_key = find_private_key_file(keys, CLIENT)
            settings = settings.model_copy(update={"keys": keys, "signing_key": signing_key})
        self._jobs = client.connect(url, settings)
        self._sent_jobs: dict[JobId, float] = {}

    def warm_up(self) -> None:
        self.wait_for_workers()
        self.run(1)

    def wait_for_workers(self) -> None:
        until = time.monotonic() + 20
        while not self._jobs.store.presence.load_served_specialists() and time.monotonic() < until:
            time.sleep(0.05)

    def run(self, count: int) -> None:
        sent_at = self._jobs.store.connection.now()
        requests: list[Request] = []
        for n in range(count):
            requests.append(Request(f"Three parts of number {n}"))
        ids = self._jobs.submit_each(requests) if count > 1 else [self._jobs.submit(requests[0])]
        self._sent_jobs = dict.fromkeys(ids, sent_at)
        for job_id in self._sent_jobs:
            self._wait(job_id)

    def run_one(self, request: str) -> None:
        self._wait(self._jobs.submit(Request(request)))

    def _wait(self, job_id: JobId) -> None:
        result = self._jobs.wait(job_id, PATIENCE_S)
        assert result is JobStatus.OK, f"{job_id} ended {result}"

    def list_durations(self) -> list[float]:
        items: list[float] = []
        for job_id, sent_at in self._sent_jobs.items():
            items.append(self._read_end_time(job_id) - sent_at)
        return items

    def close(self) -> None:
        self._jobs.store.connection.close()

    def _read_end_time(self, job_id: JobId) -> float:
        return next(
            recorded.at
            for recorded in self._jobs.store.journal.read(job_id)
            if isinstance(recorded.event, JobEnded)
        )
