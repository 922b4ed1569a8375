"""Remove the data of a tenant that belongs to no single job: documents, statistics and tokens.

Jobs of all tenants share the texts of documents. So a deletion collects the documents of the
tenant's jobs before it deletes each job, and then looks for these documents in all other jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.journal import parse_entry
from handoff_queue.shared.store.metrics import METRICS_WITHOUT_TENANT
from handoff_queue.shared.store.payloads import (
    build_read_arguments,
    open_payload,
    verify_payload,
)
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.redis.queue_access import read_answers_or_refusals
from handoff_queue.shared.store.script_arguments import iterate_rows, parse_name
from handoff_queue.shared.store.spending_history import MAX_DAYS
from handoff_queue.shared.types.errors import (
    MalformedMessage,
    NoTenantKey,
    UnreadablePayload,
)
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.shared.types.ids import JobId

MARK_S = 3_600
"""Seconds for which used documents are noted after a read of all jobs began. The read takes
minutes.
"""
AT_ONCE = 500
"""Jobs, documents or fields in one round trip."""
_SEPARATOR = "\t"


class Tenants:
    """The data of tenants besides their jobs and schedules."""

    def __init__(self, connection: Connection, keep_s: int) -> None:
        self._connection = connection
        self._keep_s = keep_s

    def find_documents(self, job_ids: Sequence[JobId]) -> dict[str, str]:
        """Return the names under which documents of jobs and of their child jobs may be stored.
        Each name has the value `''`. For a job with unknown documents, the entry `of JOB` has the
        reason.
        """
        names: dict[str, str] = {}
        level = list(job_ids)
        while level:
            below: list[JobId] = []
            for start in range(0, len(level), AT_ONCE):
                below += self._add_documents(level[start : start + AT_ONCE], names)
            level = below
        return names

    def _add_documents(self, job_ids: Sequence[JobId], names: dict[str, str]) -> list[JobId]:
        """Add the documents of these jobs, in two round trips. Return their child jobs."""
        redis = self._connection.redis
        children: list[JobId] = []
        manifests: list[tuple[JobId, str]] = []
        with self._connection.translate_errors():
            pipe = redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.lindex(keys.log(job_id), 0)
                pipe.hget(keys.job(job_id), "children")
            answers = pipe.execute()
        for job_id, (first_entry, stored_children) in zip(
            job_ids, iterate_rows(answers, 2), strict=True
        ):
            children += map(JobId, (stored_children or b"").decode().split())
            manifest_digest = _find_manifest_digest(first_entry)
            if manifest_digest:
                manifests.append((job_id, manifest_digest))
        calls = [build_read_arguments(job_id, [digest]) for job_id, digest in manifests]
        answers = self._connection.run_script_for_all("read_payloads", calls)
        for (job_id, digest), (stored_form,) in zip(manifests, answers, strict=True):
            try:
                packed = open_payload(self._connection.sealing, job_id, digest, stored_form or b"")
                manifest = Manifest.from_json(verify_payload(digest, packed))
            except NoTenantKey:
                continue  # only its own tenant can read its documents
            except (UnreadablePayload, MalformedMessage) as error:
                names[f"of {job_id}"] = str(error)
                continue
            for document in manifest.documents:
                self._add(job_id, document.digest, names)
        return children

    def _add(self, job_id: JobId, digest: str, names: dict[str, str]) -> None:
        """Add the names under which a document of a job may be stored."""
        sealing = self._connection.sealing
        for name in (*sealing.list_document_names(sealing.get_owner(job_id), digest), digest):
            names.setdefault(name, "")

    def record_documents(self, tenant: str, names: Iterable[str]) -> None:
        """Note stored documents that the deletion may delete at its end."""
        key = keys.deletion(tenant)
        redis = self._connection.redis
        with self._connection.translate_errors():
            for part in _split_items(names):
                pipe = redis.pipeline(transaction=False)
                for name in part:
                    pipe.exists(keys.document(name))
                stored_names: list[str] = []
                for name, exists in zip(part, pipe.execute(), strict=True):
                    if exists:
                        stored_names.append(name)
                if stored_names:
                    redis.sadd(key, *stored_names)
                    redis.expire(key, self._keep_s)

    def read_noted_documents(self, tenant: str) -> set[str]:
        """Return the documents that a deletion of the tenant has noted."""
        with self._connection.translate_errors():
            members = self._connection.redis.smembers(keys.deletion(tenant))
        return set(map(parse_name, members))

    def begin_look(self) -> int:
        """Begin to note all documents that jobs need. Return the time in Unix ms."""
        redis = self._connection.redis
        since_ms = int(self._connection.now() * 1000)
        with self._connection.translate_errors():
            redis.zadd(keys.USED_DOCUMENTS, {"": 0})
            redis.expire(keys.USED_DOCUMENTS, MARK_S)
        return since_ms

    def drop_documents(self, names: Iterable[str], since_ms: int) -> int:
        """Delete the documents that no job has needed since a time. Return their number."""
        dropped_count = 0
        for part in _split_items(names):
            script_keys = [keys.USED_DOCUMENTS, *map(keys.document, part)]
            dropped_count += int(
                self._connection.run_script("drop_documents", script_keys, [since_ms])
            )
        return dropped_count

    def end_deletion(self, tenant: str) -> None:
        """Forget the notes of a deletion."""
        with self._connection.translate_errors():
            self._connection.redis.delete(keys.deletion(tenant))

    def forget_statistics(self, tenant: str, today: int) -> None:
        """Remove the counts, the spending and the time series of a tenant.

        Args:
            today: the day, as a number of days since 1970 in UTC.
        """
        redis = self._connection.redis
        with self._connection.translate_errors():
            for number in range(today - MAX_DAYS, today + 1):
                redis.delete(keys.day(number, tenant))
                redis.delete(keys.verified_usage(number, tenant))
                self._drop_fields(keys.spending(number), tenant)
            self._drop_fields(keys.METRICS, tenant)
            redis.srem(f"{keys.METRICS}:tenant", tenant)
            pipe = redis.pipeline(transaction=False)
            for queue in map(parse_name, redis.hkeys(keys.QUEUES)):
                pipe.delete(f"{keys.WAITING}{queue}/{tenant}")
            read_answers_or_refusals(
                pipe
            )  # a set that this process may not delete has no entry left
            redis.delete(keys.open_jobs(tenant))

    def _drop_fields(self, key: str, tenant: str) -> None:
        """Remove the fields of a hash whose first label is the tenant."""
        redis = self._connection.redis
        own_fields: list[bytes] = []
        for field in redis.hkeys(key):
            name, *labels = parse_name(field).split(_SEPARATOR)
            if labels[:1] == [tenant] and name not in METRICS_WITHOUT_TENANT:
                own_fields.append(field)
        for part in _split_items(own_fields):
            redis.hdel(key, *part)


def _find_manifest_digest(first_entry: bytes | None) -> str:
    """Return the digest of the manifest in the first event of a journal; '' if there is none."""
    if first_entry is None:
        return ""
    try:
        event = parse_entry(1, first_entry).event
    except MalformedMessage:
        return ""
    if isinstance(event, JobSubmitted) and event.manifest:
        return event.manifest.digest
    return ""


def _split_items(items: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Yield the items in parts of `AT_ONCE`."""
    return iterate_rows(list(items), AT_ONCE)
