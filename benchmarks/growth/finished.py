"""A store full of finished jobs: copies of a real job, key for key, under new ids."""

from __future__ import annotations

from typing import Any

from benchmarks.growth.steps import Fleet
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import JobId, new_job_id

AT_ONCE = 1_000


def fill(redis: Any, real: JobId, jobs: int) -> None:
    """Store this number of copies of the job, each one ms older than the previous one."""
    names: list[bytes] = list(redis.scan_iter(match=f"{keys.PREFIX}{{{real}}}*", count=1_000))
    dumps: list[tuple[str, int, bytes]] = []
    for key in names:
        dumps.append((key.decode(), redis.pttl(key), redis.dump(key)))
    at = redis.zscore(keys.JOBS, real)
    for first in range(0, jobs, AT_ONCE):
        pipe = redis.pipeline(transaction=False)
        for number in range(first, min(jobs, first + AT_ONCE)):
            copy = new_job_id()
            for name, ttl_ms, dump in dumps:
                pipe.restore(name.replace(real, copy), ttl_ms, dump)
            pipe.zadd(keys.JOBS, {copy: at - number - 1})
        pipe.execute()


def a_finished_job(fleet: Fleet) -> JobId:
    """Run a job of one agent with one call."""
    fleet.small()
    return fleet.jobs.newest(1)[0].job_id
