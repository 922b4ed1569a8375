"""The notes of a run at its end, and the promises about notes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_notes import PlannedNote
from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.memory_notes import Note

WRONG_NOTES = "notes that were lost, written twice or had no evidence"
PAID_AGAIN = "facts for which a later job paid again"
"""Names of the promises in the report."""


@dataclass(frozen=True, slots=True)
class NoteRecords:
    """The notes of all tenants at the end of a run."""

    notes: Sequence[Note]
    written: Mapping[str, str]
    """The jobs whose agent had written its note: name -> id of the job."""
    unsure: Collection[str]
    """Names of the jobs whose agent was given up. It may have written a part of its note."""
    finders: Mapping[str, int]
    """Turns that each later job needs: its name -> number of turns."""
    calls: Sequence[Call]

    def breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        return {WRONG_NOTES: list(self._wrong()), PAID_AGAIN: list(self._paid_again())}

    def figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        called = {call.key.job for call in self.calls}
        return {
            "notes": len(self.notes),
            "jobs that found a note": len(called & self.finders.keys()),
        }

    def _wrong(self) -> Iterator[str]:
        counts = Counter(note.path for note in self.notes)
        for name, job_id in self.written.items():
            planned = PlannedNote(name)
            if counts[planned.path] != 1:
                yield f"{planned.path}: {counts[planned.path]} notes"
            for note in self.notes:
                if note.path == planned.path and note.text != planned.text:
                    yield f"{planned.path}: {note.text!r}"
                if note.path == planned.path and note.job_id != job_id:
                    yield f"{planned.path}: written by {note.job_id}, not by {job_id}"
        planned_paths = {PlannedNote(name).path for name in (*self.written, *self.unsure)}
        for note in self.notes:
            if note.path not in planned_paths:
                yield f"{note.path}: no job may write it"
            elif not _is_proven(note.evidence, PlannedNote(note.path.partition("/")[2])):
                yield f"{note.path}: no evidence"

    def _paid_again(self) -> Iterator[str]:
        for call in self.calls:
            turns = self.finders.get(call.key.job)
            if turns is not None and call.key.turn > turns:
                yield f"{call.key.job} {call.key.handoff}, turn {call.key.turn}"


def _is_proven(evidence: Citation | None, planned: PlannedNote) -> bool:
    return (
        evidence is not None
        and evidence.source == planned.guide
        and evidence.quote in planned.document
    )
