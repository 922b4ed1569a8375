"""Messages without a consumer are deleted with their jobs, in slices. Everything else stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store import queue_repair as queues
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.deletion import delete_job
from handoff_queue.supervisor.engine.sweeper import FORGET_EVERY, Sweeper
from tests.doubles.sweeping import sweeping
from tests.supervisor.shell import Shell, running_shell
from tests.waiting import wait_until


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer", "generalist") as supervisor:
        yield supervisor


def publish_jobs(shell: Shell, count: int) -> list[JobId]:
    """Submit jobs. Their first handoffs wait in their queues."""
    jobs = [shell.submit() for _ in range(count)]
    for job_id in jobs:
        shell.advance(job_id)
    return jobs


def delete_jobs(shell: Shell, *jobs: JobId) -> None:
    for job_id in jobs:
        shell.jobs.cancel(job_id)
        shell.advance(job_id)
        delete_job(shell.store, job_id)


def jobs_in_queues(shell: Shell) -> list[str]:
    """Return the jobs with messages in the queue of any specialist."""
    redis = shell.store.connection.redis
    frames = [
        frame.decode() for name in redis.hkeys(keys.QUEUES) for frame in redis.lrange(name, 0, -1)
    ]
    return sorted(
        {
            part.split(":")[0]
            for frame in frames
            for part in frame.split('"')
            if part.startswith("j-") and ":" in part
        }
    )


def test_a_message_in_an_unserved_queue_is_deleted_with_its_job(
    shell: Shell,
) -> None:
    deleted_job, stays, gone_too = publish_jobs(shell, 3)
    shell.leave()
    delete_jobs(shell, deleted_job, gone_too)
    assert jobs_in_queues(shell) == sorted([deleted_job, stays, gone_too])

    assert shell.store.queue_repair.drop_orphans() > 0
    assert jobs_in_queues(shell) == [stays]
    assert shell.store.queue_repair.drop_orphans() == 0
    delete_jobs(shell, stays)
    shell.store.queue_repair.drop_orphans()
    redis = shell.store.connection.redis
    assert not any(redis.keys(f"{keys.FAIR}{name.decode()}*") for name in redis.hkeys(keys.QUEUES))


def test_a_queue_that_is_served_is_left_to_its_workers(shell: Shell) -> None:
    (job_id,) = publish_jobs(shell, 1)
    delete_jobs(shell, job_id)

    assert shell.store.queue_repair.drop_orphans() == 0
    assert jobs_in_queues(shell) == [job_id]


def test_jobs_removed_by_retention_leave_no_message(shell: Shell) -> None:
    (job_id,) = publish_jobs(shell, 1)
    shell.leave()
    shell.store.connection.redis.delete(keys.job(job_id))

    shell.store.queue_repair.drop_orphans()

    assert jobs_in_queues(shell) == []


@pytest.mark.parametrize(
    "strange",
    [
        "garbage",
        "{}",
        '{"headers": {"id": 7}}',
        '{"headers": {"id": "j-000000000000"}}',
        '{"headers": {"id": "other:a.1"}}',
    ],
)
def test_a_message_without_a_job_stays_for_people_to_see(shell: Shell, strange: str) -> None:
    publish_jobs(shell, 1)
    shell.leave()
    redis = shell.store.connection.redis
    queue = redis.hkeys(keys.QUEUES)[0].decode()
    redis.rpush(queue, strange)

    shell.store.queue_repair.drop_orphans()

    assert redis.lindex(queue, -1).decode() == strange


class CountingClient:
    """Client of Redis that records the number of messages in each read."""

    def __init__(self, connection: Connection) -> None:
        self.read: list[int] = []
        self._redis = connection.redis

    def __getattr__(self, name: str) -> object:
        return getattr(self._redis, name)

    def lrange(self, *where: object) -> list[bytes]:
        frames: list[bytes] = self._redis.lrange(*where)
        self.read.append(len(frames))
        return frames


def put_unserved(shell: Shell, *of_jobs: JobId) -> None:
    """Put messages of the jobs into a queue without a consumer. The first job's message is next."""
    redis = shell.store.connection.redis
    redis.hset(keys.QUEUES, "oracle", 0)
    redis.lpush(
        "oracle",
        *(f'{{"headers": {{"id": "{job_id}:a.1"}}, "n": {n}}}' for n, job_id in enumerate(of_jobs)),
    )


