"""Schedules on a real store: each slot has one job, wherever a supervisor dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.chaos.fleet import arm
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.schedules import StoredSchedule
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import BudgetSpent, UnknownSchedule, UserError
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus, JobSubmitted
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.schedule import Missed, Overlap, Schedule
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.client.cron import find_last_slot, next_slot
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedule_decisions import build_slot_key
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from handoff_queue.supervisor.engine import schedule_starter
from handoff_queue.supervisor.engine.schedule_starter import ScheduleStarter
from handoff_queue.supervisor.workflows import read_workflow
from tests.doubles.jobs import granted_claim, issue, model_reply
from tests.supervisor.shell import SETTINGS

CRON = "0 0 1 1 *"
"""One slot a year, so that no slot passes during a test."""
YEARLY = ScheduleOptions(CRON)
QUEUED = replace(YEARLY, overlap=Overlap.QUEUE, missed=Missed.ALL)
REQUEST = Request("What is new?")
POINTS = (
    "script.replace_schedule.before",
    "script.replace_schedule.after",
    "script.commit.before",
    "script.commit.after",
)


@pytest.fixture
def starter(jobs: Client) -> ScheduleStarter:
    return starter_of(jobs)


def starter_of(jobs: Client) -> ScheduleStarter:
    return ScheduleStarter(jobs.store, jobs._dispatcher, SETTINGS)


@contextmanager
def jobs_of(identity: str, redis_url: str, folder: Path) -> Iterator[Client]:
    """Yield a client that signs with the key of this identity."""
    key = find_private_key_file(folder, identity)
    jobs = connect(redis_url, SETTINGS.model_copy(update={"keys": folder, "signing_key": key}))
    try:
        yield jobs
    finally:
        jobs.close()


def id_of_slot(jobs: Client, schedule: Schedule, slot: int) -> JobId:
    return jobs.store.job_ids.derive(schedule.tenant, build_slot_key(schedule, slot))


def stored(jobs: Client, name: str = "news") -> StoredSchedule:
    schedule = jobs.store.schedules.find("default", name)
    assert schedule is not None
    return schedule


def set_back(jobs: Client, count: int, name: str = "news") -> list[int]:
    """Make the last slots of a schedule due that no supervisor has taken, and return them."""
    slots: list[int] = []
    before_that = jobs.store.connection.now()
    for _ in range(count):
        slots.insert(0, find_last_slot(CRON, "UTC", before_that))
        before_that = slots[0] - 1
    before = stored(jobs, name)
    after = before.schedule.model_copy(update={"next_slot": slots[0]})
    assert jobs.store.schedules.replace(before, after)
    return slots


def end(jobs: Client, job_id: JobId) -> None:
    jobs.store.journal.append(job_id, JobEnded(status=JobStatus.OK), {"status": "ok"})


def end_all(jobs: Client) -> None:
    for info in jobs.newest(100):
        if not info.status.has_ended:
            end(jobs, info.job_id)


def start_all(jobs: Client, rounds: int) -> None:
    """Let a supervisor sweep, and end the started job, several times."""
    for _ in range(rounds):
        starter_of(jobs).start_due()
        end_all(jobs)


def started_jobs(jobs: Client) -> set[JobId]:
    return {info.job_id for info in jobs.newest(100)}


def test_a_due_slot_starts_one_job_with_the_documents_of_the_schedule(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", replace(REQUEST, documents={"a.md": b"HNSW is a graph."}), QUEUED)
    (slot,) = set_back(jobs, 1)

    starter.start_due()
    starter.start_due()

    job_id = id_of_slot(jobs, stored(jobs).schedule, slot)
    submitted = jobs.store.journal.read(job_id)[0].event
    assert started_jobs(jobs) == {job_id}
    assert isinstance(submitted, JobSubmitted)
    assert (submitted.title, submitted.document_count) == ("What is new?", 1)
    assert [text.path for text in jobs.export(job_id, texts=True).documents] == ["a.md"]
    status = jobs.schedule("news")
    assert (status.last_job, status.last_slot, status.started) == (job_id, slot, 1)
    assert status.running == (job_id,)
    end(jobs, job_id)
    assert jobs.schedule("news").running == ()
    assert status.next_slot == next_slot(CRON, "UTC", slot)


@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_a_supervisor_that_dies_anywhere_leaves_one_job_for_each_slot(
    jobs: Client, armed: Path, first: str, second: str
) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    schedule, slots = stored(jobs).schedule, set_back(jobs, 3)

    for point in (first, second):
        arm(armed, point, "error")
        with pytest.raises(RuntimeError, match="an internal error"):
            start_all(jobs, 5)
        end_all(jobs)
    start_all(jobs, len(slots))

    assert started_jobs(jobs) == {id_of_slot(jobs, schedule, slot) for slot in slots}
    assert jobs.schedule("news").started == len(slots)


def test_two_supervisors_at_the_same_slot_start_one_job(jobs: Client, redis_url: str) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    set_back(jobs, 1)
    other = Client(jobs.store, SETTINGS)
    due = jobs.store.schedules.list_due()

    for client in (jobs, other):
        starter = starter_of(client)
        for schedule in due:  # the second supervisor has read the schedule before the first acted
            starter._advance(schedule)

    assert len(started_jobs(jobs)) == 1
    assert jobs.schedule("news").started == 1


def test_many_due_schedules_all_start_if_a_sweep_has_time_for_one(
    jobs: Client, starter: ScheduleStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_starter, "MAX_S", 0)
    names = [f"news-{number}" for number in range(3)]
    for name in names:
        jobs.add_schedule(name, REQUEST, QUEUED)
        set_back(jobs, 1, name)

    for number in range(1, len(names) + 1):
        starter.start_due()
        assert len(started_jobs(jobs)) == number


def test_a_running_job_skips_the_next_slot_with_a_note(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", REQUEST, YEARLY)
    first = jobs.run_schedule("news")
    set_back(jobs, 1)
    starter.start_due()

    status = jobs.schedule("news")
    assert started_jobs(jobs) == {first}
    assert status.skipped == 1
    assert f"was skipped: {first} has not ended" in status.note


def test_the_overlap_cancel_cancels_the_running_job_once_and_then_starts(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", REQUEST, replace(YEARLY, overlap=Overlap.CANCEL))
    first = jobs.run_schedule("news")
    set_back(jobs, 1)
    starter.start_due()
    starter.start_due()
    kinds = [recorded.event.type for recorded in jobs.store.journal.read(first)]
    end(jobs, first)
    starter.start_due()

    assert kinds.count("cancel_requested") == 1
    assert len(started_jobs(jobs)) == 2


def test_the_overlap_cancel_works_with_the_key_of_a_supervisor(
    redis_url: str, tmp_path: Path
) -> None:
    make_keys(tmp_path)
    with jobs_of("client", redis_url, tmp_path) as jobs:
        jobs.add_schedule("news", REQUEST, replace(YEARLY, overlap=Overlap.CANCEL))
        first = jobs.run_schedule("news")
        set_back(jobs, 1)
        with jobs_of("supervisor", redis_url, tmp_path) as supervisor:
            starter_of(supervisor).start_due()

        (cancelled,) = [
            recorded.event
            for recorded in jobs.store.journal.read(first)
            if isinstance(recorded.event, CancelRequested)
        ]
        assert cancelled.by == "schedule news"
        assert [(entry.action, entry.detail) for entry in jobs.audit(first)][1:] == [
            (AuditAction.CANCEL, "schedule news")
        ]


def test_a_job_starts_with_a_note_if_the_last_job_has_no_result(
    jobs: Client, starter: ScheduleStarter
) -> None:
    options = replace(QUEUED, follows_last=True)
    jobs.add_schedule("news", REQUEST, options)
    first = jobs.run_schedule("news")
    end(jobs, first)
    set_back(jobs, 1)
    starter.start_due()

    status = jobs.schedule("news")
    assert status.last_job != first
    assert f"{status.last_job} does not continue the last job: {first} has no result" in status.note


@pytest.mark.parametrize(("shares_runs", "alone"), [(True, None), (False, b"1")])
def test_the_jobs_of_a_schedule_share_runs_if_its_request_does(
    jobs: Client, shares_runs: bool, alone: bytes | None
) -> None:
    jobs.add_schedule("news", replace(REQUEST, shares_runs=shares_runs), YEARLY)

    job_id = jobs.run_schedule("news")

    assert jobs.store.connection.redis.hget(keys.job(job_id), "alone") == alone


@pytest.mark.parametrize("point", POINTS)
def test_a_repeated_run_has_one_job_wherever_its_first_call_ended(
    jobs: Client, armed: Path, point: str
) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    arm(armed, point, "error")
    with pytest.raises(RuntimeError, match="an internal error"):
        jobs.run_schedule("news", idempotency_key="k1")

    job_id = jobs.run_schedule("news", idempotency_key="k1")

    status = jobs.schedule("news")
    assert started_jobs(jobs) == {job_id}
    assert (status.started, status.running, status.last_job) == (1, (job_id,), job_id)


def test_the_money_of_the_month_is_counted_and_stops_the_schedule(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", REQUEST, replace(QUEUED, max_microusd_per_month=100))
    first = jobs.run_schedule("news")
    spend(jobs, first, 60)
    is_open = jobs.schedule("news").spent_microusd
    second = jobs.run_schedule("news")
    spend(jobs, second, 60)
    end_all(jobs)
    set_back(jobs, 1)
    starter.start_due()

    status = jobs.schedule("news")
    assert (is_open, status.spent_microusd) == (60, 120)
    assert "was skipped: $0.00012 of $0.0001 of this month are spent" in status.note
    assert started_jobs(jobs) == {first, second}
    with pytest.raises(BudgetSpent, match=r"of this month are spent"):
        jobs.run_schedule("news")
    jobs.delete(first)
    assert jobs.schedule("news").spent_microusd == 120, "a deleted job has spent its money, too"


def spend(jobs: Client, job_id: JobId, microusd: int) -> None:
    issue(jobs.store, job_id, "find.1")
    claimed = granted_claim(jobs.store, job_id, "find.1")
    claimed.reserve(WorstCase(500, 100, microusd))
    claimed.checkpoint(model_reply(100, 20, microusd))


def test_a_slot_of_a_tenant_with_too_many_open_jobs_is_skipped_and_the_next_slot_starts(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_open_jobs=1))
    other = jobs.submit(Request("Compare."))
    set_back(jobs, 1)
    starter.start_due()
    skipped = jobs.schedule("news")
    end(jobs, other)
    set_back(jobs, 1)
    starter.start_due()

    assert "was skipped: tenant default has reached its limit of open jobs" in skipped.note
    assert (skipped.skipped, skipped.started) == (1, 0)
    assert jobs.schedule("news").started == 1


def test_a_paused_schedule_starts_nothing_until_it_is_unpaused(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    jobs.pause_schedule("news")
    set_back(jobs, 5)
    starter.start_due()

    assert started_jobs(jobs) == set()
    assert jobs.schedule("news").next_slot is None
    assert jobs.unpause_schedule("news").waiting == ()
    starter.start_due()
    assert started_jobs(jobs) == set()


def test_a_removed_schedule_leaves_its_jobs_and_nothing_else(jobs: Client) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    job_id = jobs.run_schedule("news")
    schedule = stored(jobs).schedule
    jobs.remove_schedule("news")

    assert jobs.schedules() == []
    assert (
        jobs.store.connection.redis.exists(
            keys.SCHEDULES, keys.SCHEDULE_SLOTS, keys.schedule_job(schedule.id)
        )
        == 0
    )
    assert started_jobs(jobs) == {job_id}


def test_a_schedule_that_is_added_again_starts_new_jobs(
    jobs: Client, starter: ScheduleStarter
) -> None:
    for _ in range(2):
        jobs.add_schedule("news", REQUEST, QUEUED)
        set_back(jobs, 1)
        starter.start_due()
        jobs.remove_schedule("news")

    assert len(started_jobs(jobs)) == 2


def test_a_job_that_is_refused_is_skipped_with_the_reason(
    jobs: Client, starter: ScheduleStarter
) -> None:
    jobs.add_schedule("news", REQUEST, QUEUED)
    jobs.store.connection.redis.delete(keys.schedule_job(stored(jobs).schedule.id))
    set_back(jobs, 1)
    starter.start_due()

    assert "was skipped: the job of the schedule is not stored" in jobs.schedule("news").note


def test_tenants_may_use_the_same_name(jobs: Client) -> None:
    for tenant in ("acme", "globex"):
        jobs.add_schedule("news", replace(REQUEST, tenant=tenant), YEARLY)

    assert [schedule.tenant for schedule in jobs.schedules()] == ["acme", "globex"]
    assert [schedule.tenant for schedule in jobs.schedules("acme")] == ["acme"]
    job_id = jobs.run_schedule("news", "acme")
    assert jobs.store.jobs.find_owner(job_id) == "acme"


def test_every_change_is_in_the_audit(jobs: Client) -> None:
    jobs.add_schedule("news", REQUEST, YEARLY)
    jobs.pause_schedule("news")
    jobs.unpause_schedule("news")
    jobs.remove_schedule("news")

    assert [(entry.action, entry.subject) for entry in jobs.audit()] == [
        (AuditAction.ADD_SCHEDULE, "news"),
        (AuditAction.PAUSE_SCHEDULE, "news"),
        (AuditAction.UNPAUSE_SCHEDULE, "news"),
        (AuditAction.REMOVE_SCHEDULE, "news"),
    ]


def refusals() -> Iterator[tuple[str, str, Request, ScheduleOptions]]:
    """Yield the message, and the name, the request and the options that cause it."""
    all_missed = replace(YEARLY, missed=Missed.ALL)
    workflow = replace(REQUEST, workflow=read_workflow("brief"))
    dear = replace(REQUEST, model="unknown-model")
    yield "'Bad Name' cannot name a schedule", "Bad Name", REQUEST, YEARLY
    yield "'61 .* is not a cron expression", "news", REQUEST, ScheduleOptions("61 * * * *")
    yield "no date matches", "news", REQUEST, ScheduleOptions("0 0 30 2 *")
    yield "there is no time zone 'Mars'", "news", REQUEST, ScheduleOptions("@daily", "Mars")
    yield "missed all needs overlap queue", "news", REQUEST, all_missed
    yield "max_microusd_per_month", "news", REQUEST, replace(YEARLY, max_microusd_per_month=0)
    yield "the request is empty", "news", Request(" "), YEARLY
    with_key = replace(REQUEST, idempotency_key="k")
    yield r"remove idempotency_key \('k'\) from the request", "news", with_key, YEARLY
    yield (
        r"remove after \('a-job'\) from the request",
        "news",
        replace(REQUEST, after=JobId("a-job")),
        YEARLY,
    )
    yield "a schedule with a workflow", "news", workflow, replace(QUEUED, follows_last=True)
    yield "the price of unknown-model", "news", dear, replace(QUEUED, max_microusd_per_month=1)


@pytest.mark.parametrize(("message", "name", "request_", "options"), list(refusals()))
def test_a_schedule_that_cannot_work_is_refused_with_one_line(
    jobs: Client, message: str, name: str, request_: Request, options: ScheduleOptions
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        jobs.add_schedule(name, request_, options)

    assert "\n" not in str(refused.value)
    assert jobs.schedules() == []


def test_a_name_that_is_taken_or_unknown_is_named(jobs: Client) -> None:
    jobs.add_schedule("news", REQUEST, YEARLY)

    with pytest.raises(UserError, match="there is a schedule news already: remove it first"):
        jobs.add_schedule("news", REQUEST, YEARLY)
    for call in (jobs.schedule, jobs.pause_schedule, jobs.run_schedule, jobs.remove_schedule):
        with pytest.raises(UnknownSchedule, match=r"there is no schedule 'nws' .*news"):
            call("nws")


def test_limits_of_the_request_are_those_of_each_job(
    jobs: Client, starter: ScheduleStarter
) -> None:
    limited = replace(REQUEST, limits=JobLimits(max_tokens=5_000))
    jobs.add_schedule("news", limited, QUEUED)
    job_id = jobs.run_schedule("news")

    submitted = jobs.store.journal.read(job_id)[0].event
    assert isinstance(submitted, JobSubmitted)
    assert submitted.limits.max_tokens == 5_000
