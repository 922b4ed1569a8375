"""The id of a job opens its hash, its list of fetched pages and its journal to every worker. So no
worker can learn the id of a job in which its specialists have no handoff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from redis.exceptions import NoPermissionError, ResponseError
from redis.utils import str_if_bytes

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.memory_notes import HandoffNotes
from handoff_queue.shared.store.redis.acl import RedisDatabase, build_rules, build_worker_access
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.memory_notes import NewNote
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from tests.doubles.call_questions import ask
from tests.doubles.jobs import a_job, granted_claim, issue
from tests.hostile.redis_readers import (
    FIGURES,
    READERS,
    SERVER_COMMANDS,
    Recording,
    has_text,
    read_values,
    recorded_commands,
)
from tests.running_system import SUPERVISOR, RunningSystem, running_system
from tests.system_users import refused_commands
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ATTACKER = "worker-analyst"
WORKERS = tuple((name, "handoff_queue.workers.app", name) for name in ("analyst", "writer"))


@dataclass(frozen=True)
class ForeignWork:
    """Jobs of the tenant globex without a handoff of the attacker's specialist, and the commands
    that Redis has run for these jobs.
    """

    system: RunningSystem
    admin: Any
    recording: Recording
    job_ids: tuple[JobId, ...]

    @property
    def attacker(self) -> Any:
        return redis.Redis.from_url(self.system.url_of(ATTACKER))

    def find_readers(self, key: str) -> list[str]:
        """Return the commands with which the attacker reads the values of a key."""
        readers: list[str] = []
        for name, words in READERS.items():
            command = [key if word == "KEY" else word for word in words]
            answer = self.admin.execute_command("ACL", "DRYRUN", ATTACKER, *command)
            if answer in (b"OK", "OK"):
                readers.append(name)
        return readers


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignWork]:
    """Yield a system that has done jobs of the tenant globex, and has answered control commands."""
    folder = tmp_path_factory.mktemp("foreign")
    with (
        running_system(folder, (SUPERVISOR, *WORKERS)) as system,
        redis.Redis.from_url(system.admin_url) as admin,
    ):
        admin.config_set("slowlog-log-slower-than", 0)
        url = system.url_of("worker-writer")
        worker = open_store(url, Settings(redis_url=SecretStr(url)))
        with recorded_commands(system.admin_url) as recording:
            job_ids = (*run_jobs(system.jobs(), system.admin), call_model(system.admin, worker))
            write_note(worker, job_ids[0], system.jobs().store.notes.make_name("globex"))
            worker.dead_letters.add("writer", "a reason", job_ids[0])
            entry = AuditEntry(at=1.0, action=AuditAction.REFUSE, subject=job_ids[0])
            worker.refusals.report(entry)
            command_workers(system, job_ids[0])
        worker.connection.close()
        assert refused_commands(admin) == []
        yield ForeignWork(system, admin, recording, job_ids)
        refused_commands(admin)
        # A supervisor takes the report of a refusal at its next sweep.
        wait_until(lambda: not admin.exists(keys.REFUSALS), expected="an empty list of reports")


def run_jobs(jobs: Client, admin: Client) -> list[JobId]:
    """Run jobs with a plan, with an idempotency key, of a schedule, and with a paused specialist to
    which a user writes.
    """
    request = Request("What is Redis?", specialists=("writer",), tenant="globex")
    alone = replace(request, mode=Mode.SINGLE)
    jobs.add_schedule("daily", alone, ScheduleOptions(cron="0 0 1 1 *"))
    admin.pause("writer")
    job_ids = [
        jobs.submit(replace(request, mode=Mode.TEAM)),
        jobs.submit(replace(alone, idempotency_key="order-7")),
        jobs.run_schedule("daily", "globex"),
    ]
    jobs.say(job_ids[0], "Use simple words.")
    admin.unpause("writer")
    for job_id in job_ids:
        assert jobs.wait(job_id, 60).has_ended
    return job_ids


def write_note(worker: Store, job_id: JobId, name: str) -> None:
    """Write a note for later jobs of the tenant, as an agent of a job."""
    digest = compute_digest("Redis is a database.")
    evidence = Citation(source="redis.md", digest=digest, start=0, end=5, quote="Redis")
    note = NewNote("redis/kind", "Redis is a database.", evidence, ("document",), "call")
    assert HandoffNotes(worker.connection, job_id, "writer", name).write(note, replaces=None)


def call_model(admin: Client, worker: Store) -> JobId:
    """Return a job with the first call to a model, a call that waits, and a question about the call
    of a tool.
    """
    expected, worst = ExpectedUsage("account:some-model", 400, 500), WorstCase(1_000, 1_000, 0)
    job_id = a_job(admin.store, "globex")
    issue(admin.store, job_id, "first.1", "second.1", "third.1", role="writer")
    claims = (granted_claim(worker, job_id, f"{name}.1") for name in ("first", "second", "third"))
    first, second, third = claims
    assert first.reserve(worst, expected) is None
    first.report_limits(RateLimits(requests=Allowance(6, 0)))
    assert second.reserve(worst, expected) is not None
    ask(third)
    return job_id


def command_workers(system: RunningSystem, job_id: JobId) -> None:
    """Send control commands to all workers, and one about a task, as a person can do in Flower."""
    app = make_app("client", system.redis_url, Settings(), [])
    inspect = app.control.inspect(timeout=2)
    assert len(inspect.stats()) == len(WORKERS) + 1
    assert inspect.active_queues()
    app.control.revoke(f"{job_id}/answer.1")
    app.close()


def test_no_key_that_a_worker_may_read_ever_had_the_id_of_a_foreign_job(work: ForeignWork) -> None:
    seen = 0
    leaks: dict[str, list[str]] = {}
    for job_id in work.job_ids:
        for key in work.recording.find_keys(job_id):
            seen += 1
            if readers := work.find_readers(key):
                leaks[key] = readers

    assert leaks == {}
    assert seen > 10, "the jobs, the queues and the sets of waiting work"


def test_no_value_that_a_worker_may_read_has_the_id_of_a_foreign_job(work: ForeignWork) -> None:
    leaks: set[bytes] = set()
    read = 0
    for key in work.admin.scan_iter():
        name = key.decode()
        if any(job_id in name for job_id in work.job_ids) or not work.find_readers(name):
            continue
        read += 1
        for value in read_values(work.admin, key):
            if any(has_text(value, job_id) for job_id in work.job_ids):
                leaks.add(key)

    assert leaks == set()
    assert read > 10, "the counters, the rate limits and the memory"


def test_no_channel_of_a_worker_had_the_id_of_a_foreign_job(work: ForeignWork) -> None:
    channels = {name for job_id in work.job_ids for name in work.recording.find_channels(job_id)}

    assert channels, "the events of Celery"
    for channel in channels:
        for command in ("SUBSCRIBE", "PSUBSCRIBE"):
            with work.attacker as attacker, pytest.raises(NoPermissionError):
                attacker.execute_command(command, channel)


@pytest.mark.parametrize("command", SERVER_COMMANDS, ids=" ".join)
def test_no_figure_of_the_server_has_the_id_of_a_foreign_job(
    work: ForeignWork, command: tuple[str, ...]
) -> None:
    with work.attacker as attacker:
        try:
            answer = str(attacker.execute_command(*command))
        except ResponseError as error:
            answer = str(error)

    assert not any(job_id in answer for job_id in work.job_ids)


def test_each_command_that_reads_a_value_for_a_worker_is_known_here(work: ForeignWork) -> None:
    rules = " ".join(build_rules(build_worker_access(["analyst"]), RedisDatabase()))
    granted = set(re.findall(r"\+([a-z]+)", rules))
    answers = work.admin.acl_cat("read")
    reads = set(map(str_if_bytes, answers)) | {"set", "brpop", "rpop", "zpopmin"}

    assert granted & reads - FIGURES == set(READERS) & granted
