"""A reworded repeat of a task is told apart from a different task."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import Reviewed
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import Decision
from handoff_queue.supervisor.lifecycle.state import Phase
from handoff_queue.supervisor.text.task_similarity import SAME_FROM, likeness
from tests.doubles.simulated_job import finish_steps, planned

REWORDED = [
    ("The storage claim has no source.", "No source is given for the claim about storage."),
    ("Cite a source for the storage claim.", "The claim on storage still lacks any source."),
    ("Shorten the summary to five sentences.", "The summary is too long: five sentences at most."),
    ("The table lacks a row for Milvus.", "A row for Milvus is missing from the table."),
    ("It contradicts the pricing section.", "The pricing section is contradicted by this."),
    (
        "I need the customer's order number.",
        "Without the order number of the customer I cannot go on.",
    ),
    (
        "The comparison omits filtering performance.",
        "Filtering performance is left out of the comparison.",
    ),
]
DIFFERENT = [
    ("The storage claim has no source.", "The table lacks a row for Milvus."),
    ("Cite a source for the storage claim.", "Cite a source for the filtering claim."),
    ("Shorten the summary to five sentences.", "The summary leaves out durability."),
    ("The comparison omits filtering performance.", "The comparison is unreadable: use a table."),
    ("I need the revenue of 2023.", "I need the revenue of 2024."),
    (
        "Compare Qdrant for filtering and durable storage",
        "Compare Milvus for filtering and durable storage",
    ),
    ("Say which licence each database has.", "Say in which language each database is written."),
    ("The interview with the company is missing.", "Internal comparison figures are missing."),
    ("The conclusion does not follow from the evidence.", "The conclusion is missing."),
]


@pytest.mark.parametrize(("first", "second"), REWORDED)
def test_the_same_task_in_other_words_is_the_same(first: str, second: str) -> None:
    assert likeness(first, second) == likeness(second, first) >= SAME_FROM + 0.1


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_a_similar_reading_different_task_is_different(first: str, second: str) -> None:
    assert likeness(first, second) == likeness(second, first) <= SAME_FROM - 0.1


def test_a_review_that_repeats_itself_gets_no_further_round() -> None:
    job = planned(a="")
    finish_steps(job, "a")
    job.review(a="wrong")
    job.advance()
    finish_steps(job, "a")
    steps = (StepId("a"),)
    result = job.finish("assessor", output={})
    job.append(
        Reviewed(round=2, decision=Decision.REVISE, result=result, steps=steps, repeats=steps)
    )

    assert job.state.phase is Phase.SYNTHESIZING
    assert job.step("a").result_status is ResultStatus.OK
