"""A parse error names the place and the problem. It repeats no input, neither in its text nor in a
logged traceback.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from handoff_queue.shared.types.checkpoints import checkpoint_adapter
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import parse_event
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.review import Verdict
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.roles.assessment import VerdictAnswer
from tests.doubles.handoffs import a_handoff

SECRET = "what a model has written"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (AgentHandoff.from_json, {"task_description": SECRET, "attempt": SECRET}),
        (HandoffResult.from_json, {"status": SECRET, "claims": [{"text": SECRET}]}),
        (parse_event, {"type": "job_ended", "status": SECRET}),
        (checkpoint_adapter.validate_json, {"kind": "replied", "content": SECRET}),
        (lambda text: Verdict.from_value(json.loads(text)), {"verdict": SECRET}),
        (VerdictAnswer.model_validate_json, {"revisions": {"a": {"problem": SECRET}}}),
    ],
    ids=["handoff", "result", "event", "checkpoint", "verdict", "a role's answer"],
)
def test_an_unparsable_text_is_not_repeated(
    parse: Callable[[str], object], text: dict[str, Any]
) -> None:
    with pytest.raises((MalformedMessage, ValidationError)) as refused:
        parse(json.dumps(text))

    assert SECRET not in "".join(traceback.format_exception(refused.value))


def nested(deep: int) -> JsonValue:
    return [nested(deep - 1)] if deep else 0


@pytest.mark.parametrize(
    "value", [{"verdict": "\ud83d"}, {"verdict": nested(300)}], ids=["half a character", "too deep"]
)
def test_a_value_outside_json_is_malformed(value: dict[str, JsonValue]) -> None:
    with pytest.raises(
        MalformedMessage,
        match=r"^Verdict: it has half a character \(a lone surrogate\), or is nested too deep$",
    ):
        Verdict.from_value(value)


@pytest.mark.parametrize("update", [None, {}, {"output_tokens": 7}])
def test_a_copy_equals_pydantics_copy_and_shares_no_mutable_field(
    update: dict[str, Any] | None,
) -> None:
    usage = Usage(input_tokens=3)

    copy, pydantics = usage.model_copy(update=update), BaseModel.model_copy(usage, update=update)

    assert copy == pydantics
    assert repr(copy) == repr(pydantics)
    assert copy.__getstate__() == pydantics.__getstate__()
    assert usage == Usage(input_tokens=3)
    assert usage.model_fields_set == {"input_tokens"}


def test_a_deep_copy_shares_no_mutable_field() -> None:
    handoff = a_handoff()

    copy = handoff.model_copy(deep=True)

    assert copy == handoff
    assert copy.expected_output_format is not handoff.expected_output_format
