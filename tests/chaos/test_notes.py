"""For every promise about notes, there are records that break it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.notes import PAID_AGAIN, WRONG_NOTES, NoteRecords, PlannedNote
from handoff_queue.chaos.planned_jobs import FINDS_AT, CallKey
from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.memory_notes import Note
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import DOCUMENT

PLANNED = PlannedNote("1-0")
ID = "j-0123456789ab"
EVIDENCE = Citation(
    source=PLANNED.guide,
    digest=compute_digest(PLANNED.document),
    start=0,
    end=len(PLANNED.inserted[-1]),
    quote=PLANNED.inserted[-1],
)


def a_note(**changes: Any) -> Note:
    values = {
        "path": PLANNED.path,
        "text": PLANNED.text,
        "evidence": EVIDENCE,
        "author": "keeper",
        "job_id": ID,
        "at": 1.0,
        "expires_at": 2.0,
        "origins": (DOCUMENT,),
    }
    return Note(**{**values, **changes})


def records(*notes: Note) -> NoteRecords:
    return NoteRecords(notes, {"1-0": ID}, ["1-1"], {"1-0-recall": FINDS_AT}, [])


def breaches(*notes: Note) -> list[str]:
    return records(*notes).find_breaches()[WRONG_NOTES]


def test_one_note_with_all_lines_and_its_evidence_breaks_no_promise() -> None:
    assert breaches(a_note()) == []


@pytest.mark.parametrize(
    "notes",
    [
        (),
        (a_note(), a_note()),
        (a_note(text=PLANNED.fact),),
        (a_note(text=f"{PLANNED.text}\n{PLANNED.inserted[-1]}"),),
        (a_note(job_id="j-aaaaaaaaaaaa"),),
        (a_note(evidence=None),),
        (a_note(evidence=EVIDENCE.model_copy(update={"source": "memory:towers/1-0"})),),
        (a_note(evidence=EVIDENCE.model_copy(update={"quote": "It is not there."})),),
        (a_note(), a_note(path=f"{PLANNED.path}-wrong")),
    ],
    ids=[
        "lost",
        "twice",
        "a line is lost",
        "a line is there twice",
        "of another job",
        "without evidence",
        "proven by a note",
        "with an invented quote",
        "refused, and stored",
    ],
)
def test_a_wrong_note_is_a_breach(notes: tuple[Note, ...]) -> None:
    assert len(breaches(*notes)) == 1


def test_an_agent_that_was_given_up_may_have_written_a_part_of_its_note() -> None:
    other = PlannedNote("1-1")
    evidence = EVIDENCE.model_copy(update={"source": other.guide, "quote": other.fact})
    part = a_note(path=other.path, text=other.fact, evidence=evidence)

    assert breaches(a_note(), part) == []


def test_a_later_job_that_looks_further_pays_again() -> None:
    calls = [Call(CallKey("1-0-recall", "answer.1", turn), "worker1", 1.0) for turn in (1, 2, 3)]
    breaches, looked_further = [
        replace(records(a_note()), calls=calls[:count]).find_breaches()[PAID_AGAIN]
        for count in (2, 3)
    ]

    assert breaches == []
    assert looked_further == ["1-0-recall answer.1, turn 3"]
