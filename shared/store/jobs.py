"""The jobs of the store, without their journals: their status, their list, their deletion, and
their places in the traces of callers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from handoff_queue.shared.observability.trace_ids import StoredTrace
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.handoff_info import HandoffInfo, parse_handoff_info, read_hashes
from handoff_queue.shared.store.job_filter import (
    EVERY_JOB,
    JobFilter,
    build_job_filter_arguments,
    find_first_place,
)
from handoff_queue.shared.store.job_info import (
    PROGRESS,
    JobInfo,
    build_unreadable_job_info,
    parse_job_info,
    with_progress,
)
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall, read_answers
from handoff_queue.shared.store.script_arguments import (
    MAX_TEXT_BYTES,
    iterate_rows,
    parse_handoff_id,
    parse_job_id,
)
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.events import DEFAULT_TENANT, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId

FORGET_AT_ONCE = 1_000
"""Jobs in one round trip of `forget_older_than`."""
JOBS_A_ROUND_TRIP = 500
"""Jobs of the list that one script reads: about a millisecond of Redis's time."""
MAX_ROUND_TRIPS = 20
"""Round trips of one page of the list: 10,000 jobs."""


@dataclass(frozen=True, slots=True)
class JobLabels:
    """Fixed properties of a job."""

    tenant: str
    mode: str
    priority: str


