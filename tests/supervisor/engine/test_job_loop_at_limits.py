"""A job at a limit ends with its results so far. A job that our code cannot continue is ended."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.journal import MAX_RETRY_DELAY_MS
from handoff_queue.shared.store.payloads import pack
from handoff_queue.shared.types.events import JobEnded, JobStatus, PlanMade
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.failure_guard import MAX_FAILURES
from tests.doubles.jobs import handoff_key
from tests.doubles.webhook_server import WebhookServer
from tests.supervisor.shell import Shell
from tests.waiting import wait_until


def job_with_one_step_done(shell: Shell, limits: JobLimits) -> JobId:
    job_id = shell.submit(limits)
    shell.advance(job_id)
    first, *others = shell.open(job_id)
    assert others
    shell.do(job_id, first)
    shell.advance(job_id)
    return job_id


@pytest.mark.slow
def test_at_its_deadline_a_job_ends_with_its_results_so_far(shell: Shell) -> None:
    job_id = job_with_one_step_done(shell, JobLimits(max_seconds=2))
    until = shell.store.journal.read(job_id)[0].at + 2
    wait_until(lambda: shell.store.connection.now() > until, expected="the deadline")
    shell.another().advance(job_id)

    result = shell.jobs.result(job_id)
    assert result.status is JobStatus.PARTIAL
    assert "found." in str(result.answer)
    assert "the job's 2 s are over" in str(result.answer)


@pytest.mark.slow
def test_at_its_handoff_limit_a_job_ends_with_its_results_so_far(shell: Shell) -> None:
    job_id = job_with_one_step_done(shell, JobLimits(max_handoffs=3))
    for event in shell.open(job_id):
        shell.do(job_id, event)
    shell.advance(job_id)

    assert shell.jobs.result(job_id).status is JobStatus.PARTIAL


def evaluate_again(shell: Shell, job_id: JobId, times: int) -> None:
    """Evaluate the job `times` times, as the sweeper does, without its delays."""
    for _ in range(times):
        shell.store.connection.redis.zadd(keys.DUE, {job_id: 1})
        shell.advance(job_id)


def test_a_journal_of_a_newer_version_is_one_dead_letter_and_is_left_to_that_version(
    shell: Shell,
) -> None:
    job_id, redis = shell.submit(), shell.store.connection.redis
    redis.rpush(keys.log(job_id), '1 {"type": "of_another_version"}')
    for times in range(1, MAX_FAILURES + 3):
        before = shell.store.connection.now()
        evaluate_again(shell, job_id, 1)
        asked_at = redis.zscore(keys.DUE, job_id) / 1000 - min(2**times, MAX_RETRY_DELAY_MS / 1000)
        after = shell.store.connection.now()
        assert before - 0.9 < asked_at < after + 0.9, "the delay doubles from 2 s"

    (letter,) = shell.store.dead_letters.list_newest()
    assert letter.body == job_id
    assert "cannot continue" in letter.reason
    assert shell.jobs.info(job_id).status == "queued"


def test_a_job_that_our_own_code_cannot_carry_on_is_tried_again_and_then_ends_with_that_reason(
    shell: Shell,
) -> None:
    job_id = shell.submit()
    shell.advance(job_id)
    (plan_made,) = [event for event in shell.events(job_id) if isinstance(event, PlanMade)]
    for event in shell.open(job_id):
        shell.do(job_id, event)
    shell.store.connection.redis.hdel(keys.blobs(job_id), plan_made.plan.digest)
    evaluate_again(fresh := shell.another(), job_id, MAX_FAILURES - 1)
    assert fresh.jobs.info(job_id).status == "running"

    evaluate_again(fresh, job_id, 1)

    assert fresh.jobs.info(job_id).status == "failed"
    last = fresh.events(job_id)[-1]
    assert isinstance(last, JobEnded)
    assert "an internal error (StoreError)" in str(last.reason)


def test_a_lost_handoff_of_a_newer_version_is_left_to_that_version(
    shell: Shell,
) -> None:
    job_id, redis = shell.submit(), shell.store.connection.redis
    shell.advance(job_id)
    lost = shell.open(job_id)[0]
    text = shell.store.payloads.get(job_id, [lost.handoff.digest])[lost.handoff.digest]
    newer = text.replace('"schema_version":1', '"schema_version":2')
    redis.hset(keys.blobs(job_id), compute_digest(newer), pack(newer))
    _replace_in_journal(shell, job_id, lost.handoff.digest, compute_digest(newer))
    redis.hset(handoff_key(shell.store, job_id, lost.handoff_id), "lost", 1)
    fresh = shell.another()

    for _ in range(MAX_FAILURES + 2):
        redis.zadd(keys.DUE, {job_id: 1})
        fresh.advance(job_id, [lost.handoff_id])

    assert fresh.jobs.info(job_id).status == "running"
    assert "schema_version" in shell.store.dead_letters.list_newest()[0].reason


def _replace_in_journal(shell: Shell, job_id: JobId, old: str, new: str) -> None:
    """Replace one digest by another in the stored journal of a job."""
    redis, log = shell.store.connection.redis, keys.log(job_id)
    entries = redis.lrange(log, 0, -1)
    ((place, entry),) = [
        (place, entry) for place, entry in enumerate(entries) if old.encode() in entry
    ]
    redis.lset(log, place, entry.replace(old.encode(), new.encode()))


def test_the_webhook_of_a_job_that_our_own_code_has_ended_is_sent(shell: Shell) -> None:
    with WebhookServer(204) as hook:
        job_id = shell.jobs.submit(Request("Compare.", webhook_url=hook.url))
        shell.advance(job_id)
        (plan_made,) = [event for event in shell.events(job_id) if isinstance(event, PlanMade)]
        for event in shell.open(job_id):
            shell.do(job_id, event)
        shell.store.connection.redis.hdel(keys.blobs(job_id), plan_made.plan.digest)
        evaluate_again(fresh := shell.another(), job_id, MAX_FAILURES)
        assert job_id in shell.store.due_work.sweep().due

        fresh.advance(job_id)
        (post,) = wait_until(lambda: hook.posts, expected="the webhook")

    assert json.loads(post.body)["status"] == "failed"
