"""Helpers that send one model call to a scripted server, for tests of the adapter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.types.errors import ModelError
from handoff_queue.shared.types.model import CallProgress, ModelCall, SystemPrompt
from handoff_queue.testing import MessagesServer, Reply, Script, in_turn

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
CALL = ModelCall(
    model="claude-haiku-5-5",
    system=SystemPrompt("Be brief."),
    messages=({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
    tools=(TOOL,),
    output_schema=SCHEMA,
    timeout_s=5,
)


def ignore(_progress: CallProgress) -> None:
    pass


Serve = Callable[[Script], tuple[AnthropicModel, MessagesServer]]


def model_error_of(serve: Serve, reply: Reply, call: ModelCall = CALL) -> ModelError:
    model, server = serve(in_turn(reply))
    with pytest.raises(ModelError) as caught:
        model.reply(call, ignore)
    assert len(server.requests) == 1, "retrying is not the adapter's"
    assert "canary" not in str(caught.value)
    return caught.value
