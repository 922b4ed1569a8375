"""What does not parse says where and what, and repeats nothing: neither our own error nor the one behind it in a log's traceback."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from shared.wire.checkpoints import checkpoint_adapter
from shared.wire.errors import MalformedMessage
from shared.wire.events import parse_event
from shared.wire.handoff import AgentHandoff, HandoffResult
from shared.wire.verdict import Verdict
from supervisor.roles.assessment import VerdictAnswer

SECRET = "what a model has written"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (AgentHandoff.from_json, {"task_description": SECRET, "attempt": SECRET}),
        (HandoffResult.from_json, {"status": SECRET, "claims": [{"text": SECRET}]}),
        (parse_event, {"type": "job_ended", "status": SECRET}),
        (checkpoint_adapter.validate_json, {"kind": "replied", "content": SECRET}),
        (lambda text: Verdict.of(json.loads(text)), {"verdict": SECRET}),
        (VerdictAnswer.model_validate_json, {"revisions": {"a": {"problem": SECRET}}}),
    ],
    ids=["handoff", "result", "event", "checkpoint", "verdict", "a role's answer"],
)
def test_what_does_not_parse_is_not_repeated(parse: Callable[[str], object], text: dict[str, Any]) -> None:
    with pytest.raises((MalformedMessage, ValidationError)) as refused:
        parse(json.dumps(text))

    assert SECRET not in "".join(traceback.format_exception(refused.value))
