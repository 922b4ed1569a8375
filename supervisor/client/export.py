"""Export of a job to one file, for archives, audits and bug reports. Export of all jobs and
schedules of a tenant, as lines of JSON.

The payloads are texts by their SHA-256, as they were stored. An event refers to a payload as
`{"digest": ..., "size": ...}`. Secrets of the exporting process, and everything that looks
like a credential, are removed. The digest of a changed text does not match any more.

The first line of the export of a tenant has the type `tenant`. A line of the type `schedule`,
`note` or `job` follows for each schedule, note of the memory and job. Child jobs are jobs, too. A
job that cannot be read is a line of the type `unreadable`. The last line has the type `end` and the
counts, so that a cut file is seen.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from handoff_queue.shared.observability.redaction import HIDDEN, Redactor, find_secrets
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.dead_letters import DeadLetter
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.checkpoints import Checkpoint
from handoff_queue.shared.types.errors import (
    MalformedMessage,
    StoreError,
    StoreUnavailable,
    UnknownJob,
)
from handoff_queue.shared.types.events import Event, JobSubmitted, RecordedEvent
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.schedule import Schedule
from handoff_queue.supervisor.client.job_record import (
    JobRecord,
    build_record,
    find_letters,
    is_letter_of,
)


class ExportedEvent(Message):
    """An event and its place in the journal."""

    version: int
    at: float
    """Unix time in seconds, by Redis's clock."""
    event: Annotated[Event, Field(discriminator="type")]

    @classmethod
    def from_recorded(cls, recorded: RecordedEvent) -> ExportedEvent:
        return cls(version=recorded.version, at=recorded.at, event=recorded.event)

    def to_recorded(self) -> RecordedEvent:
        return RecordedEvent(self.version, self.at, self.event)


class Export(Message):
    """Content of the export file."""

    schema_version: Literal[1] = 1
    made_by: str
    """Name and version of the program."""
    at: float
    """Unix time in seconds, by Redis's clock."""
    job: JobInfo
    """The status and the usage of the job."""
    journal: tuple[ExportedEvent, ...]
    payloads: dict[str, str]
    """Texts by digest: request, plans, specialists, AgentHandoffs, HandoffResults, answer,
    manifest, answer schema.
    """
    handoffs: dict[HandoffId, HandoffInfo]
    """State, worker, claims, times and usage of each handoff."""
    turns: dict[HandoffId, tuple[Checkpoint, ...]] = {}  # noqa: RUF012 (pydantic copies it)
    """Turns of open handoffs. HANDOFF_KEEP_TURNS adds the turns of all handoffs."""
    documents: tuple[Document, ...] = ()
    """The documents in the manifest, then the pages that tools fetched."""
    texts: dict[str, str] | None = None
    """Texts of the documents by digest. Null: the caller did not ask for them."""
    waits: tuple[str, ...] = ()
    """One line for each process or person that the job waits for."""
    letters: tuple[DeadLetter, ...] = ()
    """The dead letters that contain the id of the job."""


def extract_record(export: Export) -> JobRecord:
    """Return the record from which a report is made."""
    journal = tuple(map(ExportedEvent.to_recorded, export.journal))
    return JobRecord(export.at, export.job, journal, export.handoffs, export.payloads, export.waits)


def build_export(store: Store, settings: Settings, job_id: JobId, *, texts: bool) -> Export:
    """Read everything about a job, and remove the secrets.

    Args:
        texts: read the documents, too.

    Raises:
        UnknownJob: there is no such job.
        StoreError: a payload is gone.
    """
    record = build_record(store, job_id)
    submitted = record.journal[0].event
    assert isinstance(submitted, JobSubmitted)
    if submitted.manifest:
        manifest = Manifest.from_json(record.payloads[submitted.manifest.digest])
    else:
        manifest = Manifest()
    pages = store.payloads.load_fetched_pages(job_id)
    document_texts = None
    if texts:
        document_texts = store.payloads.read_documents(
            [document.digest for document in manifest.documents], submitted.tenant
        )
        page_digests = [page.digest for page in pages]
        document_texts |= store.payloads.get(job_id, [], results=page_digests)
    job_export = Export(
        made_by=f"handoff-queue {version('handoff-queue')}",
        at=record.at,
        job=record.job,
        journal=tuple(map(ExportedEvent.from_recorded, record.journal)),
        payloads=dict(record.payloads),
        handoffs=dict(record.handoffs),
        turns=store.claims.read_checkpoints(job_id, list(record.handoffs)),
        documents=(*manifest.documents, *pages),
        texts=document_texts,
        waits=record.waits,
        letters=find_letters(store, job_id),
    )
    return Export.from_value(
        remove_secrets(job_export.model_dump(mode="json"), Redactor(find_secrets(settings)))
    )


