"""The builders of results write what a specialist must answer with."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.testing import Json, claim, result_reply, specialist_result
from tests.doubles.handoffs import a_manifest

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
MANIFEST, _ = a_manifest(tower="It is 330 m high.")


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

    assert list(Draft202012Validator(form.schema or False).iter_errors(result)) == []


@pytest.mark.parametrize("output", ["The tower is high [c1].", {"height": "330 m [c1]"}])
def test_a_reply_has_the_result_in_the_form_that_its_output_needs(output: Any) -> None:
    (block,) = result_reply(output, claims=[TOWER], confidence=0.2).blocks
    is_text = isinstance(output, str)

    answer = EnvelopeFormat(
        StepId("a"),
        {"type": "string"} if is_text else {"type": "object"},
        Sources(lambda _digest: "It is 330 m high.", MANIFEST),
        form=AnswerForm.MARKDOWN if is_text else AnswerForm.ENVELOPE,
    ).read(block["text"], last_try=False)

    (of_answer,) = answer.claims
    assert (answer.status, answer.confidence) == (ResultStatus.OK, 0.2)
    assert (of_answer.text, of_answer.value) == ("The tower is 330 m high.", "330")
    assert [source.quote for source in of_answer.sources] == ["330 m"]


def test_a_reply_without_an_output_says_why() -> None:
    (block,) = result_reply(None, status="failed", problem="There is no tower.").blocks

    assert block["text"].splitlines()[:3] == [
        "<notes>",
        "status: failed",
        "problem: There is no tower.",
    ]


def test_a_source_without_a_quote_is_refused() -> None:
    with pytest.raises(ValueError, match="together"):
        claim("c1", "The tower is high.", source="tower.md")
