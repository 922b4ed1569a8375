"""What becomes of steps that ask for something: each is answered or given up."""

from __future__ import annotations

import json

import jsonschema
import pytest

from shared.agent.reading import NotAcceptable
from shared.wire.resolutions import Resolutions
from supervisor.roles.needs import NeedsReading

READING = NeedsReading(("costs", "laws"))


def answer(*resolutions: tuple[str, str, str]) -> str:
    return json.dumps({"resolutions": [{"step": step, "action": action, "answer": text} for step, action, text in resolutions]})


def test_each_step_gets_its_resolution_in_the_order_in_which_they_asked() -> None:
    text = answer(("laws", "give_up", "Only the user knows."), ("costs", "answer", "Assume 2026 prices."))
    jsonschema.validate(json.loads(text), READING.schema)
    found = Resolutions.of(READING.read(text, last_try=False).output).resolutions
    assert [(one.step, one.answer) for one in found] == [
        ("costs", "Assume 2026 prices."),
        ("laws", None),
    ]


@pytest.mark.parametrize("text", [answer(("costs", "answer", "x")), answer(("costs", "answer", "x"), ("laws", "answer", " ")), "{}"])
def test_a_step_without_an_answer_is_named(text: str) -> None:
    with pytest.raises(NotAcceptable, match=r"missing: .*laws"):
        READING.read(text, last_try=False)


def test_on_the_last_try_it_is_given_up_with_a_note() -> None:
    result = READING.read(answer(("costs", "answer", "x")), last_try=True)
    assert [one.answer is None for one in Resolutions.of(result.output).resolutions] == [False, True]
    assert result.notes == ("step laws asked for something that nobody could answer",)


def test_steps_that_asked_for_nothing_are_ignored() -> None:
    found = NeedsReading(("costs",)).read(answer(("other", "answer", "x"), ("costs", "give up", "")), last_try=False)
    assert [(one.step, one.answer) for one in Resolutions.of(found.output).resolutions] == [("costs", None)]
