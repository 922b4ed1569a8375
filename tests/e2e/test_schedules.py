"""Every supervisor is killed around the start of a scheduled job. Each slot makes one job.

`tests/supervisor/client/test_schedules.py` tests the death of a supervisor at more moments.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.chaos.fleet import arm
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.store.schedules import StoredSchedule
from handoff_queue.shared.types.events import JobStatus, JobSubmitted
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.schedule import Missed, Overlap
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.cron import find_last_slot
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedule_decisions import build_slot_key
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from tests.e2e.fleet import SHORT_LEASES
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, RunningSystem, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
CRON = "0 0 1 1 *"
"""One slot a year, so that no slot passes during a test."""
OPTIONS = ScheduleOptions(CRON, overlap=Overlap.QUEUE, missed=Missed.ALL, follows_last=True)
SUPERVISORS = ("s1", "s2")
SLOTS = 3
POINTS = {
    "after a slot is taken": "script.replace_schedule.after",
    "before the job is announced": "publish.submissions.before",
    "after the job is announced": "publish.submissions.after",
}


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder whose files arm failpoints in the supervisors."""
    return tmp_path_factory.mktemp("points")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, points: Path) -> Iterator[RunningSystem]:
    """Start workers and two supervisors. A killed supervisor starts again."""
    with running_system(
        tmp_path_factory.mktemp("fleet"), (ALL_SPECIALISTS,), {**SHORT_LEASES}
    ) as system:
        for name in SUPERVISORS:
            _, app, queues = SUPERVISOR
            spec = system.celery_worker(name, app, queues, 4, variables={FAILPOINTS: str(points)})
            system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        yield system


def due_slots(jobs: Client, name: str) -> list[int]:
    """Make the last slots of the schedule due, and return them."""
    slots: list[int] = []
    before_that = jobs.store.connection.now()
    for _ in range(SLOTS):
        slots.insert(0, find_last_slot(CRON, "UTC", before_that))
        before_that = slots[0] - 1
    before = stored_schedule(jobs, name)
    after = before.schedule.model_copy(update={"next_slot": slots[0]})
    assert jobs.store.schedules.replace(before, after)
    return slots


@pytest.mark.parametrize("moment", POINTS)
def test_each_slot_makes_one_job_when_all_supervisors_are_killed(
    system: RunningSystem, points: Path, moment: str
) -> None:
    jobs, name, point = system.jobs(), moment.replace(" ", "-"), POINTS[moment]
    request = Request("How does HNSW work?", documents={"a.md": b"HNSW is a graph of layers."})
    jobs.add_schedule(name, request, OPTIONS)

    arm(points, point, "kill")
    slots = due_slots(jobs, name)
    wait_until(lambda: list(points.glob(f"{point}@*")), expected="the first kill")
    kill_supervisors(system)
    arm(points, point, "kill")
    wait_until(lambda: len(list(points.glob(f"{point}@*"))) == 2, expected="the second kill")
    kill_supervisors(system)
    wait_until(lambda: is_done(jobs, name), timeout_s=120, expected="the jobs of all slots")

    schedule = stored_schedule(jobs, name).schedule
    job_ids = jobs.store.job_ids
    of_slots = [job_ids.derive(schedule.tenant, build_slot_key(schedule, slot)) for slot in slots]
    started = {job.job_id: job for job in jobs.newest(100) if job.title == request.text}
    assert set(of_slots) == set(started)
    assert {job.status for job in started.values()} == {JobStatus.OK}
    assert [followed(jobs, job_id) for job_id in of_slots] == [None, *of_slots[:-1]]
    for file in points.glob(f"{point}@*"):
        file.unlink()
    for job_id in of_slots:
        jobs.delete(job_id)
    jobs.remove_schedule(name)
    jobs.store.connection.close()


def stored_schedule(jobs: Client, name: str) -> StoredSchedule:
    schedule = jobs.store.schedules.find("default", name)
    assert schedule is not None
    return schedule


def is_done(jobs: Client, name: str) -> bool:
    status = jobs.schedule(name)
    if status.started < SLOTS or status.last_job is None:
        return False
    return jobs.info(JobId(status.last_job)).status.has_ended


def followed(jobs: Client, job_id: JobId) -> JobId | None:
    """Return the job that this job continues, or None."""
    submitted = jobs.store.journal.read(job_id)[0].event
    assert isinstance(submitted, JobSubmitted)
    return submitted.after.job_id if submitted.after else None


def kill_supervisors(system: RunningSystem) -> None:
    """Kill every supervisor that lives, so that none is left from before."""
    for name, pid in system.processes.get_pids().items():
        if name in SUPERVISORS:
            with suppress(ProcessLookupError):  # the supervisor at the failpoint has just died
                os.kill(pid, signal.SIGKILL)
