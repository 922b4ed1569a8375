"""Notes of tenants in the store: one sealed text for each, which expires. The tools of a handoff
read and write them through `HandoffNotes`.

The keys of the notes contain a random name. Clients and supervisors read the name from
`keys.notes_name`, and a worker gets it with a handoff. No worker may list keys, so a worker reaches
only the notes of tenants whose handoffs it has received.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.jobs import Jobs
from handoff_queue.shared.store.payloads import SHORT_BYTES, pack, unpack
from handoff_queue.shared.store.positional_arguments import MemoryNoteArguments
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import iterate_rows, parse_name
from handoff_queue.shared.types.errors import MalformedMessage, NotesFull, StoreError
from handoff_queue.shared.types.ids import JobId, is_job_id
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.shared.types.memory_notes import KEEP_S, MAX_NOTES, NewNote, Note

MAX_PATH_BYTES = 200
"""Bytes of the longest path. A path of `NOTE_PATH` has at most 129."""
MAX_STORED_BYTES = 60_000
"""Bytes of the longest stored note. Its text and its quote have at most 24,000 bytes in UTF-8. All
notes of a tenant are read at once.
"""
SCOPE = "notes"
"""Scope of the texts, see `Sealing`."""
NAME_BYTES = 16
"""Random bytes of a name. 2^128 names cannot be tried."""
NAME_BEGINNING = "hqn_"
"""Beginning of each name, by which `shared.observability.redaction` finds the names in a text."""
KEEP_NAME_S = KEEP_S + 2 * MAX_SECONDS
"""Seconds for which a name is kept after its last use by a supervisor or a client. A handoff with
the name can write a note until its job ends, and the notes live for `KEEP_S` after that.
"""


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A note with its bytes in the store. The bytes prove that nothing has changed."""

    note: Note
    stored_bytes: bytes


