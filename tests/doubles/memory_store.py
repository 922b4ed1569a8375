"""A store in memory for `DecisionRecorder`: payloads, served specialists and child jobs.

It replaces only the reads that a decision needs. Every other call goes to Redis, and fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fleet_history import History
from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.memory_notes import NAME_BEGINNING, Notes
from handoff_queue.shared.store.payloads import PayloadStore
from handoff_queue.shared.store.presence import PresenceStore, ServedSpecialist
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.events import RecordedEvent
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import JobId

NOWHERE = "redis://127.0.0.1:1/0"


class MemoryPayloads(PayloadStore):
    """Payloads by digest. There are no documents."""

    def __init__(self, connection: Connection, texts: Mapping[str, str]) -> None:
        super().__init__(connection, 1)
        self._texts = texts

    def get(
        self, job_id: JobId, digests: Sequence[str], *, results: Sequence[str] = ()
    ) -> dict[str, str]:
        required = {digest: self._texts[digest] for digest in digests}
        return required | {digest: self._texts.get(digest, "") for digest in results}

    def load_fetched_pages(self, job_id: JobId) -> list[Document]:
        return []

    def find_missing_documents(
        self, digests: Sequence[str], work_s: float, tenant: str = "default"
    ) -> set[str]:
        return set()


class MemoryPresence(PresenceStore):
    """Specialists that a test declares as served."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.specialists: dict[str, ServedSpecialist] = {}

    def load_served_specialists(self) -> dict[str, ServedSpecialist]:
        return self.specialists


class MemoryJournal(Journal):
    """Journals of child jobs."""

    def __init__(
        self, connection: Connection, journals: Mapping[JobId, list[RecordedEvent]]
    ) -> None:
        super().__init__(connection, 1)
        self._journals = journals

    def read(self, job_id: JobId, after: int = 0, limit: int | None = None) -> list[RecordedEvent]:
        return self._journals.get(job_id, [])[after:][:limit]


class MemoryNotes(Notes):
    """The notes of a tenant whose name a client has made before."""

    def make_name(self, tenant: str) -> str:
        return f"{NAME_BEGINNING}{tenant}"


class NoHistory(History):
    """The history of a new installation."""

    def read(
        self, roles: Iterable[str]
    ) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
        return {}, []


@cache
def _unconnected() -> Store:
    return open_store(NOWHERE, Settings())


def memory_store(
    texts: Mapping[str, str], journals: Mapping[JobId, list[RecordedEvent]]
) -> tuple[Store, MemoryPresence]:
    """Return a store that reads these payloads and these journals of child jobs."""
    store = _unconnected()
    connection = store.connection
    presence = MemoryPresence(connection)
    return replace(
        store,
        payloads=MemoryPayloads(connection, texts),
        journal=MemoryJournal(connection, journals),
        presence=presence,
        notes=MemoryNotes(connection),
        history=NoHistory(connection),
    ), presence
