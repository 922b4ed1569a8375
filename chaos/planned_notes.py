"""Notes that jobs of a run write and find. Pure.

One job writes a note about its document: one call of the tool `memory` creates the note, and two
calls insert lines, which must not happen twice. Another call has a quote that the document does not
contain. A later job of the tenant finds the note.
"""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob

WRITES_NOTE = "a.1"
"""Handoff of a remembered job that writes its note."""
INSERTS_FROM, INSERTS_UNTIL = 3, 4
"""First and last turn of this handoff that insert a line."""


@dataclass(frozen=True, slots=True)
class PlannedNote:
    """The note about the documents of a job."""

    job: str
    """Name of the job that writes it."""

    @property
    def guide(self) -> str:
        """Name of the document with the fact."""
        return f"guide-{self.job}.md"

    @property
    def fact(self) -> str:
        """First line of the note."""
        return f"The tower of {self.job} is 330 m high."

    @property
    def inserted(self) -> tuple[str, ...]:
        """Further lines of the note."""
        tower = f"The tower of {self.job}"
        return (f"{tower} was built in 1889.", f"{tower} is made of iron.")

    @property
    def document(self) -> str:
        return f"# Towers\n\n{self.text}\n"

    @property
    def path(self) -> str:
        return f"towers/{self.job}"

    @property
    def source(self) -> str:
        """Name under which an answer cites the note."""
        return f"memory:{self.path}"

    @property
    def text(self) -> str:
        """Text of the note after all calls."""
        return "\n".join([self.fact, *self.inserted])


def documents_of(job: PlannedJob) -> dict[str, bytes] | None:
    """Return the documents of the job, or None if it has none."""
    if job.shape is not Shape.REMEMBERED:
        return None
    note = note_of(job)
    return {note.guide: note.document.encode()}


def is_of_notes(job: PlannedJob) -> bool:
    """Return whether the job writes or finds a note."""
    return job.shape in (Shape.REMEMBERED, Shape.RECALLED)


def inserts_line(job: PlannedJob, key: CallKey) -> bool:
    """Return whether the reply to this call inserts a line into the note."""
    is_writer = job.shape is Shape.REMEMBERED and key.handoff == WRITES_NOTE
    return is_writer and INSERTS_FROM <= key.turn <= INSERTS_UNTIL


def note_of(job: PlannedJob) -> PlannedNote:
    """Return the note that the job writes or finds."""
    return PlannedNote(job.follows or job.name)