class Notes:
    """The notes of all tenants, or of the tenant of one handoff."""

    def __init__(self, connection: Connection, name: str | None = None) -> None:
        """Read and write notes.

        Args:
            name: name of the notes of the only tenant; None: the names are read from Redis.
        """
        self._connection = connection
        self._name = name

    def make_name(self, tenant: str) -> str:
        """Return the name of a tenant's notes for a handoff. A tenant without a name gets one."""
        key = keys.notes_name(tenant)
        redis = self._connection.redis
        while True:
            name = self._find_name(tenant)
            # No pipeline: its errors have the values of the commands.
            with self._connection.translate_errors():
                if name is not None and redis.expire(key, KEEP_NAME_S):
                    return name
                new_name = NAME_BEGINNING + secrets.token_hex(NAME_BYTES)
                if redis.set(key, new_name, nx=True, ex=KEEP_NAME_S):
                    return new_name

    def _find_name(self, tenant: str) -> str | None:
        """Return the name of a tenant's notes; None if the tenant has never had notes."""
        if self._name is not None:
            return self._name
        with self._connection.translate_errors():
            name: bytes | None = self._connection.redis.get(keys.notes_name(tenant))
        return None if name is None else name.decode()

    def list_all(self, tenant: str) -> list[StoredNote]:
        """Return the notes of a tenant that have not expired, in the order of their paths. A
        note that cannot be read, or is too long, is left out. If there are more than `MAX_NOTES`
        entries, a worker that was taken over has written them, and no note is returned.
        """
        return [entry for entry, _ in self._iterate(tenant, has_jobs=False)]

    def list_with_jobs(self, tenant: str) -> list[Note]:
        """Return the notes as `list_all`, with the jobs whose agents wrote them. No worker may read
        these jobs.
        """
        notes: list[Note] = []
        for entry, job_id in self._iterate(tenant, has_jobs=True):
            notes.append(entry.note.model_copy(update={"job_id": job_id}))
        return notes

    def _iterate(self, tenant: str, *, has_jobs: bool) -> Iterator[tuple[StoredNote, JobId | None]]:
        """Yield the notes of a tenant with their jobs, in the order of their paths.

        Args:
            has_jobs: read the jobs; False: each job is None.
        """
        name = self._find_name(tenant)
        if name is None:
            return
        script_keys = [keys.notes(name)]
        if has_jobs:
            script_keys.append(keys.note_jobs(name))
        now = self._connection.now()
        entries = self._connection.run_script(
            "read_memory_notes", script_keys, [MAX_NOTES, MAX_PATH_BYTES, MAX_STORED_BYTES]
        )
        for path, stored_bytes, job_id in sorted(iterate_rows(entries, 3)):
            note = self._read(tenant, path.decode(errors="replace"), stored_bytes)
            if note is not None and note.expires_at > now:
                yield StoredNote(note, stored_bytes), _parse_job(job_id)

    def count(self, tenant: str) -> int:
        """Return the number of notes of a tenant. Expired notes count until the next writing."""
        name = self._find_name(tenant)
        if name is None:
            return 0
        with self._connection.translate_errors():
            return int(self._connection.redis.hlen(keys.notes(name)))

    def find(self, tenant: str, path: str) -> StoredNote | None:
        """Return a note, or None if the tenant has no readable note at this path."""
        name = self._find_name(tenant)
        if name is None:
            return None
        with self._connection.translate_errors():
            if self._connection.redis.hstrlen(keys.notes(name), path) > MAX_STORED_BYTES:
                return None
            stored_bytes = self._connection.redis.hget(keys.notes(name), path)
        if stored_bytes is None:
            return None
        note = self._read(tenant, path, stored_bytes)
        if note is None or note.expires_at <= self._connection.now():
            return None
        return StoredNote(note, stored_bytes)

    def find_job(self, tenant: str, path: str) -> JobId | None:
        """Return the job whose agent wrote a note, or None if a person wrote it."""
        name = self._find_name(tenant)
        if name is None:
            return None
        with self._connection.translate_errors():
            if self._connection.redis.hstrlen(keys.note_jobs(name), path) > MAX_PATH_BYTES:
                return None
            return _parse_job(self._connection.redis.hget(keys.note_jobs(name), path))

    def write(
        self,
        tenant: str,
        note: Note,
        replaces: StoredNote | None,
        moved: StoredNote | None = None,
    ) -> bool:
        """Store a note. Return False if the note at its path is no longer `replaces`.

        Args:
            moved: note at another path, which is removed with the writing. Return False if it has
                changed.

        Raises:
            NotesFull: the tenant has `MAX_NOTES` notes.
        """
        packed = pack(note.model_copy(update={"job_id": None}).to_json())
        sealed = self._connection.sealing.seal_for(tenant, SCOPE, note.path, packed)
        result = self._store(
            tenant, note.path, replaces, sealed, note.expires_at, moved, note.job_id or ""
        )
        if result < 0:
            raise NotesFull(
                f"the memory of tenant {tenant[:60]} has {MAX_NOTES:,} notes: remove some"
                " (handoff memory delete PATH)"
            )
        return bool(result)

    def remove(self, tenant: str, entry: StoredNote) -> bool:
        """Remove a note. Return False if the note has changed, or is gone."""
        return bool(self._store(tenant, entry.note.path, entry, b"", 0.0))

    def forget(self, tenant: str) -> int:
        """Remove all notes of a tenant, also unreadable ones, and their name. Return the number of
        notes.
        """
        name = self._find_name(tenant)
        if name is None:
            return 0
        count = self.count(tenant)
        with self._connection.translate_errors():
            self._connection.redis.delete(*_list_keys(name))
            self._connection.redis.delete(keys.notes_name(tenant))
        return count

    def _store(
        self,
        tenant: str,
        path: str,
        old: StoredNote | None,
        new: bytes,
        expires_at: float,
        moved: StoredNote | None = None,
        job_id: str = "",
    ) -> int:
        """Replace the note at a path. Return the answer of `store_memory_note.lua`.

        Args:
            old: the note that must be stored now; None: there must be none.
            new: the sealed text; empty to remove the note.
            moved: see `write`.
        """
        arguments = MemoryNoteArguments(
            path=path,
            old=b"" if old is None else old.stored_bytes,
            new=new,
            now=int(self._connection.now() * 1000),
            until_ms=int(expires_at * 1000),
            most=MAX_NOTES,
            moved_from="" if moved is None else moved.note.path,
            moved=b"" if moved is None else moved.stored_bytes,
            job=job_id,
        )
        script_keys = _list_keys(self._name or self.make_name(tenant))
        return int(self._connection.run_script("store_memory_note", script_keys, list(arguments)))

    def _read(self, tenant: str, path: str, stored_bytes: bytes) -> Note | None:
        """Return a stored note, or None if it cannot be read, or belongs to another path."""
        try:
            packed = self._connection.sealing.open_for(tenant, SCOPE, path, stored_bytes)
            note = Note.from_json(unpack(packed, SHORT_BYTES))
        except (StoreError, MalformedMessage):
            return None
        if note.path != path:
            return None
        return note


def _parse_job(stored_bytes: bytes | None) -> JobId | None:
    """Return the stored job of a note. A worker may have written any text."""
    job_id = parse_name(stored_bytes or b"")
    return JobId(job_id) if is_job_id(job_id) else None


def _list_keys(name: str) -> list[str]:
    """Return the keys of the notes with a name."""
    return [keys.notes(name), keys.note_expiry(name), keys.note_jobs(name)]


@dataclass(slots=True)
class HandoffNotes:
    """The notes of the tenant of a job, written in the name of a specialist. Implements
    `TenantNotes`.
    """

    connection: Connection
    job_id: JobId
    author: str
    """Name of the specialist."""
    notes_name: str
    """See `AgentHandoff.notes_name`."""
    _tenant: str | None = None
    _stored_notes: dict[Note, StoredNote] = field(default_factory=dict)
    """The notes that were read, with their bytes in the store."""

    def list_all(self) -> list[Note]:
        entries = self._open().list_all(self._get_owner())
        self._stored_notes = {entry.note: entry for entry in entries}
        return [entry.note for entry in entries]

    def write(self, note: NewNote, *, replaces: Note | None, moved: Note | None = None) -> bool:
        now = self.connection.now()
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
        return self._open().write(self._get_owner(), new_note, stored_replaces, stored_moved)

    def remove(self, note: Note) -> bool:
        return self._open().remove(self._get_owner(), self._stored_notes[note])

    def _open(self) -> Notes:
        return Notes(self.connection, self.notes_name)

    def _get_owner(self) -> str:
        if self._tenant is None:
            self._tenant = Jobs(self.connection).get_tenant(self.job_id)
        return self._tenant
