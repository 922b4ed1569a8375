"""The builders of results write what a specialist must answer with."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.types.ids import StepId
from handoff_queue.testing import Json, claim, result_reply, specialist_result

TOWER = claim(
    "c1",
    "The tower is 330 m high.",
    source="tower.md",
    quote="330 m",
    subject="tower",
    attribute="height",
    value="330",
    unit="m",
)


@pytest.mark.parametrize(
    "result",
    [
        specialist_result("The tower is high [c1].", claims=[TOWER]),
        specialist_result("So it is.", claims=[claim("c1", "So it is.")], confidence=0.2),
        specialist_result(None, status="needs_input", needs="Which tower?"),
        specialist_result(None, status="failed", problem="There is no tower."),
    ],
)
def test_a_built_result_has_the_form_that_a_specialist_must_use(result: Json) -> None:
    form = EnvelopeFormat(StepId("a"), {"type": ["string", "null"]}, Sources(str))

    assert list(Draft202012Validator(form.schema).iter_errors(result)) == []


def test_a_reply_of_a_result_is_the_same_result() -> None:
    reply = result_reply("The tower is high [c1].", claims=[TOWER])

    assert json.loads(reply.blocks[0]["text"]) == specialist_result(
        "The tower is high [c1].", claims=[TOWER]
    )


def test_a_source_without_a_quote_is_refused() -> None:
    with pytest.raises(ValueError, match="together"):
        claim("c1", "The tower is high.", source="tower.md")
