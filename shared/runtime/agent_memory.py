"""The notes of a tenant as a tool of one handoff reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from handoff_queue.shared.store.memory_notes import StoredNote
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.memory_notes import KEEP_S, NewNote, Note


@dataclass(slots=True)
class HandoffNotes:
    """The notes of the tenant of a job, written in the name of a specialist. Implements
    `TenantNotes`.
    """

    store: Store
    job_id: JobId
    author: str
    """Name of the specialist."""
    _tenant: str | None = None
    _stored_notes: dict[Note, StoredNote] = field(default_factory=dict)
    """The notes that were read, with their bytes in the store."""

    def list_all(self) -> list[Note]:
        entries = self.store.notes.list_all(self._get_owner())
        self._stored_notes = {entry.note: entry for entry in entries}
        return [entry.note for entry in entries]

    def write(self, note: NewNote, *, replaces: Note | None, moved: Note | None = None) -> bool:
        now = self.store.connection.now()
        new_note = Note(
            path=note.path,
            text=note.text,
            evidence=note.evidence,
            author=self.author,
            job_id=self.job_id,
            call=note.call,
            at=now,
            expires_at=now + KEEP_S,
            origins=note.origins,
        )
        stored_replaces = None if replaces is None else self._stored_notes[replaces]
        stored_moved = None if moved is None else self._stored_notes[moved]
        return self.store.notes.write(self._get_owner(), new_note, stored_replaces, stored_moved)

    def remove(self, note: Note) -> bool:
        return self.store.notes.remove(self._get_owner(), self._stored_notes[note])

    def _get_owner(self) -> str:
        if self._tenant is None:
            self._tenant = self.store.jobs.get_tenant(self.job_id)
        return self._tenant
