"""Tools for tests of your own specialists and tools. The module is part of the public API.

    with MessagesServer(in_turn(result_reply("It is open."))) as model:
        with running_system(model, specialists=Path("our-specialists")) as system:
            job_id = system.jobs.submit(Request("How does order A-1042 stand?"))
            print(system.jobs.result(job_id, wait_s=60).answer)

`MessagesServer` replaces the provider of the models. A script gives its replies.
"""

from __future__ import annotations

from handoff_queue.testing.messages_server import BrokenRules, MessagesServer
from handoff_queue.testing.replies import (
    Json,
    Reply,
    Script,
    answer_properties,
    claim,
    error_reply,
    first_message_text,
    in_turn,
    json_reply,
    result_reply,
    specialist_result,
    text_reply,
    tool_call_reply,
)
from handoff_queue.testing.running_system import RunningSystem, running_system

__all__ = [
    "BrokenRules",
    "Json",
    "MessagesServer",
    "Reply",
    "RunningSystem",
    "Script",
    "answer_properties",
    "claim",
    "error_reply",
    "first_message_text",
    "in_turn",
    "json_reply",
    "result_reply",
    "running_system",
    "specialist_result",
    "text_reply",
    "tool_call_reply",
]
