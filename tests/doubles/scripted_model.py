"""A `Model` without HTTP for tests of the agent loop, which wait on a fake clock. It takes the
replies of `MessagesServer` and passes the same contract (`tests/contracts/test_model.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from handoff_queue.shared.providers.anthropic.stream import parse_usage
from handoff_queue.shared.types.errors import ModelError
from handoff_queue.shared.types.model import Block, CallProgress, ModelCall, ModelReply
from handoff_queue.testing import Reply


class ScriptedModel:
    """Model that calls a script for each reply. It raises an error that the script returns."""

    def __init__(self, script: Callable[[ModelCall], Reply | ModelError]) -> None:
        self._script = script
        self.calls: list[ModelCall] = []

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        self.calls.append(call)
        reply = self._script(call)
        on_progress(CallProgress())
        if isinstance(reply, ModelError):
            raise reply
        blocks: tuple[Block, ...] = tuple(dict(block) for block in reply.blocks)
        text = "".join(str(block["text"]) for block in blocks if block["type"] == "text")
        usage = parse_usage(reply.usage)
        for end in range(0, len(text), max(1, len(text) // 4)):
            on_progress(CallProgress(text=text[:end], usage=usage))
        return ModelReply(blocks, reply.stop_reason or "end_turn", usage, reply.model or call.model)


def replies_in_order(*replies: Reply | ModelError) -> Callable[[ModelCall], Reply | ModelError]:
    """Return a script that gives these replies in order, and then repeats the last reply."""
    left = list(replies)
    return lambda _call: left.pop(0) if len(left) > 1 else left[0]