class Jobs:
    """The jobs of the store, without their journals."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, job_ids: Sequence[JobId]) -> list[JobInfo]:
        """Return the information about each job, in two round trips; unknown jobs are left out.
        A job whose record cannot be read has the status `unreadable`.
        """
        arguments = [MAX_TEXT_BYTES, *sorted(PROGRESS)]
        calls: list[ScriptCall] = [([keys.progress(job_id)], arguments) for job_id in job_ids]
        progress_of_jobs = self._connection.run_script_for_each("short_fields", calls)
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hgetall(keys.job(job_id))
                pipe.get(keys.title(job_id))
                pipe.llen(keys.log(job_id))
                pipe.zscore(keys.JOBS, job_id)
            answers = read_answers(pipe)
        job_infos: list[JobInfo] = []
        for job_id, progress_rows, stored_facts in zip(
            job_ids, progress_of_jobs, iterate_rows(answers, 4), strict=True
        ):
            fields, title, version, submitted = stored_facts
            if fields is None or isinstance(progress_rows, StoreError) or version is None:
                job_infos.append(build_unreadable_job_info(job_id, fields or {}, submitted or 0.0))
            elif fields:
                progress = dict(iterate_rows(progress_rows, 2))
                facts = {**with_progress(fields, progress), b"title": title or b""}
                job_infos.append(parse_job_info(job_id, facts, version, submitted or 0.0))
        return job_infos

    def get_tenant(self, job_id: JobId) -> str:
        """Return the tenant of a job; the default tenant if the job does not exist."""
        with self._connection.translate_errors():
            tenant = self._connection.redis.hget(keys.job(job_id), "tenant")
        return tenant.decode() if tenant else DEFAULT_TENANT

    def find_owner(self, job_id: JobId) -> str | None:
        """Return the tenant of a job, or None if the job does not exist. See `find_owners`."""
        return self.find_owners([job_id]).get(job_id)

    def find_owners(self, job_ids: Sequence[JobId]) -> dict[JobId, str]:
        """Return the tenant of each existing job, in one round trip. A job whose record cannot be
        read has no tenant: ''.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hmget(keys.job(job_id), ["status", "tenant"])
            answers = read_answers(pipe)
        owners: dict[JobId, str] = {}
        for job_id, fields in zip(job_ids, answers, strict=True):
            if fields is None:
                owners[job_id] = ""
                continue
            status, tenant = fields
            if status is not None:
                owners[job_id] = tenant.decode(errors="replace") if tenant else DEFAULT_TENANT
        return owners

    def list_newest(self, count: int, where: JobFilter = EVERY_JOB) -> list[JobId]:
        """Return at most `count` jobs that match the filter, the newest first."""
        return list(islice(self.iterate_matching(where, count), count))

    def iterate_matching(self, where: JobFilter, count: int = JOBS_A_ROUND_TRIP) -> Iterator[JobId]:
        """Yield the jobs that match the filter, the newest first. Each round trip reads one
        page of the list.

        Args:
            count: most matching jobs to return from one page.
        """
        place = find_first_place(where)
        while place:
            place, entries = self._read_part(where, count, place)
            yield from entries

    def read_page(self, where: JobFilter, count: int, after: str = "") -> tuple[list[JobId], str]:
        """Return at most `count` jobs that match the filter, and the place of the next page.

        The place is '' at the end of the list. A filter that few jobs match may end the page
        early, after `MAX_ROUND_TRIPS` round trips.

        Args:
            after: place that an earlier call returned; '' for the first page.
        """
        job_ids: list[JobId] = []
        place = after or find_first_place(where)
        for _ in range(MAX_ROUND_TRIPS):
            place, entries = self._read_part(where, count - len(job_ids), place)
            job_ids += entries
            if not place or len(job_ids) == count:
                break
        return job_ids, place

    def _read_part(self, where: JobFilter, count: int, place: str) -> tuple[str, list[JobId]]:
        """Return the place after a part of the list, and the jobs in it that match."""
        if where != EVERY_JOB:
            jobs_read = JOBS_A_ROUND_TRIP
        else:
            jobs_read = min(count, JOBS_A_ROUND_TRIP)
        arguments = build_job_filter_arguments(where, place, jobs_read, count)
        go_on, entries = self._connection.run_script("list_jobs", [keys.JOBS], arguments)
        return go_on.decode(), list(map(parse_job_id, entries))

    def count_by_status(self, where: JobFilter = EVERY_JOB) -> dict[JobStatus, int]:
        """Return the number of jobs that match the filter, by status.

        Each round trip reads one page of the list.
        """
        counts: dict[JobStatus, int] = {}
        place = find_first_place(where)
        while place:
            arguments = build_job_filter_arguments(
                where, place, JOBS_A_ROUND_TRIP, JOBS_A_ROUND_TRIP
            )
            go_on, answer = self._connection.run_script("count_jobs", [keys.JOBS], arguments)
            place = go_on.decode()
            for name, count in zip(answer[::2], answer[1::2], strict=True):
                status = JobStatus(name.decode())
                counts[status] = counts.get(status, 0) + count
        return counts

    def read_labels(self, job_ids: Sequence[JobId]) -> dict[JobId, JobLabels]:
        """Return the fixed properties of each job, in one round trip."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hmget(keys.job(job_id), "tenant", "mode", "priority")
            answers = read_answers(pipe)
        labels: dict[JobId, JobLabels] = {}
        for job_id, values in zip(job_ids, answers, strict=True):
            texts = [(value or b"").decode(errors="replace") for value in values or (b"",) * 3]
            tenant, mode, priority = texts
            labels[job_id] = JobLabels(tenant or DEFAULT_TENANT, mode, priority)
        return labels

    def find_by_prefix(self, prefix: str, limit: int) -> list[JobId]:
        """Return at most `limit` jobs and child jobs with an id that begins with the prefix,
        the newest first.
        """
        job_ids: list[JobId] = []
        place = "+inf"
        while place and len(job_ids) < limit:
            arguments = [place, JOBS_A_ROUND_TRIP, prefix]
            go_on, names = self._connection.run_script("find_jobs", [keys.JOBS], arguments)
            place = go_on.decode()
            job_ids.extend(map(parse_job_id, names))
        return job_ids[:limit]

    def read_handoffs(
        self, job_id: JobId, handoff_ids: Sequence[HandoffId]
    ) -> dict[HandoffId, HandoffInfo]:
        """Return the information about each handoff, in two round trips; unknown handoffs are
        left out.
        """
        handoffs: dict[HandoffId, HandoffInfo] = {}
        for handoff_id, fields in read_hashes(self._connection, job_id, handoff_ids).items():
            handoffs[handoff_id] = parse_handoff_info(fields)
        return handoffs

    def delete(self, job_id: JobId) -> None:
        """Delete all data of an ended job except its documents, which other jobs may use."""
        names = [
            keys.job(job_id),
            keys.progress(job_id),
            keys.title(job_id),
            keys.log(job_id),
            keys.newest_event(job_id),
            keys.blobs(job_id),
            keys.fetched_pages(job_id),
            keys.refused_events(job_id),
            keys.agents(job_id),
        ]
        due_members: dict[str, list[str]] = {keys.DUE: [job_id]}
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hgetall(keys.agents(job_id))
            (agents,) = read_answers(pipe)
            self._settle_batches(job_id, agents or {})
            for stored_id, stored_agent in (agents or {}).items():
                handoff_id = parse_handoff_id(stored_id)
                agent = stored_agent.decode(errors="replace")
                names.append(keys.handoff(job_id, agent, handoff_id))
                names.append(keys.turns(job_id, agent, handoff_id))
                names.append(keys.draft(job_id, agent, handoff_id))
                members = due_members.setdefault(keys.due(agent), [job_id])
                members.append(f"{job_id}/{handoff_id}")
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.unlink(*names)
            pipe.zrem(keys.JOBS, job_id)
            for name, members in due_members.items():
                pipe.zrem(name, *members)
            pipe.execute()

    def _settle_batches(self, job_id: JobId, agents: Mapping[bytes, bytes]) -> None:
        """Count the calls in unwanted batches at their upper bounds. After the deletion, no
        process could release their reservations of the day.
        """
        pipe = self._connection.redis.pipeline(transaction=False)
        for stored_id, stored_agent in agents.items():
            agent = stored_agent.decode(errors="replace")
            pipe.hexists(keys.handoff(job_id, agent, parse_handoff_id(stored_id)), "r_batch")
        for stored_id, is_in_batch in zip(agents, read_answers(pipe), strict=True):
            if is_in_batch:
                arguments = [parse_handoff_id(stored_id), "", ""]
                self._connection.run_script("settle_batch", [keys.job(job_id)], arguments)

    def forget_older_than(self, unix_s: float) -> None:
        """Remove jobs from the list that were submitted before this time and that retention
        has deleted. Older jobs that still exist stay.
        """
        redis, remaining = self._connection.redis, 0
        with self._connection.translate_errors():
            while old := redis.zrange(
                keys.JOBS, "-inf", unix_s * 1000, byscore=True, offset=remaining, num=FORGET_AT_ONCE
            ):
                pipe = redis.pipeline(transaction=False)
                for job_id in old:
                    pipe.exists(keys.job(job_id.decode()))
                deleted_ids: list[bytes] = []
                for job_id, exists in zip(old, pipe.execute(), strict=True):
                    if not exists:
                        deleted_ids.append(job_id)
                remaining += len(old) - len(deleted_ids)
                if deleted_ids:
                    redis.zrem(keys.JOBS, *deleted_ids)


class Traces:
    """The trace contexts of jobs. Reads only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def load_trace_context(self, job_id: JobId) -> StoredTrace:
        """Return the trace context of a job and its parent job; both None for an unknown job.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with self._connection.translate_errors():
            traceparent, parent = self._connection.redis.hmget(
                keys.job(job_id), "traceparent", "parent"
            )
        return StoredTrace(
            traceparent.decode("ascii", "replace") if traceparent else None,
            JobId(parent.decode().partition("/")[0]) if parent else None,
        )
