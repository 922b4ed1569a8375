"""Notes that jobs of a run write and find, and the promises about notes. Pure.

One job writes a note about its document. One call of the tool `memory` creates the note. Two calls
insert lines, which must not happen twice. Another call has a quote that the document does not
contain. A later job of the tenant finds the note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.memory_notes import Note

if TYPE_CHECKING:  # that module imports this one
    from handoff_queue.chaos.model_server import Call

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
        return f"# Towers\n\n{self.text}"

    @property
    def path(self) -> str:
        return f"towers/{self.job}"

    @property
    def source(self) -> str:
        """Name under which an answer cites the quote of the note."""
        return f"memory:{self.path} ({self.guide})"

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the note. Each call that writes one has this line as its quote."""
        return (self.fact, *self.inserted)

    @property
    def text(self) -> str:
        """Text of the note after all calls. The last call writes a final line break."""
        return "".join(f"{line}\n" for line in self.lines)


def build_documents(job: PlannedJob) -> dict[str, bytes] | None:
    """Return the documents of the job, or None if it has none."""
    if job.shape is not Shape.REMEMBERED:
        return None
    note = build_note(job)
    return {note.guide: note.document.encode()}


def is_of_notes(job: PlannedJob) -> bool:
    """Return whether the job writes or finds a note."""
    return job.shape in (Shape.REMEMBERED, Shape.RECALLED)


def inserts_line(job: PlannedJob, key: CallKey) -> bool:
    """Return whether the reply to this call inserts a line into the note."""
    is_writer = job.shape is Shape.REMEMBERED and key.handoff == WRITES_NOTE
    return is_writer and INSERTS_FROM <= key.turn <= INSERTS_UNTIL


def build_note(job: PlannedJob) -> PlannedNote:
    """Return the note that the job writes or finds."""
    return PlannedNote(job.follows or job.name)


WRONG_NOTES = "notes that were lost, written twice or had no evidence"
PAID_AGAIN = "facts for which a later job paid again"
"""Names of the promises in the report."""


@dataclass(frozen=True, slots=True)
class NoteRecords:
    """The notes of all tenants at the end of a run."""

    notes: Sequence[Note]
    writers: Mapping[str, str]
    """Jobs whose agent wrote its whole note: name of the job -> id of the job."""
    unsure: Collection[str]
    """Names of the jobs whose agent was given up. It may have written a part of its note."""
    turns_of_readers: Mapping[str, int]
    """Later jobs, which read a note: name of the job -> most turns that it may need."""
    calls: Sequence[Call]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        return {
            WRONG_NOTES: list(self._find_wrong_notes()),
            PAID_AGAIN: list(self._find_repeated_calls()),
        }

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        calling_jobs = {call.key.job for call in self.calls}
        return {
            "notes": len(self.notes),
            "jobs that found a note": len(calling_jobs & self.turns_of_readers.keys()),
        }

    def _find_wrong_notes(self) -> Iterator[str]:
        counts = Counter(note.path for note in self.notes)
        for name, job_id in self.writers.items():
            planned = PlannedNote(name)
            if counts[planned.path] != 1:
                yield f"{planned.path}: {counts[planned.path]} notes"
            for note in self.notes:
                if note.path == planned.path and note.text != planned.text:
                    yield f"{planned.path}: {note.text!r}"
                if note.path == planned.path and note.job_id != job_id:
                    yield f"{planned.path}: written by {note.job_id}, not by {job_id}"
        planned_paths = {PlannedNote(name).path for name in (*self.writers, *self.unsure)}
        for note in self.notes:
            if note.path not in planned_paths:
                yield f"{note.path}: no job may write it"
            elif not _is_proven(note.evidence, PlannedNote(note.path.partition("/")[2])):
                yield f"{note.path}: no evidence"

    def _find_repeated_calls(self) -> Iterator[str]:
        for call in self.calls:
            turns = self.turns_of_readers.get(call.key.job)
            if turns is not None and call.key.turn > turns:
                yield f"{call.key.job} {call.key.handoff}, turn {call.key.turn}"


def _is_proven(evidence: Citation | None, planned: PlannedNote) -> bool:
    return (
        evidence is not None
        and evidence.source == planned.guide
        and evidence.quote in planned.document
    )