def deleted_job_ids(*numbers: int) -> list[JobId]:
    return [JobId(f"j-{n:012x}") for n in numbers]


def command_calls(shell: Shell, *commands: str) -> list[int]:
    """Return how often Redis has run each command."""
    stats = shell.store.connection.redis.info("commandstats")
    return [int(stats.get(f"cmdstat_{command}", {}).get("calls", 0)) for command in commands]


def test_each_repair_reads_a_queue_once(shell: Shell) -> None:
    stays = shell.submit()
    put_unserved(shell, *[stays] * 600, *deleted_job_ids(*range(900)))
    pieces = 0
    before = command_calls(shell, "lrem")[0]

    while not pieces or shell.store.queue_repair.has_more:
        shell.store.queue_repair.drop_orphans()
        pieces += 1

    assert shell.store.connection.redis.llen("oracle") == 600
    assert pieces == 1_500 // queues.MESSAGES_A_CHECK + 1
    assert command_calls(shell, "lrem")[0] - before <= pieces


def test_a_message_that_has_moved_stays(shell: Shell) -> None:
    put_unserved(shell, *deleted_job_ids(1, 2, 3))
    redis = shell.store.connection.redis
    (last, *_), first = redis.lrange("oracle", 0, -1), redis.rpop("oracle")

    assert (
        shell.store.connection.run_script(
            "drop_orphaned_messages", ["oracle"], [-2, -1, 2, first, "", 1, last, "", 3, "{}", ""]
        )
        == 1
    )
    assert redis.llen("oracle") == 1


def test_one_supervisor_at_a_time_repairs_the_queues(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MESSAGES_A_CHECK", 1)
    put_unserved(shell, *deleted_job_ids(1, 2, 3))
    other = shell.another()
    shell.store.queue_repair.drop_orphans()
    before = command_calls(shell, "lrange")

    assert other.store.queue_repair.drop_orphans() == 0
    assert (other.store.queue_repair.has_more, command_calls(shell, "lrange")) == (False, before)
    assert 0 < shell.store.connection.redis.ttl(keys.ORPHANS) <= queues.OWNERSHIP_S
    assert shell.store.queue_repair.drop_orphans() == 1

    shell.store.connection.redis.delete(keys.ORPHANS)
    assert other.store.queue_repair.drop_orphans() == 1
    assert shell.store.queue_repair.drop_orphans() == 0
    other.close()


def test_a_long_queue_is_repaired_in_slices_despite_remaining_messages(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MESSAGES_A_CHECK", 4)
    stays = JobId("j-000000000001")
    redis = shell.store.connection.redis
    redis.hset(keys.QUEUES, "oracle", 0)
    redis.hset(keys.job(stays), "status", "running")
    redis.expire(keys.job(stays), 60)
    of_jobs = [stays if n % 3 else JobId(f"j-{n:012x}") for n in range(3, 33)]
    redis.lpush(
        "oracle",
        *(f'{{"headers": {{"id": "{job_id}:a.1"}}, "n": {n}}}' for n, job_id in enumerate(of_jobs)),
    )
    counting = CountingClient(shell.store.connection)
    monkeypatch.setattr(shell.store.connection, "redis", counting)

    dropped = shell.store.queue_repair.drop_orphans()
    while shell.store.queue_repair.has_more:
        dropped += shell.store.queue_repair.drop_orphans()

    assert dropped == 10
    assert (redis.llen("oracle"), max(counting.read), sum(counting.read)) == (20, 4, 30)


@pytest.mark.slow
def test_every_supervisor_repairs_at_its_start_and_continues_while_there_is_more(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MESSAGES_A_CHECK", 1)
    jobs = publish_jobs(shell, 3)
    shell.leave()
    delete_jobs(shell, *jobs)
    sweeper = Sweeper(shell.store, shell.dispatcher, "supervisor:1", interval_s=0.01, keep_s=60)

    with sweeping(sweeper):
        wait_until(lambda: not jobs_in_queues(shell), expected="messages without a job to go")

    assert FORGET_EVERY > 100, "so it was not by starting anew"