def remove_secrets(value: Any, redactor: Redactor, name: str = "") -> Any:
    """Return a value without secrets.

    JSON inside a text is parsed first, so that it stays valid.

    Args:
        name: the key of the value in an object, or ''.
    """
    match value:
        case dict():
            return {key: remove_secrets(item, redactor, key) for key, item in value.items()}
        case list():
            return [remove_secrets(item, redactor) for item in value]
        case str() if name == "webhook_url":  # anyone who knows the URL could post to it
            try:
                parts = urlsplit(value)
            except ValueError:  # a model may have written any text
                return HIDDEN
            return f"{parts.scheme}://{parts.hostname}/{HIDDEN}"
        case str():
            return _remove_secrets_from_text(value, redactor)
        case _:
            return value


def _remove_secrets_from_text(text: str, redactor: Redactor) -> str:
    if text[:1] not in ("{", "["):
        return redactor.redact_text(text)
    try:
        inner = json.loads(text)
        clean = remove_secrets(inner, redactor)
        if clean == inner:
            return text
        clean_text = json.dumps(clean, ensure_ascii=False, separators=(",", ":"))
        if has_lone_surrogate(clean_text):  # it was an escape, and no UTF-8 has it
            return json.dumps(clean, separators=(",", ":"))
        return clean_text
    except (ValueError, RecursionError):  # no JSON, or values within values without end
        return redactor.redact_text(text)


def iterate_tenant_lines(
    store: Store, settings: Settings, tenant: str, *, texts: bool
) -> Iterator[str]:
    """Yield the lines of the export of a tenant. One job is in memory at a time. Jobs that are
    submitted after the first line are left out.

    Args:
        texts: read the texts of the documents, too.
    """
    counts = Counter[str]()
    yield _format_line(
        "tenant",
        schema_version=1,
        tenant=tenant,
        made_by=f"handoff-queue {version('handoff-queue')}",
        at=store.connection.now(),
    )
    redactor = Redactor(find_secrets(settings))
    for schedule in store.schedules.list_all(tenant):
        counts["schedules"] += 1
        fields = _build_schedule_fields(store, schedule, texts=texts)
        yield _format_line("schedule", **remove_secrets(fields, redactor))
    for note in store.notes.list_with_jobs(tenant):
        counts["notes"] += 1
        yield _format_line("note", **remove_secrets(note.model_dump(mode="json"), redactor))
    for job_id in _with_children(store, tenant):
        try:
            job_export = build_export(store, settings, job_id, texts=texts)
        except UnknownJob:
            continue  # it was deleted in the meantime
        except StoreUnavailable:
            raise
        except (StoreError, MalformedMessage) as error:
            counts["unreadable"] += 1
            yield _format_line("unreadable", job_id=job_id, problem=str(error))
            continue
        letters = tuple(letter for letter in job_export.letters if is_letter_of(letter, job_id))
        counts["jobs"] += 1
        exported = job_export.model_copy(update={"letters": letters}).to_json()
        yield f'{{"type":"job","export":{exported}}}'
    yield _format_line(
        "end", **{name: counts[name] for name in ("jobs", "schedules", "notes", "unreadable")}
    )


def _build_schedule_fields(store: Store, schedule: Schedule, *, texts: bool) -> dict[str, Any]:
    """Return a schedule, and its job or the problem of its job."""
    fields: dict[str, Any] = {"schedule": schedule.model_dump(mode="json")}
    try:
        job = store.schedules.build_job(schedule).model_dump(mode="json")
        fields["job"] = job if texts else {**job, "documents": {}}
    except (MalformedMessage, StoreError) as error:
        fields["problem"] = str(error)
    return fields


def _with_children(store: Store, tenant: str) -> Iterator[JobId]:
    """Yield the jobs of a tenant, the newest first, each before its child jobs."""
    for job_id in store.jobs.iterate_matching(JobFilter(tenant=tenant)):
        family = [job_id]
        while family:
            member = family.pop()
            yield member
            for info in store.jobs.read([member]):
                family.extend(reversed(info.children))


def _format_line(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
