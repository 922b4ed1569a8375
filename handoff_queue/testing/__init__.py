"""Tools for tests of your own specialists and tools.

    with MessagesServer(in_turn(text_reply("hello"))) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)

`MessagesServer` stands in for the provider of the models. A script gives its replies.
"""

from __future__ import annotations

from handoff_queue.testing.messages_server import BrokenRules, MessagesServer
from handoff_queue.testing.replies import (
    Json,
    Reply,
    Script,
    answer_properties,
    error_reply,
    first_message_text,
    in_turn,
    json_reply,
    text_reply,
    tool_call_reply,
)

__all__ = [
    "BrokenRules",
    "Json",
    "MessagesServer",
    "Reply",
    "Script",
    "answer_properties",
    "error_reply",
    "first_message_text",
    "in_turn",
    "json_reply",
    "text_reply",
    "tool_call_reply",
]
