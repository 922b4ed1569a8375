"""The planner answers each step that needs input, adds an input step, or gives the step up."""

from __future__ import annotations

import json

import jsonschema
import pytest

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Resolutions
from handoff_queue.shared.types.step import OnFailure, Step
from handoff_queue.supervisor.roles.input_requests import NeedsFormat

READING = NeedsFormat(("costs", "laws"))
PLANNED = (
    Step(
        id=StepId("law"),
        specialist="researcher",
        task="Find the licence of Qdrant in the documents.",
    ),
)
WITH_OTHERS = NeedsFormat(("costs", "laws"), ("researcher", "generalist"), 2, PLANNED)


def answer(*resolutions: tuple[str, str, str]) -> str:
    return json.dumps(
        {
            "resolutions": [
                {"step": step, "action": action, "answer": text}
                for step, action, text in resolutions
            ]
        }
    )


def test_each_step_gets_its_resolution_in_the_order_of_the_requests() -> None:
    text = answer(
        ("laws", "give_up", "Only the user knows."), ("costs", "answer", "Assume 2026 prices.")
    )
    jsonschema.validate(json.loads(text), READING.schema)
    resolutions = Resolutions.from_value(READING.read(text, last_try=False).output).resolutions
    assert [(resolution.step, resolution.answer) for resolution in resolutions] == [
        ("costs", "Assume 2026 prices."),
        ("laws", None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        answer(("costs", "answer", "x")),
        answer(("costs", "answer", "x"), ("laws", "answer", " ")),
        "{}",
    ],
)
def test_a_step_without_an_answer_is_named(text: str) -> None:
    with pytest.raises(InvalidAnswer, match=r"missing: .*laws"):
        READING.read(text, last_try=False)


def test_on_the_last_try_an_unanswered_step_is_given_up_with_a_note() -> None:
    result = READING.read(answer(("costs", "answer", "x")), last_try=True)
    assert [
        resolution.answer is None
        for resolution in Resolutions.from_value(result.output).resolutions
    ] == [
        False,
        True,
    ]
    assert result.notes == ("step laws asked a question without an answer",)


def test_steps_that_asked_for_nothing_are_ignored() -> None:
    result = NeedsFormat(("costs",)).read(
        answer(("other", "answer", "x"), ("costs", "give up", "")), last_try=False
    )
    assert [
        (resolution.step, resolution.answer)
        for resolution in Resolutions.from_value(result.output).resolutions
    ] == [("costs", None)]


# Input steps


def answer_adding_steps(**tasks: tuple[str, str]) -> str:
    """Return an answer that adds input steps: `costs=("researcher", "Find the price.")`."""
    fields = {"action": "add_step", "answer": ""}
    many = [
        {"step": step, **fields, "specialist": specialist, "task": task}
        for step, (specialist, task) in tasks.items()
    ]
    return json.dumps({"resolutions": many})


def helpers_in(read: AcceptedAnswer) -> dict[str, Step | None]:
    return {
        resolution.step: resolution.by
        for resolution in Resolutions.from_value(read.output).resolutions
    }


def test_a_step_can_be_added_only_if_a_live_specialist_can_do_it() -> None:
    assert "add_step" not in json.dumps(READING.schema)
    assert "add_step" in json.dumps(WITH_OTHERS.schema)


def test_a_new_step_finds_the_input_of_another() -> None:
    text = answer_adding_steps(
        costs=("researcher", "Find the price of Qdrant."),
        laws=("generalist", "Find the year of the law."),
    )
    jsonschema.validate(json.loads(text), WITH_OTHERS.schema)
    helpers = helpers_in(WITH_OTHERS.read(text, last_try=False))

    assert helpers["costs"] == Step(
        id=StepId("costs_help"),
        specialist="researcher",
        task="Find the price of Qdrant.",
        on_failure=OnFailure.RETRY,
    )
    assert helpers["laws"] is not None


def test_a_step_for_an_unknown_specialist_goes_to_the_generalist_with_a_note() -> None:
    text = answer_adding_steps(
        costs=("wizard", "Find the price of Qdrant."),
        laws=("generalist", "Find the year of the law."),
    )
    read = WITH_OTHERS.read(text, last_try=False)

    assert [step.specialist for step in helpers_in(read).values() if step] == [
        "generalist",
        "generalist",
    ]
    assert read.notes == ("there is no specialist wizard: generalist takes its steps",)


def test_two_steps_with_the_same_need_get_the_same_input_step() -> None:
    same = ("researcher", "Find the price of Qdrant.")
    helpers = helpers_in(
        WITH_OTHERS.read(answer_adding_steps(costs=same, laws=same), last_try=False)
    )

    assert helpers["costs"] == helpers["laws"]


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (
            ("researcher", "Please find the licence of Qdrant in the documents."),
            "costs would have asked for what law was asked for already",
        ),
        (("researcher", " "), "costs needs a task"),
    ],
)
def test_a_step_that_cannot_be_added_is_reported_once_and_then_its_need_is_given_up(
    task: tuple[str, str], why: str
) -> None:
    reading = NeedsFormat(("costs",), ("researcher",), 2, PLANNED)
    with pytest.raises(InvalidAnswer, match=why):
        reading.read(answer_adding_steps(costs=task), last_try=False)

    read = reading.read(answer_adding_steps(costs=task), last_try=True)
    assert helpers_in(read) == {"costs": None}
    assert read.notes == ("step costs asked a question without an answer",)


def test_the_number_of_added_steps_stays_within_the_limit() -> None:
    reading = NeedsFormat(("costs", "laws"), ("researcher",), 1)
    text = answer_adding_steps(
        costs=("researcher", "Find the price of Qdrant."),
        laws=("researcher", "Find the year of the law."),
    )
    with pytest.raises(InvalidAnswer, match="laws cannot have a step added: at most 1"):
        reading.read(text, last_try=False)


def test_an_input_step_gets_no_input_step() -> None:
    reading = NeedsFormat(("law",), ("researcher",), 1, PLANNED, frozenset({StepId("law")}))
    with pytest.raises(InvalidAnswer, match="law finds something out itself"):
        reading.read(
            answer_adding_steps(law=("researcher", "Find the price of Qdrant.")), last_try=False
        )


def test_the_name_of_a_new_step_is_free_and_short_enough() -> None:
    long = "a" * 48
    known = Step(id=StepId(f"{long[:40]}_help"), specialist="researcher", task="Other work.")
    reading = NeedsFormat((long,), ("researcher",), 1, (known,))
    (helper,) = helpers_in(
        reading.read(
            answer_adding_steps(**{long: ("researcher", "Find the price of Qdrant.")}),
            last_try=False,
        )
    ).values()

    assert helper is not None
    assert helper.id == f"{long[:40]}_help2"
