"""Equal handoffs of jobs that run at the same time pay for one run, also while processes die."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.types.events import HandoffFinished, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, json_reply
from tests.e2e.commands import Handoff
from tests.e2e.fleet import ENVELOPE, SHORT_LEASES
from tests.running_system import SUPERVISOR, RunningSystem, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

SPECIALIST = """---
name: clerk
description: Answers questions about documents.
share: true
---
Answer the question.
"""
WORKERS = ("w1", "w2")


@dataclass(slots=True)
class HeldModel:
    """Model that counts the calls of each task, and holds them until `release`."""

    calls: Counter[str] = field(default_factory=Counter)
    release: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Json) -> Reply:
        task = first_message_text(request).partition("</task>")[0].rpartition(" ")[2]
        self.calls[task] += 1
        return json_reply(ENVELOPE, stall=self.release)


@dataclass(slots=True)
class Office:
    """A supervisor and two workers, and the model that they call."""

    system: RunningSystem
    jobs: Client
    model: HeldModel
    points: Path
    """Folder of the armed failpoints."""

    def submit(self, name: str) -> JobId:
        request = Request(f"Answer {name}", mode=Mode.SINGLE, specialists=("clerk",))
        return self.jobs.submit(request)

    def begin(self, name: str) -> JobId:
        """Submit a job, and wait until its handoff calls the model."""
        calls = self.model.calls[name]
        job_id = self.submit(name)
        wait_until(lambda: self.model.calls[name] > calls, expected="the call of the model")
        return job_id

    def handoff_of(self, job_id: JobId) -> HandoffId | None:
        for recorded in self.jobs.events(job_id, follow=False):
            if recorded.event.type == "handoff_issued":
                return recorded.event.handoff_id
        return None

    def waits(self, job_id: JobId) -> bool:
        """Return whether the handoff of a job waits for an equal one."""
        handoff_id = self.handoff_of(job_id)
        if handoff_id is None:
            return False
        info = self.jobs.store.jobs.read_handoffs(job_id, [handoff_id])[handoff_id]
        return info.doing.startswith("equal handoff j-") and info.deferred_until is not None

    def follow(self, name: str) -> JobId:
        """Submit a job, and wait until its handoff waits for an equal one."""
        job_id = self.submit(name)
        wait_until(partial(self.waits, job_id), expected="the wait for an equal handoff")
        return job_id

    def finished(self, job_id: JobId) -> HandoffFinished:
        """Return the end of the only handoff of a job, after the end of the job."""
        assert self.jobs.wait(job_id, MAX_WAIT_S) is JobStatus.OK
        events = [recorded.event for recorded in self.jobs.events(job_id, follow=False)]
        (finished,) = (event for event in events if isinstance(event, HandoffFinished))
        return finished

    def arm(self, point: str) -> None:
        (self.points / point).write_text("kill")

    def wait_for(self, point: str) -> None:
        """Wait until a process has reached the failpoint. Its write may be visible before."""
        wait_until(lambda: list(self.points.glob(f"{point}@*")), expected=f"a process at {point}")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("shared_runs")
    points = folder / "points"
    points.mkdir()
    (folder / "specialists").mkdir()
    (folder / "specialists" / "clerk.md").write_text(SPECIALIST)
    model = HeldModel()
    with MessagesServer(model) as server:
        environment = {
            **model_environment(server, **SHORT_LEASES),
            "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
        }
        with running_system(folder, (SUPERVISOR,), environment) as system:
            system.environment[FAILPOINTS] = str(points)
            for name in WORKERS:
                worker = system.celery_worker(name, "handoff_queue.workers.app", "clerk", 2)
                system.processes.start(replace(worker, is_killed_on_purpose=True))
            system.processes.wait_until_ready()
            jobs = system.jobs()
            yield Office(system, jobs, model, points)
            model.release.set()
            jobs.store.connection.close()


@pytest.fixture(autouse=True)
def _held(office: Office) -> Iterator[None]:
    office.model.release.clear()
    yield
    office.model.release.set()
    for armed in office.points.iterdir():
        armed.unlink()


def test_two_jobs_with_an_equal_step_pay_for_one_run(office: Office, handoff: Handoff) -> None:
    first = office.begin("once")
    second = office.follow("once")
    office.model.release.set()

    paid, copied = office.finished(first), office.finished(second)

    assert office.model.calls["once"] == 1
    assert paid.shared is None
    assert copied.shared is not None
    assert (copied.shared.job_id, copied.usage.total_tokens) == (first, 0)
    results = [office.jobs.result(job_id) for job_id in (first, second)]
    assert results[0].answer == results[1].answer
    assert results[1].usage["cost_usd"] == 0
    shown = handoff.run("show", second, HANDOFF_REDIS_URL=office.system.redis_url).stdout
    assert f"shared with {first} {paid.handoff_id}, paid there" in shown


def test_waiting_handoffs_take_no_slots_and_pay_for_one_run(office: Office) -> None:
    first = office.begin("many")
    others = [office.submit("many") for _ in range(20)]
    wait_until(lambda: all(map(office.waits, others)), expected="all waits")
    office.model.release.set()

    shared = [office.finished(job_id).shared for job_id in others]

    assert office.model.calls["many"] == 1
    assert {run.job_id for run in shared if run is not None} == {first}
    assert None not in shared


def test_after_a_cancel_one_of_the_waiting_jobs_runs(office: Office) -> None:
    first = office.begin("cancelled")
    others = [office.follow("cancelled"), office.follow("cancelled")]
    office.jobs.cancel(first)
    wait_until(lambda: office.model.calls["cancelled"] == 2, expected="the next run")
    office.model.release.set()

    shared = [office.finished(job_id).shared for job_id in others]

    assert office.model.calls["cancelled"] == 2
    assert sum(run is None for run in shared) == 1


@pytest.mark.parametrize(
    ("point", "most_calls"),
    [("script.finish.before", 2), ("script.finish.after", 1)],
)
def test_the_kill_of_the_running_worker_loses_nothing(
    office: Office, point: str, most_calls: int
) -> None:
    """Before the end is stored, the reply is lost with the worker, and its call is repeated."""
    name = point.replace(".", "-")
    first = office.begin(name)
    second = office.follow(name)
    office.arm(point)
    office.model.release.set()

    paid, copied = office.finished(first), office.finished(second)

    office.wait_for(point)
    assert office.model.calls[name] <= most_calls
    assert (paid.shared, copied.shared and copied.shared.job_id) == (None, first)


@pytest.mark.parametrize("point", ["script.claim.before", "script.claim.after"])
def test_the_kill_of_a_worker_that_begins_to_wait_loses_nothing(office: Office, point: str) -> None:
    name = f"wait-{point.replace('.', '-')}"
    first = office.begin(name)
    office.arm(point)
    second = office.follow(name)
    office.wait_for(point)
    office.model.release.set()

    paid, copied = office.finished(first), office.finished(second)

    assert (paid.shared, copied.shared and copied.shared.job_id) == (None, first)


@pytest.mark.parametrize("point", ["script.claim.before", "script.claim.after"])
def test_the_kill_of_a_woken_worker_pays_nothing(office: Office, point: str) -> None:
    name = f"woken-{point.replace('.', '-')}"
    first = office.begin(name)
    second = office.follow(name)
    office.arm(point)
    office.model.release.set()

    paid, copied = office.finished(first), office.finished(second)

    office.wait_for(point)
    assert (paid.shared, copied.shared and copied.shared.job_id) == (None, first)
    assert office.model.calls[name] == 1


@pytest.mark.parametrize("point", ["script.finish.before", "script.finish.after"])
def test_the_kill_of_a_copying_worker_pays_nothing(office: Office, point: str) -> None:
    """The pause separates the end of the run from the copy."""
    name = f"copy-{point.replace('.', '-')}"
    first = office.begin(name)
    second = office.follow(name)
    pauses = office.system.admin.store.pauses
    pauses.pause("clerk", "the test arms a failpoint")
    office.model.release.set()
    office.finished(first)
    office.arm(point)
    pauses.unpause("clerk")

    copied = office.finished(second)

    office.wait_for(point)
    assert copied.shared is not None
    assert office.model.calls[name] == 1
