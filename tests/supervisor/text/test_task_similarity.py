"""A reworded repeat of a task is told apart from a different task. A task repeated in the same
words is found.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import Reviewed
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Repeat
from handoff_queue.shared.types.review import Decision
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.state import Phase
from handoff_queue.supervisor.text.task_similarity import (
    SAME_FROM,
    compute_likeness,
    find_repeats,
    find_repeats_of_earlier,
)
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
    assert compute_likeness(first, second) == compute_likeness(second, first) >= SAME_FROM + 0.1


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_a_similar_reading_different_task_is_different(first: str, second: str) -> None:
    assert compute_likeness(first, second) == compute_likeness(second, first) <= SAME_FROM - 0.1


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


def a_step(name: str, task: str, specialist: str = "researcher") -> Step:
    return Step(id=StepId(name), specialist=specialist, task=task)


def is_repeat(task: str, after: str) -> bool:
    return bool(find_repeats_of_earlier([a_step("again", task)], [a_step("first", after)]))


TASK = "List the errors in the logs of the checkout service, with each message."


@pytest.mark.parametrize(
    "again",
    [
        TASK,
        "Please list the errors in the logs of the checkout service, with each message.",
        "Once more: list errors in the Logs of the CHECKOUT service with each message!",
        "Could you list the error in the log of the checkout services, with each message?",
    ],
)
def test_politeness_articles_endings_and_marks_do_not_make_a_new_task(again: str) -> None:
    assert is_repeat(again, TASK)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Find the revenue of Siemens in 2023.", "Find the revenue of Siemens in 2024."),
        ("Find the revenue of Siemens.", "Find the revenue of Bosch."),
        ("Move the tables from MySQL to Postgres.", "Move the tables from Postgres to MySQL."),
        ("List flights with more than two stops.", "List flights with less than two stops."),
        ("Say what tenants may do.", "Say what tenants must do."),
        ("Say what tenants can do.", "Say what tenants could do."),
        ("List the more expensive flights.", "List the expensive flights."),
        ("Explain the memory model of C.", "Explain the memory model of C++."),
        ("Find a price in €.", "Find a price in $."),
        ("List warnings that are not errors.", "List errors that are not warnings."),
        ("Find who invested in funding round 2.", "Find who invested in funding round 3."),
        ("Compare Qdrant and Milvus.", "Compare Qdrant and Milvus in a table."),
    ],
)
def test_another_word_or_order_makes_a_different_task(first: str, second: str) -> None:
    assert not is_repeat(second, first)
    assert not is_repeat(first, second)


def test_the_same_task_for_another_specialist_is_a_different_step() -> None:
    assert (
        find_repeats_of_earlier([a_step("again", TASK, "ops")], [a_step("first", TASK, "coder")])
        == ()
    )


def test_the_first_of_several_earlier_steps_is_named() -> None:
    earlier = [a_step("logs", TASK), a_step("same", TASK)]

    assert find_repeats_of_earlier([a_step("again", TASK)], earlier) == (
        Repeat(step=StepId("again"), earlier=StepId("logs")),
    )


def test_a_step_is_repeated_within_a_plan_only_with_the_same_dependencies() -> None:
    steps = [
        Step(
            id=StepId(f"s{n}"),
            specialist="writer",
            task="Compare the two results in a table.",
            depends_on=(StepId(f"a{n % 3}"), StepId("b")),
        )
        for n in range(4)
    ]

    assert find_repeats(steps) == (Repeat(step=StepId("s3"), earlier=StepId("s0")),)
