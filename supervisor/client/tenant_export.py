"""Export of all jobs and schedules of a tenant, as lines of JSON.

The first line has the type `tenant`. A line of the type `schedule`, `note` or `job` follows for
each schedule, each note of the memory and each job, with its child jobs as jobs. A job that
cannot be read is a line of the type `unreadable`. The last line has the type `end` and the
counts, so that a cut file is seen.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from handoff_queue.shared.observability.redaction import Redactor, secrets_of
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    MalformedMessage,
    StoreError,
    StoreUnavailable,
    UnknownJob,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.export import cleaned, export_of
from handoff_queue.supervisor.client.job_result import is_letter_of


def tenant_lines(store: Store, settings: Settings, tenant: str, *, texts: bool) -> Iterator[str]:
    """Yield the lines of the export of a tenant. One job is in memory at a time. Jobs that are
    submitted after the first line are left out.

    Args:
        texts: read the texts of the documents, too.
    """
    counts = Counter[str]()
    yield _line(
        "tenant",
        schema_version=1,
        tenant=tenant,
        made_by=f"handoff-queue {version('handoff-queue')}",
        at=store.connection.now(),
    )
    redactor = Redactor(secrets_of(settings))
    for schedule in store.schedules.all(tenant):
        fields: dict[str, Any] = {"schedule": schedule.model_dump(mode="json")}
        try:
            job = store.schedules.job(schedule).model_dump(mode="json")
            fields["job"] = job if texts else {**job, "documents": {}}
        except (MalformedMessage, StoreError) as error:
            fields["problem"] = str(error)
        counts["schedules"] += 1
        yield _line("schedule", **cleaned(fields, redactor))
    for entry in store.notes.all(tenant):
        counts["notes"] += 1
        yield _line("note", **cleaned(entry.note.model_dump(mode="json"), redactor))
    for job_id in _with_children(store, tenant):
        try:
            whole = export_of(store, settings, job_id, texts=texts)
        except UnknownJob:
            continue  # it was deleted in the meantime
        except StoreUnavailable:
            raise
        except (StoreError, MalformedMessage) as error:
            counts["unreadable"] += 1
            yield _line("unreadable", job_id=job_id, problem=str(error))
            continue
        letters = tuple(letter for letter in whole.letters if is_letter_of(letter, job_id))
        counts["jobs"] += 1
        exported = whole.model_copy(update={"letters": letters}).to_json()
        yield f'{{"type":"job","export":{exported}}}'
    yield _line(
        "end", **{name: counts[name] for name in ("jobs", "schedules", "notes", "unreadable")}
    )


def _with_children(store: Store, tenant: str) -> Iterator[JobId]:
    """Yield the jobs of a tenant, the newest first, each before its child jobs."""
    for job_id in store.jobs.matching(JobFilter(tenant=tenant)):
        family = [job_id]
        while family:
            member = family.pop()
            yield member
            for standing in store.jobs.standings([member]):
                family.extend(reversed(standing.children))


def _line(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
