"""Notes that agents and persons keep for later jobs of a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import StringConstraints

from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.ids import JobIdField
from handoff_queue.shared.types.message import Message, OmitNone, UnixTime
from handoff_queue.shared.types.origins import Origins

MEMORY = "memory"
"""Name of the tool that writes notes. No other tool has this name."""
NOTE_PATH = r"^[a-z0-9][a-z0-9_-]{0,47}/[a-z0-9][a-z0-9_-]{0,79}$"
"""Pattern of a path: SUBJECT/NAME."""
NotePath = Annotated[str, StringConstraints(pattern=NOTE_PATH)]
MAX_NOTE_CHARS = 4_000
MAX_NOTES = 1_000
"""Most notes of one tenant. With full-length notes, they take about 4 MB of Redis's memory."""
MEMORY_FULL = "memory: the memory is full: go on without the note"
"""The reply of the tool to an agent if the tenant has `MAX_NOTES` notes."""
MEMORY_REFUSED = "memory: Redis refuses the notes to this worker: go on without them"
"""The reply of the tool to an agent if the Redis user of the worker may not use notes."""
KEEP_S = 90 * 86_400
"""Seconds for which a note is kept after its last change."""


class Note(Message):
    """A fact that was found once."""

    path: NotePath
    text: Annotated[str, StringConstraints(min_length=1, max_length=MAX_NOTE_CHARS)]
    evidence: Annotated[Citation | None, OmitNone] = None
    """The quote that proves the note, which code has found in its source. None: a person wrote
    the note.
    """
    author: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """The specialist, or the user, that wrote the note."""
    job_id: Annotated[JobIdField | None, OmitNone] = None
    """The job of the specialist. None: a person wrote the note, or the reader is an agent. A worker
    reads the notes of all tenants, so a stored note does not have it.
    """
    call: Annotated[str | None, OmitNone, StringConstraints(max_length=64)] = None
    """Digest of the tool call that wrote the note. If the call runs again after a kill, it finds
    its own note. None: a person wrote the note.
    """
    at: UnixTime
    """Time of the writing, by Redis's clock."""
    expires_at: UnixTime
    """Time after which the note is not read any more."""
    origins: Origins
    """Origins of everything that the author had seen."""

    @property
    def subject(self) -> str:
        """Return the first part of the path."""
        return self.path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note that a tool call writes, see `Note`."""

    path: str
    text: str
    evidence: Citation
    origins: Origins
    call: str


class TenantNotes(Protocol):
    """The notes of one tenant, as a tool uses them."""

    def list_all(self) -> list[Note]:
        """Return the notes that have not expired, in the order of their paths."""
        ...

    def write(self, note: NewNote, *, replaces: Note | None, moved: Note | None = None) -> bool:
        """Store a note. Return False if the note at its path is no longer `replaces`.

        Args:
            moved: note at another path, which is removed with the writing. Return False if it has
                changed.

        Raises:
            NotesFull: the tenant has `MAX_NOTES` notes.
        """
        ...

    def remove(self, note: Note) -> bool:
        """Remove a note. Return False if the note has changed, or is gone."""
        ...
